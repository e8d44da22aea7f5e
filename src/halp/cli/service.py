"""Commands for products: the service, and the cache."""

from __future__ import annotations

from pathlib import Path

from tyro.conf import Positional

from halp.cli.app import app, show, table_of
from halp.core.errors import missing_extra


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
    max_bytes: int = 16_777_216,
) -> None:
    """Serve models over HTTP: /predict, /embed, /search, /stream (WebSocket), /health, /metrics.

    Prints its address. Requests under way are answered before it ends.

    Examples:
        halp serve models/mine
        halp serve models/mine models/other --index recordings --port 9000
        halp serve models/mine --host 0.0.0.0 --keys keys.txt --workers 4

    Args:
        models: folders of `halp classify fit` or `halp finetune`; a request names one by its folder, or gets
            the first.
        index: a store or recordings that /search looks through.
        host: where to listen; anything but this machine needs --keys.
        port: 0 takes a free one.
        keys: a file with an API key per line (default: the environment variable HALP_API_KEYS).
        workers: processes; each loads the models.
        deadline: seconds that an answer may take.
        max_bytes: of a request.
    """
    try:
        from halp.serve.server import api_keys
        from halp.serve.server import serve as run
    except ImportError as error:
        raise missing_extra(f"the service needs {error.name}", "serve") from error
    run(
        models,
        index=index,
        host=host,
        port=port,
        keys=api_keys(keys),
        workers=workers,
        body=max_bytes,
        deadline=deadline,
    )


cache = app.group(
    "cache", "The user's cache folder: vectors of sources, hashes of files and stores that were checked."
)


@cache.command(name="show")
def cache_show(*, json: bool = False) -> None:
    """Show the contents of the cache folder.

    Example: halp cache show

    Args:
        json: print as JSON.
    """
    from halp.features.cache import cache_use

    use = cache_use()
    rows = [{"what": kind, "entries": use.entries[kind], "MB": use.bytes[kind] / 1e6} for kind in use.entries]
    show(use.to_json(), table_of(rows, digits=1), json=json)


@cache.command(name="clear")
def cache_clear(*, json: bool = False) -> None:
    """Remove halp's files from the cache folder; they are recomputed when needed.

    Example: halp cache clear

    Args:
        json: print what was removed as JSON.
    """
    from halp.features.cache import clear_cache

    removed = clear_cache()
    said = (
        f"removed: {sum(removed.entries.values())} entries, {sum(removed.bytes.values()) / 1e6:.1f} MB, of"
        f" {removed.folder}"
    )
    show(removed.to_json(), json=json, said=said)
