"""Learn human actions from skeletons without labels: hallucinated latent positives and the systems around them."""

from halp._version import __version__
from halp.clips.store import Store, StoreWriter, open_store
from halp.encoders import build_encoder, list_encoders
from halp.errors import InputError
from halp.evaluation import Result, embed, evaluate, list_protocols
from halp.hallucinate import HallucinatedPositives, halp_loss
from halp.training import list_recipes, load_encoder, load_recipe, pretrain

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
