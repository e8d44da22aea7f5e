"""Learn human actions from skeletons without labels: hallucinated positives (HaLP) and related systems.

The public names below are loaded when they are first used, so that `halp --help` does not wait for torch.
"""

from __future__ import annotations

import ast
import functools
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halp._version import __version__

if TYPE_CHECKING:
    from halp.cli.job_array import join_parts as join
    from halp.core.errors import Diverged, InputError, Interrupted, LostProcess
    from halp.core.packages import list_encoders
    from halp.data.clip import Clip
    from halp.data.ingest.prepare import prepare
    from halp.data.inspect import inspect
    from halp.data.merge import merge
    from halp.data.new_splits import split
    from halp.data.readers import list_formats
    from halp.data.reading import Reading
    from halp.data.spans import Event, Events
    from halp.data.store import Store, open_store
    from halp.data.store_writer import StoreWriter
    from halp.encoders import build_encoder, list_architectures
    from halp.encoders.pretrained import PretrainedEncoder
    from halp.evaluation import Result, evaluate, list_protocols
    from halp.explorer.notebook import explore
    from halp.features.embed import embed, embed_table
    from halp.features.encode import prepare_for
    from halp.features.loading import load_encoder
    from halp.features.opening import open_source
    from halp.features.source import Source
    from halp.features.table import FeatureTable
    from halp.hallucinate import HallucinatedPositives, halp_loss
    from halp.reports.run_report import report
    from halp.reproduce.reproduce_table import reproduce
    from halp.reproduce.sweep import sweep
    from halp.reproduce.verify import verify
    from halp.serve.server import serve
    from halp.skeleton import get_topology
    from halp.tasks.agreement import agreement
    from halp.tasks.angles import angles
    from halp.tasks.classify import fit as classify_fit
    from halp.tasks.classify import predict as classify_predict
    from halp.tasks.cluster import cluster
    from halp.tasks.compare import compare
    from halp.tasks.curves import curves
    from halp.tasks.deviation import deviation
    from halp.tasks.estimators import FewLabelClassifier, SkeletonEncoder
    from halp.tasks.export import export, pull, push
    from halp.tasks.find_motifs import motifs
    from halp.tasks.finetune import finetune
    from halp.tasks.gait import gait
    from halp.tasks.live import LiveRecognition
    from halp.tasks.model_folder import Model, load_model, save_model
    from halp.tasks.people import people
    from halp.tasks.pose_files import poses
    from halp.tasks.read_events import events
    from halp.tasks.repetitions import repetitions
    from halp.tasks.same_people import same_people
    from halp.tasks.search import search
    from halp.tasks.segment import segment
    from halp.tasks.stats import stats
    from halp.tasks.watch import live
    from halp.training import convert, list_recipes, load_recipe, open_run, pretrain

__all__ = [
    "Clip",
    "Diverged",
    "Event",
    "Events",
    "FeatureTable",
    "FewLabelClassifier",
    "HallucinatedPositives",
    "InputError",
    "Interrupted",
    "LiveRecognition",
    "LostProcess",
    "Model",
    "PretrainedEncoder",
    "Reading",
    "Result",
    "SkeletonEncoder",
    "Source",
    "Store",
    "StoreWriter",
    "__version__",
    "agreement",
    "angles",
    "build_encoder",
    "classify_fit",
    "classify_predict",
    "cluster",
    "compare",
    "convert",
    "curves",
    "deviation",
    "embed",
    "embed_table",
    "evaluate",
    "events",
    "explore",
    "export",
    "finetune",
    "gait",
    "get_topology",
    "halp_loss",
    "inspect",
    "join",
    "list_architectures",
    "list_encoders",
    "list_formats",
    "list_protocols",
    "list_recipes",
    "live",
    "load_encoder",
    "load_model",
    "load_recipe",
    "merge",
    "motifs",
    "open_run",
    "open_source",
    "open_store",
    "people",
    "poses",
    "prepare",
    "prepare_for",
    "pretrain",
    "pull",
    "push",
    "repetitions",
    "report",
    "reproduce",
    "same_people",
    "save_model",
    "search",
    "segment",
    "serve",
    "split",
    "stats",
    "sweep",
    "verify",
]


@functools.cache
def homes() -> dict[str, tuple[str, str]]:
    """Module and name there of every public name, as the imports for type checkers state them."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    (typed,) = (node for node in tree.body if isinstance(node, ast.If))
    lines = [line for line in typed.body if isinstance(line, ast.ImportFrom)]
    return {one.asname or one.name: (str(line.module), one.name) for line in lines for one in line.names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'halp' has no attribute '{name}'")
    home, original = homes()[name]
    return getattr(importlib.import_module(home), original)


def __dir__() -> list[str]:
    return __all__
