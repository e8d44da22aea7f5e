"""The application: routes over a `Service`, keys, limits and deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

from anyio.to_thread import current_default_thread_limiter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from halp.core.errors import InputError, check_choice
from halp.core.http_limits import LimitedBody, TooLarge, TooSlow
from halp.serve.schema import OPERATIONS, SearchAnswer, openapi, parse
from halp.serve.service import Busy, Served, Service
from halp.tasks.live import LONGEST_LINE, MOST_BAD, LiveRecognition, parse_frame

THREADS = 4  # that prepare and answer; each keeps some 15 MB
OPEN = {"/health", "/openapi.json"}  # answered without a key


@dataclass(frozen=True)
class Limits:
    """Limits of the service: bytes of a request, seconds to send and to answer it, live connections."""

    body: int = 16 << 20
    patience: float = 10.0
    deadline: float = 30.0
    streams: int = 256


class Refused(Exception):
    """A request that gets a status other than 200."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def make_app(service: Service, keys: frozenset[str] = frozenset(), limits: Limits | None = None) -> Any:
    """The application of a service; `keys` are the API keys of which a request has to carry one."""
    limits = limits or Limits()

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = THREADS
        shared = asyncio.create_task(service.metrics.keep())
        yield
        shared.cancel()
        service.close()

    layouts = {name: served.model.encoder.topology for name, served in service.models.items()}
    document = openapi(bool(keys), layouts, service.searches)

    async def described(_: Request) -> Response:
        return JSONResponse(document)

    async def health(_: Request) -> Response:
        return JSONResponse(asdict(service.health()))

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(service.metrics.text(), media_type="text/plain; version=0.0.4")

    routes: list[Any] = [
        Route("/openapi.json", described),
        Route("/health", health),
        Route("/metrics", metrics),
        WebSocketRoute("/stream", stream_route(service, keys, limits)),
    ]
    routes += [Route(path, _posted(service, path, limits), methods=["POST"]) for path in ANSWERS]
    return Gate(Starlette(routes=routes, lifespan=lifespan), service, keys, limits)


