"""A model hub on this machine: the part of the protocol of huggingface_hub that uploads and downloads small
files.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub(ThreadingHTTPServer):
    """Files by repository and name; writing needs the word as token."""

    word = "open sesame"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[tuple[str, str], bytes] = {}
        self.asked: list[tuple[str, str]] = []  # how, and for which file
        self.misbehave: Callable[[BaseHTTPRequestHandler, bytes], None] | None = (
            None  # how it answers a GET of weights
        )

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, data: object, status: int = 200, **headers: str) -> None:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        place = self.path.split("?")[0].strip("/").split("/")
        if len(place) != 5 or place[2] != "resolve":
            return self._answer({"error": "nothing here"}, 404)
        self.server.asked.append((self.command, place[4]))
        content = self.server.files.get(("/".join(place[:2]), place[4]))
        if content is None:
            return self._answer({"error": "Entry not found"}, 404, X_Error_Code="EntryNotFound")
        if self.command == "GET" and place[4] == "model.safetensors" and self.server.misbehave is not None:
            return self.server.misbehave(self, content)
        etag = hashlib.sha256(content).hexdigest()
        return self._answer(content, ETag=f'"{etag}"', X_Repo_Commit="0" * 40)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.split("?")[0]
        if self.headers.get("Authorization") != f"Bearer {self.server.word}":
            return self._answer({"error": "Invalid credentials"}, 401)
        if path == "/api/repos/create":
            name = json.loads(body)
            return self._answer(
                {"url": f"{self.server.address}/{name.get('organization', 'me')}/{name['name']}"}
            )
        if path == "/api/validate-yaml":
            return self._answer({"errors": [], "warnings": []})
        repository = "/".join(path.split("/")[3:5])
        if "/preupload/" in path:
            asked = [one["path"] for one in json.loads(body)["files"]]
            plain = {"uploadMode": "regular", "shouldIgnore": False}
            return self._answer({"files": [{"path": name, **plain} for name in asked]})
        for line in filter(None, body.decode().splitlines()):
            entry = json.loads(line)
            if entry["key"] == "file":
                content = base64.b64decode(entry["value"]["content"])
                self.server.files[repository, entry["value"]["path"]] = content
        commit = {"commitUrl": f"{self.server.address}/{repository}/commit/{'0' * 40}", "commitOid": "0" * 40}
        return self._answer({"success": True, **commit})


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub in a thread of its own."""
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
