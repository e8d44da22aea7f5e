"""The explorer's server: serves a session and the page over HTTP on 127.0.0.1."""

from __future__ import annotations

import json
import secrets
import socket
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from halp.core.errors import InputError
from halp.core.progress import console
from halp.explorer.api import ACTING, ASSETS, LOOKING, Api, answer, asset
from halp.explorer.guard import Guard, PatientProtocol, TooLarge, TooSlow
from halp.explorer.ledger import Locked
from halp.explorer.session import Session, Settings


def _endpoint(api: Api, name: str) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        try:
            given: Any = dict(request.query_params)
            if request.method == "POST":
                given = json.loads(await request.body() or b"{}")
            result = await run_in_threadpool(answer, api, name, given)
        except InputError as error:
            return JSONResponse({"error": str(error)}, 503 if isinstance(error, Locked) else 400)
        except (ValueError, RecursionError):
            return JSONResponse({"error": "this is not JSON"}, 400)
        except TooLarge:
            return JSONResponse({"error": "the request is too large"}, 413)
        except TooSlow:
            return JSONResponse({"error": "the request took too long"}, 408)
        if isinstance(result, Path):
            return FileResponse(result)  # whole, or the range that is asked for
        if isinstance(result, bytes):
            return Response(result, media_type="application/octet-stream")
        return JSONResponse(result)

    return respond


def make_app(session: Session, token: str, port: int) -> Guard:
    """The application with its guard."""
    api = Api(session)
    routes = [Route(f"/api/{name}", _endpoint(api, name), methods=["GET"]) for name in LOOKING]
    routes += [Route(f"/api/{name}", _endpoint(api, name), methods=["POST"]) for name in ACTING]

    def page(name: str, kind: str) -> Route:
        async def send(request: Request) -> Response:
            return Response(asset(name), media_type=kind)

        return Route("/" if name == "index.html" else f"/{name}", send)

    return Guard(Starlette(routes=routes + [page(name, kind) for name, kind in ASSETS.items()]), token, port)


def serve(settings: Settings, *, port: int = 0, browser: bool = True) -> Session:
    """Serve the explorer until Ctrl-C and print its address. The session may still be busy afterwards."""
    if not settings.source.exists():
        raise InputError(f"there is nothing at '{settings.source}'; check the path of the source")
    token = secrets.token_urlsafe(24)
    session = Session(settings)
    with socket.socket() as listener, session.labels:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(128)  # whoever follows the address at once waits a moment
        except (OSError, OverflowError) as error:
            raise InputError(f"port {port} cannot be used ({error}); choose another with --port") from error
        port = listener.getsockname()[1]
        address = f"http://127.0.0.1:{port}/?token={token}"
        sys.stdout.write(address + "\n")
        sys.stdout.flush()
        console.print(f"labels go to {settings.label_file}; Ctrl-C ends", highlight=False, markup=False)
        server = make_server(make_app(session, token, port), port, _Server)
        server.session, server.address = session, address if browser else ""
        server.run(sockets=[listener])
    if session.failure is not None:
        raise session.failure
    return session


def make_server(app: Any, port: int, kind: type[uvicorn.Server] = uvicorn.Server) -> Any:
    """uvicorn with short timeouts and no Server header."""
    return kind(
        uvicorn.Config(
            app,
            host="127.0.0.1",
            port=port,
            http=PatientProtocol,
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=2,
        )
    )


class _Server(uvicorn.Server):
    """Uvicorn that starts the session when it listens, and ends when the source cannot be read."""

    session: Session
    address: str

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.session.start()
        if self.address:
            await run_in_threadpool(webbrowser.open, self.address)

    async def on_tick(self, counter: int) -> bool:
        if self.session.failure is not None:
            self.should_exit = True
        return await super().on_tick(counter)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            super().run(sockets)
        except KeyboardInterrupt:
            pass
        finally:
            self.session.stop()
