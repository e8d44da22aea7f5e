"""Limits of HTTP servers: how large a request may be and how long a client may take to send it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from starlette.types import Message, Receive, Send
from uvicorn.protocols.http.h11_impl import H11Protocol


class TooLarge(Exception):
    """More bytes than a request may have."""


class TooSlow(Exception):
    """The client did not send its request in time."""


class LimitedBody:
    """A body of limited size that arrives in limited time."""

    def __init__(self, receive: Receive, largest: int, patience: float) -> None:
        self._receive, self._largest, self._seen, self._whole = receive, largest, 0, False
        self._until = asyncio.get_running_loop().time() + patience

    async def __call__(self) -> Message:
        if self._whole:  # what follows is news of the connection, which takes as long as the answer
            return await self._receive()
        message = await self._next()
        if self._seen > self._largest:
            raise TooLarge
        return message

    def refusing(self, send: Send) -> Send:
        """`send` that ends a refusal only when the rest of the body has been read and dropped: a connection
        closed on a client that is still sending is reset, and the client never reads why."""
        refused = False

        async def sending(message: Message) -> None:
            nonlocal refused
            refused = refused or message.get("status", 0) >= 400
            if not refused or message.get("more_body") or "body" not in message:
                await send(message)
                return
            await send({**message, "more_body": True})
            with contextlib.suppress(TooSlow):
                while not self._whole:
                    await self._next()
            await send({"type": message["type"], "body": b""})

        return sending

    async def _next(self) -> Message:
        try:
            left = self._until - asyncio.get_running_loop().time()
            message = await asyncio.wait_for(self._receive(), max(0.0, left))
        except asyncio.TimeoutError:
            raise TooSlow from None
        self._seen += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        return message


class PatientProtocol(H11Protocol):
    """HTTP that closes connections on which the head of a request does not arrive in time."""

    patience = 10.0  # seconds
    _deadline: asyncio.TimerHandle | None = None

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.patience, self._give_up)

    def data_received(self, data: bytes) -> None:
        if self._deadline is None and not self._answering:
            self._deadline = self.loop.call_later(self.patience, self._give_up)
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self._answering:
            self._forget_deadline()

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._forget_deadline()
        super().handle_websocket_upgrade(event)

    def _give_up(self) -> None:
        if not self._answering and not self.transport.is_closing():
            self.transport.close()

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        super().connection_lost(exc)
