"""The protocols, one per file: kNN, linear, ridge, semi-supervised, fine-tuning (also transfer), ensemble and retrieval."""

from halp.evaluation.protocols import ensemble, finetune, knn, linear, retrieval, ridge, semi  # noqa: F401  (fill the registry)
