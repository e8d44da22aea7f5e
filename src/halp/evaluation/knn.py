"""The neighbour search under its former name; see `protocols/knn.py`."""

from halp.evaluation.protocols.knn import class_similarities, knn_predict, knn_votes, neighbours

__all__ = ["class_similarities", "knn_predict", "knn_votes", "neighbours"]
