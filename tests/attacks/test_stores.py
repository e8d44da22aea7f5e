"""Damaged, changed and hostile stores: each ends in one sentence, and nobody goes on with numbers that are
not the store's.
"""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clip_samples import as_json_store, make_store, reseal

from halp.core.errors import InputError
from halp.data import store_check
from halp.data.inspect import inspect
from halp.data.splits import FewLabels, Fold, Split, Within
from halp.data.store import open_store
from halp.data.store_writer import add_split
from halp.reports.store_page import store_page

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 2**70, 1.5, float("nan"), "", "x", "\ud800", [], [[]], [1, "a"], {}, {"a": []}, "../..", "<b>",
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_store(tmp_path_factory.mktemp("attack") / "store", clips=6).path
    base = Split("own", "subject", (1, 3))
    for rule in (
        base,
        FewLabels("few", base, 0.5),
        Fold("cv", 2, 0, "subject"),
        Within("in", base, "camera", 1),
    ):
        try:
            add_split(path, rule)
        except InputError:
            continue
    (path / "manifest.json").write_text(
        json.dumps({"dropped": [{"name": "a", "reason": "b"}], "repaired": []})
    )
    return path


def use(path: Path) -> str:
    """Open, count and draw a store; anything but success and InputError goes through."""
    try:
        store = open_store(path)
        store_page(inspect(store)).save(path.parent / "page.html")
        for name in store.splits:
            store.split(name)
    except InputError as error:
        message = str(error)
        assert message
        assert "\n" not in message
        return message
    return ""


def places(data: Any) -> list[tuple[Any, ...]]:
    """Paths to every value inside nested JSON, long lists by their first and last entries."""
    if isinstance(data, dict):
        inner = list(data.items())
    elif isinstance(data, list):
        inner = list(enumerate(data))
        inner = inner if len(inner) < 5 else [*inner[:2], inner[-1]]
    else:
        return [()]
    return [(), *((key, *rest) for key, value in inner for rest in places(value))]


