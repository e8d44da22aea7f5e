"""Learn human actions from skeletons without labels: hallucinated latent positives and the systems around them.

The public names below are loaded when they are first used, so that `halp --help` does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from halp._version import __version__

if TYPE_CHECKING:
    from halp.core.errors import InputError
    from halp.data.clip import Clip
    from halp.data.ingest.prepare import prepare
    from halp.data.inspect import inspect
    from halp.data.merge import merge
    from halp.data.store import Store, StoreWriter, open_store
    from halp.encoders import build_encoder, list_encoders
    from halp.encoders.pretrained import PretrainedEncoder
    from halp.evaluation import Result, evaluate, list_protocols
    from halp.explorer.notebook import explore
    from halp.features.embed import embed, embed_table, prepare_for
    from halp.features.loading import load_encoder
    from halp.features.source import Source, open_source
    from halp.features.table import FeatureTable
    from halp.hallucinate import HallucinatedPositives, halp_loss
    from halp.reproduce.verify import verify
    from halp.skeleton import get_topology
    from halp.tasks.classify import fit as classify_fit
    from halp.tasks.classify import predict as classify_predict
    from halp.tasks.cluster import cluster
    from halp.tasks.compare import compare
    from halp.tasks.estimators import FewLabelClassifier, SkeletonEncoder
    from halp.tasks.export import export
    from halp.tasks.finetune import finetune
    from halp.tasks.live import LiveRecognition
    from halp.tasks.model_folder import Model, load_model, save_model
    from halp.tasks.search import search
    from halp.tasks.segment import segment
    from halp.training import list_recipes, load_recipe, open_run, pretrain

_HOMES = {
    "halp.data.store": ("Store", "StoreWriter", "open_store"),
    "halp.encoders": ("build_encoder", "list_encoders"),
    "halp.core.errors": ("InputError",),
    "halp.data.clip": ("Clip",),
    "halp.data.ingest.prepare": ("prepare",),
    "halp.data.inspect": ("inspect",),
    "halp.data.merge": ("merge",),
    "halp.encoders.pretrained": ("PretrainedEncoder",),
    "halp.evaluation": ("Result", "evaluate", "list_protocols"),
    "halp.explorer.notebook": ("explore",),
    "halp.features.embed": ("embed", "embed_table", "prepare_for"),
    "halp.features.loading": ("load_encoder",),
    "halp.features.source": ("Source", "open_source"),
    "halp.features.table": ("FeatureTable",),
    "halp.reproduce.verify": ("verify",),
    "halp.skeleton": ("get_topology",),
    "halp.hallucinate": ("HallucinatedPositives", "halp_loss"),
    "halp.training": ("list_recipes", "load_recipe", "open_run", "pretrain"),
    "halp.tasks.cluster": ("cluster",),
    "halp.tasks.compare": ("compare",),
    "halp.tasks.estimators": ("FewLabelClassifier", "SkeletonEncoder"),
    "halp.tasks.export": ("export",),
    "halp.tasks.finetune": ("finetune",),
    "halp.tasks.model_folder": ("Model", "load_model", "save_model"),
    "halp.tasks.search": ("search",),
    "halp.tasks.segment": ("segment",),
    "halp.tasks.live": ("LiveRecognition",),
}
_HOME = {name: (home, name) for home, names in _HOMES.items() for name in names}
# the words of the command line: halp classify fit, halp classify predict
_HOME |= {f"classify_{name}": ("halp.tasks.classify", name) for name in ("fit", "predict")}

__all__ = [
    "Clip",
    "FeatureTable",
    "FewLabelClassifier",
    "HallucinatedPositives",
    "InputError",
    "LiveRecognition",
    "Model",
    "PretrainedEncoder",
    "Result",
    "SkeletonEncoder",
    "Source",
    "Store",
    "StoreWriter",
    "__version__",
    "build_encoder",
    "classify_fit",
    "classify_predict",
    "cluster",
    "compare",
    "embed",
    "embed_table",
    "evaluate",
    "explore",
    "export",
    "finetune",
    "get_topology",
    "halp_loss",
    "inspect",
    "list_encoders",
    "list_protocols",
    "list_recipes",
    "load_encoder",
    "load_model",
    "load_recipe",
    "merge",
    "open_run",
    "open_source",
    "open_store",
    "prepare",
    "prepare_for",
    "pretrain",
    "save_model",
    "search",
    "segment",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'halp' has no attribute '{name}'")
    home, original = _HOME[name]
    return getattr(importlib.import_module(home), original)


def __dir__() -> list[str]:
    return __all__
