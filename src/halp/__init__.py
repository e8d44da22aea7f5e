"""Learn human actions from skeletons without labels: hallucinated latent positives and the systems around them.

The public names below are loaded when they are first used, so that `halp --help` does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from halp._version import __version__

if TYPE_CHECKING:
    from halp.clips.clip import Clip
    from halp.clips.ingest.prepare import prepare
    from halp.clips.inspect import inspect
    from halp.clips.merge import merge
    from halp.clips.store import Store, StoreWriter, open_store
    from halp.encoders import build_encoder, list_encoders
    from halp.encoders.pretrained import PretrainedEncoder
    from halp.errors import InputError
    from halp.evaluation import Result, evaluate, list_protocols
    from halp.explorer.notebook import explore
    from halp.features.embed import embed, embed_table, prepare_for
    from halp.features.loading import load_encoder
    from halp.features.source import Source, open_source
    from halp.features.table import FeatureTable
    from halp.hallucinate import HallucinatedPositives, halp_loss
    from halp.skeleton import get_topology
    from halp.training import list_recipes, load_recipe, open_run, pretrain
    from halp.use.classify import fit as classify_fit
    from halp.use.classify import predict as classify_predict
    from halp.use.cluster import cluster
    from halp.use.compare import compare
    from halp.use.estimators import FewLabelClassifier, SkeletonEncoder
    from halp.use.export import export
    from halp.use.finetune import finetune
    from halp.use.model_folder import Model, load_model, save_model
    from halp.use.search import search
    from halp.use.segment import segment
    from halp.use.stream import LiveRecognition

_HOMES = {
    "halp.clips.store": ("Store", "StoreWriter", "open_store"),
    "halp.encoders": ("build_encoder", "list_encoders"),
    "halp.errors": ("InputError",),
    "halp.clips.clip": ("Clip",),
    "halp.clips.ingest.prepare": ("prepare",),
    "halp.clips.inspect": ("inspect",),
    "halp.clips.merge": ("merge",),
    "halp.encoders.pretrained": ("PretrainedEncoder",),
    "halp.evaluation": ("Result", "evaluate", "list_protocols"),
    "halp.explorer.notebook": ("explore",),
    "halp.features.embed": ("embed", "embed_table", "prepare_for"),
    "halp.features.loading": ("load_encoder",),
    "halp.features.source": ("Source", "open_source"),
    "halp.features.table": ("FeatureTable",),
    "halp.skeleton": ("get_topology",),
    "halp.hallucinate": ("HallucinatedPositives", "halp_loss"),
    "halp.training": ("list_recipes", "load_recipe", "open_run", "pretrain"),
    "halp.use.cluster": ("cluster",),
    "halp.use.compare": ("compare",),
    "halp.use.estimators": ("FewLabelClassifier", "SkeletonEncoder"),
    "halp.use.export": ("export",),
    "halp.use.finetune": ("finetune",),
    "halp.use.model_folder": ("Model", "load_model", "save_model"),
    "halp.use.search": ("search",),
    "halp.use.segment": ("segment",),
    "halp.use.stream": ("LiveRecognition",),
}
_HOME = {name: (home, name) for home, names in _HOMES.items() for name in names}
# the words of the command line: halp classify fit, halp classify predict
_HOME |= {f"classify_{name}": ("halp.use.classify", name) for name in ("fit", "predict")}

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
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'halp' has no attribute '{name}'")
    home, original = _HOME[name]
    return getattr(importlib.import_module(home), original)


def __dir__() -> list[str]:
    return __all__
