"""Time limits of connections, with a server in this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

uvicorn = pytest.importorskip("uvicorn", reason="the extra halp-motion[serve] is not installed")
client = pytest.importorskip("websockets.sync.client", reason="websockets is not installed")


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Sends every text of a WebSocket back, and answers requests."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})
        return
    while (message := await receive())["type"] != "websocket.disconnect":
        accepts = message["type"] == "websocket.connect"
        await send({"type": "websocket.accept"} if accepts else {**message, "type": "websocket.send"})


@pytest.fixture
def port() -> Iterator[int]:
    from halp.core.http_limits import PatientProtocol

    class Impatient(PatientProtocol):
        patience = 2.0

    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(echo, http=Impatient, ws="websockets-sansio", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(60)


def test_a_stream_outlives_the_time_that_a_request_may_take(port: int) -> None:
    with client.connect(f"ws://127.0.0.1:{port}/") as stream:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as idle:
            assert idle.recv(1) == b""  # closed without a request; the stream is older than that connection
        stream.send("still there")
        assert stream.recv(timeout=60) == "still there"


def test_the_head_of_a_second_request_has_to_arrive_in_time(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        assert line.recv(4096).split()[1] == b"200"
        line.sendall(b"GET /")
        line.settimeout(0.05)
        for _ in range(1000):  # a byte now and then does not keep it open
            try:
                line.sendall(b"s")
                if line.recv(4096) == b"":
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
    raise AssertionError("the connection stayed open")
