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

_HOMES = {
    "halp.clips.store": ("Store", "StoreWriter", "open_store"),
    "halp.encoders": ("build_encoder", "list_encoders"),
    "halp.errors": ("InputError",),
    "halp.evaluation": ("Result", "embed", "evaluate", "list_protocols"),
    "halp.hallucinate": ("HallucinatedPositives", "halp_loss"),
    "halp.training": ("list_recipes", "load_encoder", "load_recipe", "pretrain"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "HallucinatedPositives",
    "InputError",
    "Result",
    "Store",
    "StoreWriter",
    "__version__",
    "build_encoder",
    "embed",
    "evaluate",
    "halp_loss",
    "list_encoders",
    "list_protocols",
    "list_recipes",
    "load_encoder",
    "load_recipe",
    "open_store",
    "pretrain",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'halp' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