def changed(data: Any, place: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    data = copy.deepcopy(data)
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    change(inner, place[-1])
    return data


def mutations(data: Any, generator: random.Random, number: int) -> list[Any]:
    """The same JSON with one value removed or replaced by something odd, at every place."""
    found = []
    for place in places(data):
        if not place:
            continue
        found.append(changed(data, place, lambda inner, key: inner.pop(key)))
        for odd in generator.sample(ODD, number):
            found.append(changed(data, place, lambda inner, key, odd=odd: inner.__setitem__(key, odd)))
    return found


@pytest.mark.parametrize("name", ["store.json", "index.json", "manifest.json"])
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.slow
def test_every_changed_field_gives_a_store_or_one_sentence(
    name: str, sealed: bool, whole: Path, tmp_path: Path
) -> None:
    path, base = tmp_path / "store", tmp_path / "base"
    shutil.copytree(whole, base)
    whole = as_json_store(base) if name == "index.json" else base
    shutil.copytree(whole, path)
    original = (path / name).read_bytes()
    refused = 0
    for data in mutations(json.loads(original), random.Random(name), 3 if sealed else 1):
        (path / name).write_text(json.dumps(data))
        if sealed:
            forge(path)
        refused += bool(use(path))
        for file in ("store.json", name):
            shutil.copyfile(whole / file, path / file)
    assert refused >= (3 if name == "manifest.json" else 40), refused


def forge(path: Path) -> None:
    """What somebody does who wants a changed store to be believed; where the store is beyond that it stays as
    it is.
    """
    try:
        reseal(path)
        header = json.loads((path / "store.json").read_text())
        for rule in header["splits"].values():
            rule.pop("hash", None)
        header.pop("header_hash")
        (path / "store.json").write_text(json.dumps(header))
    except (TypeError, KeyError, AttributeError, ValueError):
        return


@pytest.mark.slow
def test_every_flipped_bit_of_the_frames_header_and_of_the_small_files_is_refused(
    whole: Path, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    shutil.copytree(whole, path)
    (path / "manifest.json").unlink()
    generator, expected = random.Random(0), content(path)
    for name, size in (("frames.npy", 128), ("store.json", None), ("index.parquet", None)):
        original = (path / name).read_bytes()
        bits = range(8 * len(original[:size]))
        for bit in bits if size else generator.sample(bits, 250):
            damaged = bytearray(original)
            damaged[bit // 8] ^= 1 << bit % 8
            (path / name).write_bytes(damaged)
            # white space of JSON and of the header means nothing; everything else is noticed
            assert use(path) or content(path) == expected, (name, bit)
        (path / name).write_bytes(original)


def content(path: Path) -> list[Any]:
    store = open_store(path)
    return [
        store.header,
        {name: column.tolist() for name, column in store.columns.items()},
        store.frames.tobytes(),
    ]


def test_a_flipped_bit_anywhere_in_the_frames_is_noticed(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(whole, path)
    original = (path / "frames.npy").read_bytes()
    for position in random.Random(1).sample(range(128, len(original)), 60):
        damaged = bytearray(original)
        damaged[position] ^= 1
        (path / "frames.npy").write_bytes(damaged)
        assert "fingerprint differs" in use(path)


def test_frames_changed_in_place_after_the_store_was_used_are_noticed(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    open_store(store.path)
    frames = np.lib.format.open_memmap(store.path / "frames.npy", mode="r+")
    frames[3] += 1
    frames.flush()
    del frames
    with pytest.raises(InputError, match="fingerprint differs"):
        open_store(store.path)


def test_a_settled_store_is_read_once_and_again_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    path = make_store(tmp_path / "store").path
    past = time.time() - 100
    for name in ("frames.npy", "index.parquet"):
        os.utime(path / name, (past, past))
    # the time of the last change of the inode cannot be set back, so "settled" is
    monkeypatch.setattr(store_check, "_SETTLED", -1.0)
    open_store(path)
    record = next((tmp_path / "cache" / "verified").iterdir())
    before = (path / "frames.npy").read_bytes()
    (path / "frames.npy").write_bytes(before[:-4] + b"\0\0\0\0")
    os.utime(path / "frames.npy", (past, past))  # same size, same time of change: the inode's own time tells
    with pytest.raises(InputError, match="fingerprint differs"):
        open_store(path)
    record.write_text("no record")
    store_check._known.clear()
    (path / "frames.npy").write_bytes(before)
    assert open_store(path).hash


def test_the_record_saves_reading_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(store_check, "_SETTLED", -1.0)
    path = make_store(tmp_path / "store").path
    calls = []
    real = store_check.content_hash
    monkeypatch.setattr(store_check, "content_hash", lambda *given: calls.append(given) or real(*given))
    store_check._known.clear()
    for _ in range(3):
        open_store(path)
    store_check._known.clear()
    open_store(path)
    assert len(calls) <= 1


def test_a_store_without_a_place_for_records_is_opened_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_store(tmp_path / "store").path
    (tmp_path / "file").write_text("")
    before = sorted(one.name for one in path.iterdir())
    for place in ("", str(tmp_path / "file" / "below")):
        monkeypatch.setenv("HALP_CACHE", place)
        store_check._known.clear()
        assert open_store(path).hash
    assert sorted(one.name for one in path.iterdir()) == before


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_named_by_clip_and_frame(value: float, tmp_path: Path) -> None:
    path = make_store(tmp_path / "store").path
    store = open_store(path)
    clip, name = 3, str(store.names[3])
    at = int(store.offsets[clip])
    del store
    frames = np.lib.format.open_memmap(path / "frames.npy", mode="r+")
    frames[at + 1, 0, 4, 2] = value
    frames.flush()
    del frames
    reseal(path)
    with pytest.raises(InputError, match=f"clip '{name}', frame 1 holds a number that is not finite"):
        open_store(path)


def test_stores_without_their_seal_are_refused(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store").path
    header = json.loads((path / "store.json").read_text())
    del header["header_hash"]
    (path / "store.json").write_text(json.dumps(header))
    with pytest.raises(InputError, match="changed after it was saved"):
        open_store(path)