class Gate:
    """Count every request, refuse those without a key, and limit bodies in size and time."""

    def __init__(self, app: Any, service: Service, keys: frozenset[str], limits: Limits) -> None:
        self.app, self.service, self.keys, self.limits = app, service, keys, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def counted(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        body = LimitedBody(receive, self.limits.body, self.limits.patience)
        path = scope["path"] if scope["path"] in {*OPERATIONS, *OPEN, "/metrics"} else "other"
        try:
            if self.keys and scope["path"] not in OPEN and not authorised(scope, self.keys):
                refusal = JSONResponse(
                    {"error": "an API key is missing or wrong"}, 401, {"WWW-Authenticate": "Bearer"}
                )
                await refusal(scope, body, body.refusing(counted))
            else:
                await self.app(scope, body, body.refusing(counted))
        finally:
            self.service.metrics.request(path, status, time.perf_counter() - began)


def authorised(scope: Scope, keys: frozenset[str]) -> bool:
    """Whether a request has one of the keys: `Authorization: Bearer KEY` or `X-API-Key: KEY`."""
    headers = dict(scope["headers"])
    scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
    given = headers.get(b"x-api-key") or (bearer.strip() if scheme.lower() == b"bearer" else b"")
    return sum(hmac.compare_digest(given, key.encode()) for key in keys) > 0  # all of them are compared


def _posted(service: Service, path: str, limits: Limits) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        try:
            if (
                request.headers.get("content-type", "").partition(";")[0].strip().lower()
                != "application/json"
            ):
                raise Refused(415, "send application/json")
            body = await request.body()
            return JSONResponse(await asyncio.wait_for(_answer(service, path, body), limits.deadline))
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except InputError as error:
            status, text = 400, str(error)
        except Refused as error:
            status, text = error.status, str(error)
        except TooLarge:
            status, text = 413, f"a request may have {limits.body:,} bytes"
        except TooSlow:
            status, text = 408, f"a request must be sent within {limits.patience:g} seconds"
        except Busy:
            status, text = 503, "too many clips are waiting; try again later"
        except asyncio.TimeoutError:
            status, text = 504, f"there was no answer within {limits.deadline:g} seconds"
        headers = {"Retry-After": "1"} if status == 503 else {}
        headers |= {"Connection": "close"} if status in (408, 413) else {}
        return JSONResponse({"error": text}, status, headers)

    return respond


async def _answer(service: Service, path: str, body: bytes) -> dict[str, Any]:
    """The answer to a request; all but the encoding is computed in threads."""
    asked, served, clip = await run_in_threadpool(_asked, service, path, body)
    vector = None if clip is None else await served.batcher.vector(clip)
    return await run_in_threadpool(lambda: asdict(ANSWERS[path](service, served, asked, vector)))


def _asked(service: Service, path: str, body: bytes) -> tuple[Any, Served, Any]:
    """A request, its model, and its clip ready for the encoder; no clip if nobody is seen."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError("the body is not JSON") from None
    kind: Any = OPERATIONS[path][0]
    asked = parse(kind, data)
    if path == "/search":
        if asked.model not in (None, service.first.name):
            raise InputError(f"the collection was embedded by '{service.first.name}'; leave out the model")
        service.search(None, asked.k)  # what cannot be searched is refused before anything is computed
    served = service.model(asked.model)
    return asked, served, served.prepare(asked.points, asked.topology)


#: Path → what is answered for a vector, or nobody.
ANSWERS: dict[str, Callable[[Service, Served, Any, Any], Any]] = {
    "/predict": lambda service, served, asked, vector: served.answer(vector),
    "/embed": lambda service, served, asked, vector: served.embedded(vector, asked.compact),
    "/search": lambda service, served, asked, vector: SearchAnswer(service.search(vector, asked.k)),
}


def stream_route(
    service: Service, keys: frozenset[str], limits: Limits
) -> Callable[[WebSocket], Awaitable[None]]:
    """`/stream?fps=30`: a message per frame in, an answer per stride out; streams are encoded together.

    Where answers come later than strides, `policy=drop` (the default) leaves windows out and says how many;
    `policy=wait` reads no further frame before the answer is sent, so that the client has to wait.
    """

    async def respond(socket: WebSocket) -> None:
        if keys and not authorised(socket.scope, keys):
            await socket.close(4401, "an API key is missing or wrong")
            return
        if service.metrics.streams >= limits.streams:
            await socket.close(1013, "too many streams; try again later")
            return
        await socket.accept()
        service.metrics.streams += 1
        try:
            await LiveSocket(service, socket).run()
        except WebSocketDisconnect:
            pass
        except InputError as error:
            with contextlib.suppress(RuntimeError, WebSocketDisconnect):
                await socket.send_json({"error": str(error)})
                await socket.close(1008)
        finally:
            service.metrics.streams -= 1

    return respond


class LiveSocket:
    """Frames of one socket: their window, and the answer that is being computed."""

    def __init__(self, service: Service, socket: WebSocket) -> None:
        asked = socket.query_params
        for name in asked:
            check_choice("parameter", name, ("fps", "window", "stride", "topology", "model", "policy"))
        self.socket, self.service = socket, service
        self.served = service.model(asked.get("model"))
        self.waits = check_choice("policy", asked.get("policy", "drop"), ("drop", "wait")) == "wait"
        self._numbers = {
            name: _number(name, asked[name]) for name in ("fps", "window", "stride") if name in asked
        }
        self._topology = asked.get("topology")
        self.dropped, self.bad, self.frames = 0, 0, 0
        self._under_way: asyncio.Task[None] | None = None

    async def run(self) -> None:
        live = await run_in_threadpool(
            lambda: LiveRecognition(self.served.model, topology=self._topology, **self._numbers)
        )
        try:
            while True:
                text = await self.socket.receive_text()
                frame = self._frame(text, live)
                if not live.take(frame):
                    continue
                if self._under_way is not None and not self._under_way.done() and not self.waits:
                    self.dropped += 1
                    self.service.metrics.count("dropped_windows")
                    continue
                span, clip = live.span, await run_in_threadpool(live.window_frames)
                self._under_way = asyncio.create_task(self._answer(span, clip))
                if self.waits:
                    await self._under_way
        finally:
            if self._under_way is not None:
                self._under_way.cancel()

    def _frame(self, text: str, live: LiveRecognition) -> Any:
        self.frames += 1
        self.service.metrics.count("frames")
        try:
            if len(text) > LONGEST_LINE:
                raise ValueError(f"longer than {LONGEST_LINE:,} characters")
            return parse_frame(text, live.layout)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            self.bad += 1
            if self.bad == self.frames >= MOST_BAD:
                raise InputError(
                    f"none of the first {self.frames} messages is a frame ({str(error)[:120]})"
                ) from None
            return None

    async def _answer(self, span: tuple[float, float], clip: Any) -> None:
        began = time.perf_counter()
        try:
            vector = None if clip is None else await self.served.batcher.vector(clip)
        except Busy:
            self.dropped += 1
            self.service.metrics.count("dropped_windows")
            return
        answer = asdict(await run_in_threadpool(self.served.answer, vector))
        times = {"start": round(span[0], 3), "end": round(span[1], 3)}
        spent = {"milliseconds": round(1000 * (time.perf_counter() - began), 3), "dropped": self.dropped}
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await self.socket.send_json({**times, **answer, **spent})


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{name}={text[:40]} is not a number") from None
