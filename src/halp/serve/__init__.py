"""The service: models over HTTP and WebSocket, with batching across requests. `halp serve` starts it."""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """`halp.serve` names this package once anything in it is imported, and the verb always."""

    def __call__(self, *args: Any, **keywords: Any) -> None:
        from halp.serve.server import serve

        serve(*args, **keywords)


sys.modules[__name__].__class__ = _Callable
