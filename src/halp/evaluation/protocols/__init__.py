"""The protocols: kNN (also by an autoencoder) and retrieval, linear, ridge, fine-tuning and few labels,
ensemble.
"""

from halp.evaluation.protocols import ensemble, finetune, knn, linear, ridge  # noqa: F401  (fill the registry)
