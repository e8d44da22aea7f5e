"""Start the service: one socket, one or several processes, a graceful shutdown."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvicorn
import websockets  # noqa: F401  (uvicorn imports it after the address is printed)
from uvicorn.supervisors import Multiprocess

from halp.core.errors import InputError
from halp.core.http_limits import PatientProtocol
from halp.core.progress import log
from halp.serve.app import Limits, make_app
from halp.serve.service import Service, name_of

_SETTINGS = "HALP_SERVE_SETTINGS"  # what worker processes are told
KEYS = "HALP_API_KEYS"


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of a worker."""

    models: tuple[str, ...]
    index: str | None = None
    keys: tuple[str, ...] = ()
    body: int = Limits.body
    deadline: float = Limits.deadline
    shared: str | None = None


def app_of(settings: WorkerSettings) -> Any:
    """The application of a process."""
    limits = Limits(body=settings.body, deadline=settings.deadline)
    service = Service(settings.models, settings.index, settings.shared)
    return make_app(service, frozenset(settings.keys), limits)


def worker_app() -> Any:
    """The application of a worker process, from its environment."""
    stated = json.loads(os.environ[_SETTINGS])
    settings = WorkerSettings(**{**stated, "models": tuple(stated["models"]), "keys": tuple(stated["keys"])})
    try:
        return app_of(settings)
    except InputError as error:
        raise SystemExit(f"halp: {error}") from None


def api_keys(file: Path | None) -> tuple[str, ...]:
    """Keys of a file, one per line, or of the environment variable `HALP_API_KEYS`, separated by commas."""
    try:
        text = (
            os.environ.get(KEYS, "").replace(",", "\n") if file is None else file.read_text(encoding="utf-8")
        )
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the keys of '{file}' cannot be read ({error}); write one key per line") from error
    keys = tuple(line.strip() for line in text.splitlines() if line.strip())
    if short := next((key for key in keys if len(key) < 16), None):
        raise InputError(f"the API key '{short[:4]}…' is shorter than 16 characters; choose a longer one")
    return keys


def serve(
    models: Sequence[str | os.PathLike[str]],
    *,
    index: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    keys: tuple[str, ...] = (),
    workers: int = 1,
    body: int = Limits.body,
    deadline: float = Limits.deadline,
) -> None:
    """Serve models over HTTP and WebSocket until SIGINT or SIGTERM; requests under way are answered first.

    Parameters
    ----------
    models : sequence of path
        Folders of `halp.classify_fit` or `halp.finetune`; a request names one by its folder, or gets the
        first.
    index : path, optional
        A store or recordings that /search looks through.
    host, port
        Where to listen; the address is printed on standard output. Anything but this machine needs `keys`.
    keys : tuple of str
        API keys; none means no authentication.
    workers : int
        Processes; each loads the models.
    body, deadline
        Bytes that a request may have, and seconds that an answer may take.
    """
    if not keys and not _loopback(host):
        raise InputError(
            f"'{host}' can be reached by others, and there are no API keys; give --keys FILE or set {KEYS},"
            " or use 127.0.0.1"
        )
    if workers < 1 or deadline <= 0 or body < 1:
        raise InputError("workers, deadline and the largest body must be above 0")
    settings = WorkerSettings(
        tuple(str(Path(model).resolve()) for model in models), index, keys, body, deadline
    )
    with _listener(host, port) as listener, tempfile.TemporaryDirectory(prefix="halp-serve-") as shared:
        several = workers > 1
        app = "halp.serve.server:worker_app" if several else app_of(settings)
        if several:
            Service(settings.models, settings.index)  # what is wrong with them is said once, and here
            copies = tuple(str(_copied(model, shared)) for model in settings.models)
            os.environ[_SETTINGS] = json.dumps({**asdict(settings), "models": copies, "shared": shared})
        config = uvicorn.Config(
            app,
            factory=several,
            workers=workers,
            http=PatientProtocol,
            ws="websockets-sansio",
            ws_max_size=8 << 20,
            ws_ping_timeout=300,  # the answer to a ping comes after the frames that a waiting client sent before
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=max(1, round(deadline)),
            timeout_worker_healthcheck=60,
            backlog=2048,
        )
        address = listener.getsockname()
        sys.stdout.write(f"http://{f'[{address[0]}]' if ':' in address[0] else address[0]}:{address[1]}\n")
        sys.stdout.flush()
        names = ", ".join(Path(model).name for model in settings.models)
        log.info(f"serving {names}; Ctrl-C ends")
        if several:
            Supervisor(config, sockets=[listener]).run()
            return
        for name in (signal.SIGINT, signal.SIGTERM):
            # the server raises them again once it has ended in good order
            signal.signal(name, lambda *_: None)
        uvicorn.Server(config).run(sockets=[listener])


def _copied(model: str, folder: str) -> Path:
    """A copy of a model, so that workers started later load the same model."""
    try:
        return Path(shutil.copytree(model, Path(folder) / "models" / name_of(model)))
    except OSError as error:
        raise InputError(
            f"model '{model}' cannot be copied for the workers; free space in '{folder}' or set TMPDIR"
        ) from error


class Supervisor(Multiprocess):
    """Starts workers, and replaces those that died."""

    def terminate_all(self) -> None:
        for listener in self.sockets:
            listener.close()  # whoever comes now is refused at once, not kept waiting until the end
        super().terminate_all()

    def keep_subprocess_alive(self) -> None:
        for process in self.processes:
            process.child_conn.close()  # the worker's own end: one that dies while it is asked ends the wait
        super().keep_subprocess_alive()


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except (OSError, OverflowError) as error:
        listener.close()
        raise InputError(f"{host}:{port} cannot be used ({error}); choose another --port") from error
    listener.set_inheritable(True)
    return listener
