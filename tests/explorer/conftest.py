"""A running explorer over a small collection, and a browser to look at it with."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forked as subprocess
import numpy as np
import pytest
from use_samples import fresh_encoder

from halp.data.store import Store
from halp.encoders.pretrained import write_package


@dataclass
class Explorer:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    address: str

    @property
    def base(self) -> str:
        return self.address.split("/?")[0]

    @property
    def token(self) -> str:
        return self.address.split("token=")[1]

    def call(self, path: str, data: Any = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """Status and body of a request that carries the token, unless the headers say otherwise."""
        given = {"X-Halp-Token": self.token, "Content-Type": "application/json", **(headers or {})}
        body = data if data is None or isinstance(data, bytes) else json.dumps(data).encode()
        request = urllib.request.Request(f"{self.base}{path}", data=body, headers=given)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:  # noqa: S310
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def get(self, path: str) -> Any:
        return json.loads(self.call(f"/api/{path}")[1])

    def post(self, path: str, data: Any) -> Any:
        return json.loads(self.call(f"/api/{path}", data)[1])

    def arrays(self, path: str, data: Any = None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Facts and arrays of a binary answer."""
        body = self.call(f"/api/{path}", data)[1]
        length = int.from_bytes(body[:4], "little")
        facts = json.loads(body[4 : 4 + length])
        return facts, {
            name: (
                np.frombuffer(
                    body, "<" + one["type"], int(np.prod(one["shape"])), 4 + length + one["offset"]
                ).reshape(one["shape"])
            )
            for name, one in facts["arrays"].items()
        }

    def wait(self, condition: Callable[[dict[str, Any]], Any], seconds: float = 300) -> dict[str, Any]:
        """The state once it is as wanted."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            state = self.get("state")
            if condition(state):
                return state
            time.sleep(0.2)
        raise AssertionError(f"not reached in {seconds} s: {state}")

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(how)
        return self.process.wait(timeout=300)


@pytest.fixture(scope="session")
def package(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package") / "tiny"
    folder.mkdir()
    write_package(fresh_encoder(store), folder)
    return folder


@pytest.fixture(scope="session")
def launch(
    store: Store, package: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Explorer]]:
    pytest.importorskip("starlette", reason="the explorer needs `pip install 'halp-motion[explore]'`")
    pytest.importorskip("uvicorn", reason="the explorer needs `pip install 'halp-motion[explore]'`")
    cache = tmp_path_factory.mktemp("cache")
    running: list[Explorer] = []

    def start(
        labels: Path, *more: str, source: Path | None = None, encoder: Path | None = None, **variables: str
    ) -> Explorer:
        command = [sys.executable, "-m", "halp", "explore", str(source or store.path)]
        command += ["--encoder", str(encoder or package)]
        command += ["--labels", str(labels), "--no-browser", *more]
        own = {name: value for name, value in os.environ.items() if name != "HALP_POSE_MODEL"}
        environment = {**own, "HALP_CACHE": str(cache), "OMP_NUM_THREADS": "1", **variables}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None
        explorer = Explorer(process, process.stdout.readline().strip())
        running.append(explorer)
        explorer.wait(lambda state: state["rows"])
        return explorer

    yield start
    for explorer in running:
        if explorer.process.poll() is None:
            explorer.process.kill()
            explorer.process.wait()


@pytest.fixture(scope="session")
def explorer(launch: Callable[..., Explorer], tmp_path_factory: pytest.TempPathFactory) -> Explorer:
    """One server, with all panels, for all tests that do not end it."""
    started = launch(tmp_path_factory.mktemp("labels") / "labels.csv")
    started.post("settings", {"researcher": True})  # all panels
    return started
