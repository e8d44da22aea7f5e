"""Old name of `halp.augment` and `halp.streams`."""

from halp.augment import *  # noqa: F403
from halp.streams import STREAMS, derive, split_stream  # noqa: F401
