"""GraphCL on TU graphs and HaLP on top of it: the one table of the paper that is reproduced with the paper's own data.

>>> from halp.graphs import GraphSettings, GraphTraining, read_graphs, svm_accuracies
"""

from halp.graphs.augment import augment
from halp.graphs.data import GraphBatch, GraphSet
from halp.graphs.evaluation import svm_accuracies
from halp.graphs.gin import GIN, GraphContrast
from halp.graphs.losses import nt_xent
from halp.graphs.readers import read_graphs
from halp.graphs.settings import AugmentSettings, GraphSettings, HalpGraphSettings
from halp.graphs.training import GraphTraining

__all__ = [
    "GIN",
    "AugmentSettings",
    "GraphBatch",
    "GraphContrast",
    "GraphSet",
    "GraphSettings",
    "GraphTraining",
    "HalpGraphSettings",
    "augment",
    "nt_xent",
    "read_graphs",
    "svm_accuracies",
]
