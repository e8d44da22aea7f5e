"""The protocols: kNN (also by an autoencoder) and retrieval, linear, ridge, fine-tuning and few labels,
ensemble.
"""

from halp.evaluation.protocols import (  # noqa: F401  (fill the registry)
    ensemble,
    finetune,
    knn,
    linear,
    ridge,
)
