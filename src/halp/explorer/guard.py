"""Checks of every request to the explorer: host, origin, token, size and time.

The server listens on 127.0.0.1 only; that alone does not keep out other pages in the same browser or other
programs of the same machine. A request must name this server (Host), must not come from another page (Origin,
Sec-Fetch-Site), and under
`/api/` has to carry the token of the printed address.
"""

from __future__ import annotations

import secrets
from collections.abc import MutableMapping
from urllib.parse import parse_qs

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from halp.core.http_limits import LimitedBody, PatientProtocol, TooLarge, TooSlow  # noqa: F401  (the server takes them from here)

LARGEST_REQUEST = 4 << 20  # bytes of a request: a lasso around a million rows
PATIENCE = PatientProtocol.patience  # seconds that a client has to send its request

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src"
        " 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
    "cache-control": "no-store",
}


class Guard:
    """Wraps an application; refuses requests that do not come from its own page."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        body = LimitedBody(receive, LARGEST_REQUEST, PATIENCE)
        respond = body.refusing(_with_security_headers(send))
        problem = self._problem(scope, headers)
        if problem is not None:
            status, text = problem
            await JSONResponse({"error": text}, status)(scope, body, respond)
            return
        await self.app(scope, body, respond)

    def _problem(self, scope: Scope, headers: MutableMapping[str, str]) -> tuple[int, str] | None:
        if headers.get("host", "") not in self.hosts:
            return 421, "this server answers to 127.0.0.1 only"
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.hosts}:
            return 403, "requests from other pages are refused"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return 403, "requests from other pages are refused"
        if scope["path"].startswith("/api/"):
            try:
                query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=50)
            except ValueError:
                return 400, "a request has up to 50 fields"
            given = headers.get("x-halp-token") or query.get("token", [""])[0]
            if not secrets.compare_digest(given.encode(), self.token.encode()):
                return 403, "the token is missing or wrong; open the address that `halp explore` printed"
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > LARGEST_REQUEST:
            return 413, f"a request has up to {LARGEST_REQUEST} bytes"
        if scope["method"] == "POST" and not headers.get("content-type", "").startswith("application/json"):
            return 415, "send JSON"
        return None


def _with_security_headers(send: Send) -> Send:
    """Add security headers to every answer."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", []), *own]}
        await send(message)

    return sending
