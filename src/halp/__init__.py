"""Learn human actions from skeletons without labels: hallucinated latent positives and the systems around them.

The public names below are loaded when they are first used, so that `halp --help` does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from halp._version import __version__

if TYPE_CHECKING:
    from halp.clips.store import Store, StoreWriter, open_store
    from halp.encoders import build_encoder, list_encoders
    from halp.errors import InputError
    from halp.evaluation import Result, embed, evaluate, list_protocols
    from halp.hallucinate import HallucinatedPositives, halp_loss
    from halp.training import list_recipes, load_encoder, load_recipe, pretrain
    from halp.use.classify import fit as classify_fit
    from halp.use.classify import predict as classify_predict
    from halp.use.cluster import cluster
    from halp.use.compare import compare
    from halp.use.estimators import FewLabelClassifier, SkeletonEncoder
    from halp.use.export import export
    from halp.use.finetune import finetune
    from halp.use.model_folder import load_model, save_model
    from halp.use.search import search
    from halp.use.segment import segment

_HOMES = {
    "halp.clips.store": ("Store", "StoreWriter", "open_store"),
    "halp.encoders": ("build_encoder", "list_encoders"),
    "halp.errors": ("InputError",),
    "halp.evaluation": ("Result", "embed", "evaluate", "list_protocols"),
    "halp.hallucinate": ("HallucinatedPositives", "halp_loss"),
    "halp.training": ("list_recipes", "load_encoder", "load_recipe", "pretrain"),
    "halp.use.cluster": ("cluster",),
    "halp.use.compare": ("compare",),
    "halp.use.estimators": ("FewLabelClassifier", "SkeletonEncoder"),
    "halp.use.export": ("export",),
    "halp.use.finetune": ("finetune",),
    "halp.use.model_folder": ("load_model", "save_model"),
    "halp.use.search": ("search",),
    "halp.use.segment": ("segment",),
}
_HOME = {name: (home, name) for home, names in _HOMES.items() for name in names}
# the words of the command line: halp classify fit, halp classify predict
_HOME |= {f"classify_{name}": ("halp.use.classify", name) for name in ("fit", "predict")}

__all__ = [
    "FewLabelClassifier",
    "HallucinatedPositives",
    "InputError",
    "Result",
    "SkeletonEncoder",
    "Store",
    "StoreWriter",
    "__version__",
    "build_encoder",
    "classify_fit",
    "classify_predict",
    "cluster",
    "compare",
    "embed",
    "evaluate",
    "export",
    "finetune",
    "halp_loss",
    "list_encoders",
    "list_protocols",
    "list_recipes",
    "load_encoder",
    "load_model",
    "load_recipe",
    "open_store",
    "pretrain",
    "save_model",
    "search",
    "segment",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'halp' has no attribute '{name}'")
    home, own = _HOME[name]
    return getattr(importlib.import_module(home), own)


def __dir__() -> list[str]:
    return __all__
