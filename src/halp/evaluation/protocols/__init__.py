"""Protocols: kNN (also by an autoencoder), retrieval, linear, ridge, fine-tuning, few labels, ensemble."""

from halp.evaluation.protocols import ensemble, finetune, knn, linear, ridge  # noqa: F401  (fill the registry)
