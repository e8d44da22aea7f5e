"""The server answers its own page and nobody else."""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked as subprocess
import pytest
from explorer.conftest import Explorer

from halp.data.store import Store


def send_raw(explorer: Explorer, head: str) -> bytes:
    """The status of a request as it is written here, host, token and type added."""
    host = explorer.base.removeprefix("http://")
    with socket.create_connection(("127.0.0.1", int(host.split(":")[1])), timeout=300) as line:
        rest = f"Host: {host}\r\nX-Halp-Token: {explorer.token}\r\nContent-Type: application/json\r\n\r\n"
        line.sendall((head + rest).encode())
        return line.recv(65536).split()[1]


def test_address_is_local_and_carries_a_token(explorer: Explorer) -> None:
    assert explorer.address.startswith("http://127.0.0.1:")
    assert len(explorer.token) >= 24


@pytest.mark.parametrize("path", ["state", "pulse", "clips?rows=0", "nothing", "../labels", "table"])
def test_without_the_token_nothing_is_answered(explorer: Explorer, path: str) -> None:
    for headers in ({"X-Halp-Token": ""}, {"X-Halp-Token": explorer.token[:-1] + "x"}):
        assert 400 <= explorer.call(f"/api/{path}", headers=headers)[0] < 500


def test_token_is_also_taken_from_the_address(explorer: Explorer) -> None:
    assert explorer.call(f"/api/pulse?token={explorer.token}", headers={"X-Halp-Token": ""})[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "{host}"},  # no browser sends it without a scheme
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_pages_are_refused_even_with_the_token(explorer: Explorer, headers: dict[str, str]) -> None:
    host = explorer.base.removeprefix("http://")
    headers = {name: word.replace("{host}", host) for name, word in headers.items()}
    for path in ("/", "/api/pulse"):
        status, body = explorer.call(path, headers=headers)
        assert status in (403, 421)
        assert b"<" not in body


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/static/app.js",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/app.js/../../session.py",
        "/api/..%2f..%2fsession.py",
    ],
)
def test_no_path_reaches_the_file_system(explorer: Explorer, path: str) -> None:
    assert send_raw(explorer, f"GET {path} HTTP/1.1\r\n") == b"404"


def test_oversized_bodies_are_refused_before_they_are_sent(explorer: Explorer) -> None:
    for length in ("5000000", "-1", "1e3", "9" * 40):
        assert send_raw(explorer, f"POST /api/search HTTP/1.1\r\nContent-Length: {length}\r\n") in (
            b"413",
            b"400",
        )
    assert explorer.call("/api/pulse")[0] == 200


def test_a_body_in_chunks_cannot_grow_without_end(explorer: Explorer) -> None:
    host = explorer.base.removeprefix("http://")
    head = f"POST /api/search HTTP/1.1\r\nHost: {host}\r\nX-Halp-Token: {explorer.token}\r\n"
    head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(host.split(":")[1])), timeout=300) as line:
        line.sendall(head.encode())
        block = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        for _ in range(64):
            line.sendall(block)
        assert line.recv(100).split()[1] == b"413"
    assert explorer.call("/api/pulse")[0] == 200


def test_slow_clients_are_let_go(explorer: Explorer) -> None:
    host = explorer.base.removeprefix("http://")
    body = f"POST /api/search HTTP/1.1\r\nHost: {host}\r\nX-Halp-Token: {explorer.token}\r\n"
    body += "Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
    lines = [socket.create_connection(("127.0.0.1", int(host.split(":")[1])), timeout=300) for _ in range(3)]
    for line, start in zip(lines, ("", "GET /api/pu", body)):
        line.sendall(start.encode())
    for line in lines:
        answer = line.recv(4096)  # the server ends the wait: with nothing, or with 408
        assert answer == b"" or answer.split()[1] == b"408"
        line.close()


