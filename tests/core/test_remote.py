"""Addresses of fsspec: what is fetched, what is fetched again, what is refused; a real S3 server where there is
one.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from ports import free_port

import halp
from halp.cli import main
from halp.core.errors import InputError
from halp.core.remote import fetched
from halp.data.store import Store
from halp.features.collection import write_collection

OPTIONS = ("--option", "topology=kinect-v2")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("halp.engine.Engine.processes", 1)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bucket on a server of its own process."""
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    pytest.importorskip("moto.server", reason="moto's server is not installed")
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL
    )
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    keys |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_EC2_METADATA_DISABLED": "true"}
    try:
        with pytest.MonkeyPatch.context() as patch:
            for key, value in keys.items():
                patch.setenv(key, value)
            deadline = time.monotonic() + 300
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert server.poll() is None, "the server ended"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.1)
            fsspec.filesystem("s3").mkdir("clips")
            yield "s3://clips"
    finally:
        server.kill()
        server.wait()


@pytest.fixture(params=["memory", "file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An address that nobody has used."""
    if request.param == "s3":
        return f"{request.getfixturevalue('s3')}/{uuid.uuid4().hex}"
    return f"memory://{uuid.uuid4().hex}" if request.param == "memory" else (tmp_path / "far").as_uri()


def put(address: str, content: Any) -> None:
    with fsspec.open(address, "wb", auto_mkdir=True) as file:
        np.save(file, content) if isinstance(content, np.ndarray) else file.write(content)


def test_a_collection_at_an_address_is_searched_brought_up_to_date_and_holds_what_a_local_one_does(
    store: Store, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    for number in range(4):
        put(f"{place}/takes/{number}.npy", store.clip(number))
    main(["embed", "halp-base", f"{place}/takes", f"{place}/vectors", *OPTIONS])
    put(f"{place}/takes/4.npy", store.clip(4))
    main(["embed", "halp-base", f"{place}/takes", f"{place}/vectors", *OPTIONS])
    main(["embed", "halp-base", f"{place}/takes", str(tmp_path / "local"), *OPTIONS])
    assert len(halp.open_source(f"{place}/vectors")) == 5
    there, here = fetched(f"{place}/vectors"), tmp_path / "local"
    paths = [*here.glob("vectors/*"), *here.glob("shards/*")]
    assert {path.parent.name for path in paths} == {"vectors", "shards"}
    for path in paths:
        assert (there / path.relative_to(here)).read_bytes() == path.read_bytes()
    shards = sorted(path.name for path in there.glob("vectors/*"))
    assert shards == sorted(path.name for path in here.glob("vectors/*")), "old shards are gone"
    capsys.readouterr()
    found = []
    for asked, where in (
        ("2", f"{place}/vectors"),
        (f"{place}/takes/2.npy", f"{place}/vectors"),
        ("2", str(here)),
    ):
        main(["search", "halp-base", asked, "--in", where, "-k", "2", "--json", *OPTIONS])
        found.append(
            [
                (hit["name"], hit["start"], round(hit["similarity"], 2))
                for hit in json.loads(capsys.readouterr().out)
            ]
        )
    assert found[0] == found[1] == found[2]


def test_what_did_not_change_is_not_fetched_again_and_what_is_gone_goes(place: str) -> None:
    if place.startswith("file:"):
        pytest.skip("files of this machine are read where they are")
    for name, text in {"a": b"one", "b": b"two", "c": b"six"}.items():
        put(f"{place}/{name}", text)
    folder = fetched(place)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    time.sleep(1.1)  # S3 tells times in seconds; its ETag is what changes
    put(f"{place}/b", b"owt")
    fsspec.core.url_to_fs(place)[0].rm_file(fsspec.core.url_to_fs(f"{place}/c")[1])
    assert fetched(place) == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"a": b"one", "b": b"owt"}
    after = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert [name for name in after if after[name] == before[name]] == ["a"]
    single = fetched(f"{place}/a")
    assert (single.name, single.read_bytes()) == ("a", b"one")


def test_a_file_that_became_a_folder_is_fetched_and_back(place: str) -> None:
    if place.startswith("file:"):
        pytest.skip("files of this machine are read where they are")
    system, root = fsspec.core.url_to_fs(place)
    put(f"{place}/a", b"file")
    put(f"{place}/b", b"other")
    fetched(place)
    system.rm_file(f"{root}/a")
    put(f"{place}/a/inner", b"deeper")
    assert (fetched(place) / "a" / "inner").read_bytes() == b"deeper"
    system.rm(f"{root}/a", recursive=True)
    put(f"{place}/a", b"file again")
    assert (fetched(place) / "a").read_bytes() == b"file again"


def test_stores_are_opened_and_sources_prepared_from_an_address(
    store: Store, place: str, tmp_path: Path
) -> None:
    for path in store.path.iterdir():
        put(f"{place}/store/{path.name}", path.read_bytes())
    assert halp.open_store(f"{place}/store").hash == store.hash
    assert len(halp.open_source(f"{place}/store")) == len(store)
    put(f"{place}/takes/0.npy", store.clip(0))
    main(["prepare", "auto", f"{place}/takes", str(tmp_path / "made"), *OPTIONS])
    assert len(halp.open_store(tmp_path / "made")) == 1


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["prepare", "synthetic", "96", "memory://out/store"], "'memory://out/store' cannot be written"),
        (["embed", "halp-base", "HERE", "memory://out/v.npz"], "'memory://out/v.npz' cannot be written"),
        (["embed", "halp-base", "memory://nothing/at/all", "v.npz"], "nothing at 'memory://nothing/at/all'"),
        (["inspect", "memory://nothing/at/all"], "nothing at 'memory://nothing/at/all'"),
        (["inspect", "sftpx://host/store"], "'sftpx://host/store' cannot be read or written"),
        (["pretrain", "small", "--data", "HERE", "--run", "memory://run"], "'memory://run"),
    ],
)
def test_what_cannot_be_done_at_an_address_is_reported_in_one_sentence(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(os.listdir())
    with pytest.raises(SystemExit) as ended:
        main([str(store.path) if word == "HERE" else word for word in command])
    assert ended.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert set(os.listdir()) - before <= {"cache"}, "a folder called after the address"


def test_names_that_lead_outside_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    put("memory://trap/a", b"text")
    facts = dict(system.info("/trap/a"), name="/trap/../../b")
    monkeypatch.setattr(type(system), "find", lambda *given, **how: {facts["name"]: facts})
    with pytest.raises(InputError, match="points outside"):
        fetched("memory://trap")
    assert not list(tmp_path.rglob("b"))


def test_a_folder_with_other_things_is_not_taken_for_a_collection(place: str, store: Store) -> None:
    put(f"{place}/thesis.txt", b"years of work")
    source = halp.open_source(store)
    with pytest.raises(InputError, match="exists and is not a collection"):
        write_collection(place, source, "series", halp.Reading(), "halp-base")
    assert fsspec.open(f"{place}/thesis.txt").open().read() == b"years of work"


def test_without_a_cache_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALP_CACHE", "")
    with pytest.raises(InputError, match="set HALP_CACHE"):
        fetched("memory://anything")
