"""Packages travel to a hub and back unchanged; what does not fit stays outside. The hub is a server on this
machine.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import forked as subprocess
import pytest
from tasks.hub_server import Hub, running_hub

from halp.core.errors import InputError
from halp.tasks.export import pull, push

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with running_hub() as server:
        for name, value in {
            "HF_ENDPOINT": server.address,
            "HF_TOKEN": server.word,
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HOME": str(tmp_path / "hf"),
        }.items():
            monkeypatch.setenv(name, value)
        yield server


def halp_command(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "halp", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=300, check=False)


def test_a_package_goes_to_the_hub_and_comes_back(hub: Hub, package: Path, tmp_path: Path) -> None:
    address = push(package, "me/small")
    assert address.startswith(f"{hub.address}/me/small")
    assert {name for _, name in hub.files} == {"config.json", "model.safetensors", "README.md"}
    back = pull("me/small", tmp_path / "back")
    for path in package.iterdir():
        assert (back / path.name).read_bytes() == path.read_bytes()
    assert {path.name for path in back.iterdir()} == {path.name for path in package.iterdir()}
    with pytest.raises(InputError, match="exists already"):
        pull("me/small", tmp_path / "back")


def test_what_is_damaged_on_the_hub_leaves_nothing_here(hub: Hub, package: Path, tmp_path: Path) -> None:
    push(package, "me/small")
    weights = bytearray(hub.files["me/small", "model.safetensors"])
    weights[-1] ^= 1
    hub.files["me/small", "model.safetensors"] = bytes(weights)
    with pytest.raises(InputError, match=r"model\.safetensors"):
        pull("me/small", tmp_path / "back")
    assert not [path for path in tmp_path.iterdir() if "back" in path.name]


def test_a_file_too_large_for_a_package_is_not_downloaded(
    hub: Hub, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(package, "me/small")
    monkeypatch.setattr("halp.tasks.export.LARGEST_WEIGHTS", (package / "config.json").stat().st_size)
    with pytest.raises(InputError, match=r"'model\.safetensors' of 'me/small' has .* at most"):
        pull("me/small", tmp_path / "back")
    assert not [path for path in tmp_path.iterdir() if "back" in path.name]
    assert ("GET", "model.safetensors") not in hub.asked


def endless(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    """More than was declared, as long as anybody listens."""
    handler.send_response(200)
    handler.end_headers()
    with contextlib.suppress(OSError):
        for _ in range(1000):
            handler.wfile.write(content + bytes(1 << 16))


def compressed(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Encoding", "gzip")
    handler.end_headers()
    handler.wfile.write(gzip.compress(content))


def slow(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    handler.send_response(200)
    handler.end_headers()
    with contextlib.suppress(OSError):
        for byte in content:
            handler.wfile.write(bytes([byte]))
            time.sleep(0.05)


def short(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(content[:100])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (endless, "longer than the"),
        (compressed, "is compressed"),
        (slow, "too slowly"),
        (short, "ended after 100"),
    ],
)
def test_a_server_that_sends_something_else_than_it_declared_is_refused(
    hub: Hub, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, words: str
) -> None:
    push(package, "me/small")
    hub.misbehave = answer
    monkeypatch.setattr("halp.tasks.export.PATIENCE", 1)
    monkeypatch.setattr("halp.tasks.export.SLOWEST", 1e9)
    with pytest.raises(InputError, match=words):
        pull("me/small", tmp_path / "back")
    assert not [path for path in tmp_path.iterdir() if "back" in path.name]


def test_rights_names_and_absence_are_reported_in_one_sentence(
    hub: Hub, package: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="OWNER/NAME"):
        push(package, "small")
    with pytest.raises(InputError, match="me/nothing"):
        pull("me/nothing", tmp_path / "back")
    hub.word = "another"
    with pytest.raises(InputError, match="HF_TOKEN"):
        push(package, "me/small")
    assert not hub.files
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="not an encoder package"):
        push(tmp_path, "me/small")


def test_a_hub_that_does_not_answer_is_reported_in_one_sentence(hub: Hub, package: Path) -> None:
    hub.shutdown()
    hub.server_close()
    with pytest.raises(InputError, match="check the name, the network"):
        push(package, "me/small")


@pytest.mark.slow
def test_the_commands_push_and_pull(hub: Hub, package: Path, tmp_path: Path) -> None:
    pushed = halp_command("push", package, "me/small")
    assert pushed.returncode == 0, pushed.stderr
    pulled = halp_command("pull", "me/small", tmp_path / "back")
    assert pulled.returncode == 0, pulled.stderr
    assert (tmp_path / "back" / "config.json").read_bytes() == (package / "config.json").read_bytes()
    assert halp_command("pull", "me/other", tmp_path / "other").returncode == 2