def test_many_fields_in_an_address_are_refused(explorer: Explorer) -> None:
    assert explorer.call("/api/pulse?" + "&".join(f"a{number}=1" for number in range(60)))[0] == 400


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("search", {"rows": [-1]}),
        ("search", {"rows": [10**9]}),
        ("search", {"rows": ["1"]}),
        ("search", {"rows": "x"}),
        ("search", {}),
        ("search", []),
        ("search", b"{"),
        ("search", b"[" * 100_000),
        ("search", {"spans": [{"recording": 0, "start": "a", "stop": 1}]}),
        ("label", {"rows": [0], "label": 5}),
        ("label", {"rows": [0], "label": "x" * 1000}),
        ("label", {"spans": [{"recording": 0, "start": 2, "stop": 1}], "label": "x"}),
        ("label", b'{"spans": [{"recording": 0, "start": NaN, "stop": 1}], "label": "x"}'),
        ("compare", {"rows": [0]}),
        ("groups", {"action": "split", "groups": [99]}),
        ("groups", {"action": "explode", "groups": [0]}),
        ("label", {"spans": [1], "label": "x"}),
        ("label", {"spans": ["a"], "label": "x"}),
        ("search", {"spans": [[]]}),
        ("label", {"rows": [0], "class": 10**6}),
        ("label", b'{"rows": [0], "label": "\\ud83d"}'),
        ("label", {"rows": [0], "label": "x", "client": 5, "based": 0, "number": 1}),
        ("rename", {"class": "one", "name": "x"}),
        ("move", {"event": 10**6, "start": 0, "stop": 1}),
        ("undo", {"act": -1}),
    ],
)
def test_wrong_requests_are_answered_in_a_sentence(explorer: Explorer, path: str, data: Any) -> None:
    explorer.wait(lambda state: state["group"])
    status, body = explorer.call(f"/api/{path}", data)
    assert status == 400
    assert json.loads(body)["error"]


def test_every_answer_keeps_the_page_to_itself(explorer: Explorer) -> None:
    import urllib.request

    with urllib.request.urlopen(explorer.address) as answer:  # noqa: S310
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_frames_and_places_come_as_bytes(explorer: Explorer, store: Store) -> None:
    facts, arrays = explorer.arrays("clips?rows=0,5")
    assert [clip["row"] for clip in facts["clips"]] == [0, 5]
    joints = arrays["1"]
    assert joints.shape[0] == store.lengths[5]
    assert joints.max() == 32767 or joints.min() == -32767  # fills its box


def test_groups_are_named_merged_and_split(explorer: Explorer) -> None:
    explorer.wait(lambda state: state["group"])

    def act(action: str, *groups: int, **more: Any) -> list[dict[str, Any]]:
        answer = explorer.post("groups", {"action": action, "groups": groups, **more})
        return answer["group"]["groups"]

    made = act("count", count=4)
    ids = [group["id"] for group in made]
    assert len(set(ids)) == 4
    made = act("name", ids[1], name="kicks")
    assert [group["id"] for group in made] == ids
    assert made[1]["name"] == "kicks"
    sizes = [group["size"] for group in made]
    merged = act("merge", ids[1], ids[2])
    assert sorted(group["size"] for group in merged) == sorted([sizes[0], sizes[1] + sizes[2], sizes[3]])
    assert {group["id"] for group in merged} & set(ids) == {ids[0], ids[3]}  # other members, another id
    for gone in (ids[1], ids[2]):
        answer = explorer.post("label", {"group": gone, "label": "kicks"})
        assert "changed in another tab" in answer["error"]
    split = act("split", ids[0])
    assert len(split) == 4
    assert sum(group["size"] for group in split) == sum(sizes)


def test_ctrl_c_ends_it_cleanly_and_frees_the_labels(launch: Callable[..., Explorer], tmp_path: Path) -> None:
    explorer = launch(tmp_path / "labels.csv")
    assert explorer.stop(signal.SIGINT) == 0
    assert not list(tmp_path.glob(".*lock"))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(["nowhere"], "nothing at 'nowhere'"), ([".", "--encoder", "nobody"], "no encoder 'nobody'")],
)
def test_unreadable_files_are_reported_in_one_sentence(
    tmp_path: Path, arguments: list[str], text: str
) -> None:
    command = [
        sys.executable,
        "-m",
        "halp",
        "explore",
        *arguments,
        "--no-browser",
        "--labels",
        str(tmp_path / "x.csv"),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert ended.returncode == 2
    assert text in ended.stderr
    assert "Traceback" not in ended.stderr
