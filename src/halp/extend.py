"""The way in for components of your own: register them here, and recipes and commands know them by name.

    # my_plugin.py, used as: halp pretrain my.toml --plugin my_plugin.py --data STORE
    from halp.extend import register_encoder

    @register_encoder("tiny", TinySettings)              # my.toml: [encoder] name = "tiny", width = 16
    def tiny(settings, topology, persons): ...           # nn.Module with output_size, (B, T, P, V, C) → (B,
    output_size)

An installed package announces its module by an entry point of the group `halp.plugins` and needs no
`--plugin`. The systems of
`halp.zoo` are written against this module alone (and `halp.losses`, `halp.sphere`, `halp.hallucinate`): each
is an example.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from halp.augment import Policy, Step, ViewSettings, ViewShape, build_policy, register_augmentation
from halp.augment.base import AugmentationBase, at_frames
from halp.augment.paper import rotation_matrices
from halp.core.config import CheckedSettings, limited
from halp.core.distributed import gather, sum_over_processes
from halp.core.errors import InputError, check_choice
from halp.core.initialisation import initialise
from halp.core.registry import load_plugin
from halp.core.sampling import generator
from halp.encoders import EncoderSettings, build_encoder, centre_joint, check_joints, register_encoder
from halp.encoders.gru import joints_by_frame
from halp.encoders.recurrence import GRUStack
from halp.encoders.transformer import attend, persons_present
from halp.methods import (
    BuildContext,
    Method,
    StepContext,
    StepOutput,
    StreamBatch,
    register_method,
    register_term,
)
from halp.methods.base import Metrics, uncount_calls
from halp.methods.core_terms import ContrastTerm, LateTerm
from halp.methods.halp import SharedPositives
from halp.methods.predictive import Predicted, PredictiveMethod, WholeBatch, check_frames, refuse_chunks
from halp.methods.queue import KeyQueue
from halp.methods.term import (
    MapVariants,
    Mixes,
    StreamBatches,
    TermOutput,
    Views,
    require_queue,
    require_streams,
)
from halp.methods.two_views import TwoViewMethod, TwoViewSettings
from halp.skeleton import Topology, get_topology, register_topology
from halp.skeleton.streams import derive

if TYPE_CHECKING:
    from halp.data.clip import Clip
    from halp.data.readers import Info, Item, register_reader
    from halp.evaluation import register_protocol
    from halp.evaluation.protocol import Predictions, ProtocolContext

# what only readers and protocols need is loaded when asked for
_LATER = {
    "Clip": "halp.data.clip",
    "Info": "halp.data.readers",
    "Item": "halp.data.readers",
    "Predictions": "halp.evaluation.protocol",
    "ProtocolContext": "halp.evaluation.protocol",
    "register_protocol": "halp.evaluation",
    "register_reader": "halp.data.readers",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'halp.extend' has no attribute '{name}'")


__all__ = [
    "AugmentationBase",
    "BuildContext",
    "CheckedSettings",
    "Clip",
    "ContrastTerm",
    "EncoderSettings",
    "GRUStack",
    "Info",
    "InputError",
    "Item",
    "KeyQueue",
    "LateTerm",
    "MapVariants",
    "Method",
    "Metrics",
    "Mixes",
    "Policy",
    "Predicted",
    "Predictions",
    "PredictiveMethod",
    "ProtocolContext",
    "SharedPositives",
    "Step",
    "StepContext",
    "StepOutput",
    "StreamBatch",
    "StreamBatches",
    "TermOutput",
    "Topology",
    "TwoViewMethod",
    "TwoViewSettings",
    "ViewSettings",
    "ViewShape",
    "Views",
    "WholeBatch",
    "at_frames",
    "attend",
    "build_encoder",
    "build_policy",
    "centre_joint",
    "check_choice",
    "check_frames",
    "check_joints",
    "derive",
    "gather",
    "generator",
    "get_topology",
    "initialise",
    "joints_by_frame",
    "limited",
    "load_plugin",
    "persons_present",
    "refuse_chunks",
    "register_augmentation",
    "register_encoder",
    "register_method",
    "register_protocol",
    "register_reader",
    "register_term",
    "register_topology",
    "require_queue",
    "require_streams",
    "rotation_matrices",
    "sum_over_processes",
    "uncount_calls",
]
