"""The protocols, one per file: kNN (also by an autoencoder), linear, ridge, semi-supervised, fine-tuning, ensemble, retrieval."""

from halp.evaluation.protocols import (  # noqa: F401  (fill the registry)
    ensemble,
    finetune,
    knn,
    linear,
    retrieval,
    ridge,
    semi,
)
