"""The protocols, one per file: kNN, linear, semi-supervised, fine-tuning (also transfer), ensemble and retrieval."""

from halp.evaluation.protocols import ensemble, finetune, knn, linear, retrieval, semi  # noqa: F401  (fill the registry)
