"""The way in for components of your own: register them here, and recipes and commands know them by name.

    # my_plugin.py, used as: halp pretrain my.toml --plugin my_plugin.py --data STORE
    from halp.extend import register_encoder

    @register_encoder("tiny", TinySettings)              # my.toml: [encoder] name = "tiny", width = 16
    def tiny(settings, topology, persons): ...           # nn.Module with output_size, (B, T, P, V, C) → (B, output_size)

An installed package announces its module by an entry point of the group `halp.plugins` and needs no `--plugin`.
"""

from halp.augment import Step, ViewShape, register_augmentation
from halp.clips.readers import register_reader
from halp.distributed import gather
from halp.encoders import EncoderSettings, build_encoder, register_encoder
from halp.errors import InputError
from halp.evaluation import register_protocol
from halp.methods import BuildContext, Method, StepContext, StepOutput, StreamBatch, register_method, register_term
from halp.plugins import load_plugin

__all__ = [
    "BuildContext",
    "EncoderSettings",
    "InputError",
    "Method",
    "Step",
    "StepContext",
    "StepOutput",
    "StreamBatch",
    "ViewShape",
    "build_encoder",
    "gather",
    "load_plugin",
    "register_augmentation",
    "register_encoder",
    "register_method",
    "register_protocol",
    "register_reader",
    "register_term",
]
