"""Commands for products: the service, and the cache."""

from __future__ import annotations

from pathlib import Path

from tyro.conf import Positional

from halp.cli.app import app
from halp.core.errors import InputError


@app.command
def serve(
    models: Positional[tuple[str, ...]],
    *,
    index: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    keys: Path | None = None,
    workers: int = 1,
    deadline: float = 30.0,
    largest: int = 16_777_216,
) -> None:
    """Serve models over HTTP: /predict, /embed, /search, /stream (WebSocket), /health, /metrics, /openapi.json.

    Prints its address. Requests under way are answered before it ends.

    Examples:
        halp serve models/mine
        halp serve models/mine models/other --index recordings --port 9000
        halp serve models/mine --host 0.0.0.0 --keys keys.txt --workers 4

    Args:
        models: folders of `halp classify fit` or `halp finetune`; a request names one by its folder, or gets the first.
        index: a store or recordings that /search looks through.
        host: where to listen; anything but this machine needs --keys.
        port: 0 takes a free one.
        keys: a file with an API key per line (default: the environment variable HALP_API_KEYS).
        workers: processes; each loads the models.
        deadline: seconds that an answer may take.
        largest: bytes that a request may have.
    """
    try:
        from halp.serve.server import api_keys
        from halp.serve.server import serve as run
    except ImportError as error:
        raise InputError(
            f"the service needs {error.name}; install it with `pip install 'halp-motion[serve]'`"
        ) from error
    run(
        models, index=index, host=host, port=port, keys=api_keys(keys), workers=workers, body=largest, deadline=deadline
    )
