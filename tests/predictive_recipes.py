"""The recipes of predictive methods and what makes them run in a moment; tests of all of them share this
list.
"""

from __future__ import annotations

COMMON = (
    "epochs=3",
    "batch_size=16",
    "views.frames=12",
    "saving.checkpoint_epochs=1",
    "saving.log_every=1",
    "split=xsub",
)
TRANSFORMER = ("encoder.frames=12", "encoder.layers=1", "encoder.heads=2")
GRU = ("encoder.hidden=4", "encoder.layers=1")
# recipe → settings that make it small, and settings of a fork, whose decoder is another one
RECIPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "small-masked": (
        (*TRANSFORMER, "encoder.patch=4", "encoder.width=8", "masked.decoder_heads=2"),
        ("masked.decoder_layers=2",),
    ),
    "small-gl-transformer": ((*TRANSFORMER, "encoder.width=2"), ("displacement.centre_weight=0.5",)),
    "small-h-transformer": (
        ("encoder.width=8", "encoder.feed=4", "encoder.frames=12"),
        ("motion-direction.hide=none",),
    ),
    "small-longt-gan": ((*GRU, "longt-gan.width=5", "longt-gan.discriminator=4"), ("longt-gan.layers=2",)),
    "small-ms2l": ((*GRU, "ms2l.head=6", "ms2l.projection=4"), ("ms2l.decoder_layers=3",)),
    "small-predict-cluster": (GRU, ("predict-cluster.decoder=fixed-weights",)),
    "small-sebirenet": (
        ("encoder.units=2", "disentanglement.frames=1", "batch_size=32"),
        ("disentanglement.removed=2",),
    ),
}
