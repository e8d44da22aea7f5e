"""A collection of the explorer: what it keeps is checked before it is shown, and windows are searched,
counted and told.
"""

from __future__ import annotations

import csv
import io
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from reader_samples import body, write_utdmhad

from halp.cli import main
from halp.core.errors import InputError
from halp.core.progress import Bar, watchers
from halp.data.clip import Clip, Dropped
from halp.data.ingest.pipeline import Outcome, Pipeline
from halp.data.readers import Item
from halp.data.reading import Reading
from halp.data.store import Store
from halp.data.store_writer import StoreWriter
from halp.encoders.pretrained import compacted
from halp.evaluation.evaluate_run import fresh_weights
from halp.explorer.api import Api
from halp.explorer.collection import Collection
from halp.explorer.fewlabel import _verdict, assess_labels, candidates, fit_labels
from halp.explorer.layout import load_or_compute
from halp.explorer.session import Session, Settings
from halp.features.loading import load_encoder
from halp.features.look import ListedWhenRead
from halp.features.source import _reasons
from halp.skeleton import get_topology
from halp.tasks.assessment import Score
from halp.tasks.model_folder import load_model


@pytest.mark.parametrize("damage", ["noise", "shorter", "no array", "no hash"])
def test_a_cached_map_that_was_changed_is_recomputed(tmp_path: Path, damage: str) -> None:
    path, calls = tmp_path / "map.npy", []

    def places() -> np.ndarray:
        calls.append(1)
        return np.arange(6.0).reshape(3, 2)

    assert [load_or_compute(path, places).tolist() for _ in range(2)] == [[[0, 1], [2, 3], [4, 5]]] * 2
    assert len(calls) == 1, "the second time it is read"
    if damage == "no array":
        path.write_bytes(b"nothing")
    elif damage == "no hash":
        (tmp_path / "map.npy.sha256").unlink()
    else:
        np.save(path, np.full((3 if damage == "noise" else 2, 2), 9.0))
    assert load_or_compute(path, places).tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert len(calls) == 2
    assert load_or_compute(path, places).shape == (3, 2)
    assert len(calls) == 2


@pytest.fixture
def session(
    store: Store, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    """Long recordings of four clips each, cut into windows that overlap."""
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    long = tmp_path / "long"
    with StoreWriter(long, store.topology, persons=store.persons) as writer:
        for number in range(6):
            frames = np.concatenate([store.clip(4 * number + part) for part in range(4)])
            writer.add(Clip(frames, f"long {number}", extra={"fps": 30.0}))
    session = Session(Settings(long, str(package), tmp_path / "labels.csv", Reading(window=1.0, stride=0.25)))
    with session.labels:
        session.load()
        yield session


def test_hits_of_a_search_share_no_time_with_the_example_or_each_other(session: Session) -> None:
    answer = Api(session).search({"rows": [3], "k": 10})
    spans = [(hit["recording"], hit["start"], hit["stop"]) for hit in answer["hits"]]
    spans.append((int(session.collection.recording[3]), *session.collection.span(3)[1:]))
    assert len(spans) == 11
    for number, (recording, start, stop) in enumerate(spans):
        assert all(recording != other or stop <= low or high <= start for other, low, high in spans[:number])


def test_recordings_without_a_label_are_proposed_once_each(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = session.collection
    values = np.full(len(collection), -1, dtype=np.int16)
    values[collection.rows_of(2)[:2]] = 0
    few = candidates(collection, values)  # six recordings are too few to choose from
    assert len(few) == len(collection) - 2
    monkeypatch.setattr("halp.explorer.fewlabel.MANY", 5)
    rows = candidates(collection, values)
    assert sorted(collection.recording[rows].tolist()) == [0, 1, 3, 4, 5]
    assert any(candidates(collection, values, seed).tolist() != rows.tolist() for seed in range(1, 5)), (
        "by chance"
    )


def test_an_encoder_of_the_user_stands_beside_the_shipped_one_and_a_sentence_decides(
    session: Session,
) -> None:
    own = session.collection
    shipped = Collection(compacted(load_encoder("halp-base")), own.source)
    values = np.where(np.arange(len(own)) % 4 == 0, own.recording % 2, -1).astype(np.int16)
    found = {}
    for collection in (own, shipped):
        model = fit_labels(collection, values, ["a", "b"], 1)
        assert model is not None
        fresh = fresh_weights(load_encoder("halp-base")) if collection is shipped else None
        found[collection] = assess_labels(collection, values, ["a", "b"], model, fresh).assessment
    assert found[own]["shipped_name"] == "halp-base"
    assert found[own]["shipped"]["recordings"] == found[own]["encoder"]["recordings"] == 6
    assert sorted(own.beside["shipped"]) == np.flatnonzero(values >= 0).tolist()
    assert "shipped" not in found[shipped], "it is the encoder in use"
    assert 0 <= found[shipped]["untrained"]["low"] <= found[shipped]["untrained"]["high"] <= 1
    assert (own.story, shipped.story.split(".")[0]) == ("", "Trained by MoCo, not by HaLP")
    for one in found.values():
        assert one["verdict"].startswith(("Keep ", "No certain difference from "))


@pytest.mark.parametrize(
    ("raw", "shipped", "sentence"),
    [
        (0.3, 0.9, "Keep halp-base: 40 points above this encoder."),
        (0.7, 0.2, "Keep positions alone: 20 points above this encoder."),
        (0.3, 0.2, "Keep this encoder: 20 points above positions alone."),
        (0.3, 0.55, "No certain difference from halp-base yet."),
    ],
)
def test_verdict_names_the_encoder_to_keep(raw: float, shipped: float, sentence: str) -> None:
    scores = {
        name: Score(value, value - 0.1, value + 0.1, 20, "")
        for name, value in {"encoder": 0.5, "raw": raw, "shipped": shipped}.items()
    }
    assert _verdict(scores, "halp-base") == sentence


def shown_groups(session: Session) -> list[tuple[str, int]]:
    return [(one["name"], one["size"]) for one in Api(session).state({})["group"]["groups"]]


def test_groups_are_as_they_were_left_at_the_next_start_and_every_act_can_be_undone(session: Session) -> None:
    session.groups.open(session.collection)
    api, before = Api(session), [shown_groups(session)]

    def ids(*places: int) -> list[int]:
        return [session.groups.now.ids[place] for place in places]

    for action, places, more in (
        ("count", (), {"count": 6}),
        ("name", (2,), {"name": "walking"}),
        ("split", (0,), {}),
        ("merge", (1, 2), {}),
        ("name", (1,), {"name": "=both"}),
    ):
        api.groups({"action": action, "groups": ids(*places), **more})
        before.append(shown_groups(session))
    wanted = session.groups.now
    session.labels.__exit__()
    again = Session(session.settings)
    with again.labels:
        again.open(session.collection)
        assert (again.groups.now.ids, again.groups.now.names) == (wanted.ids, wanted.names)
        for expected in reversed(before[:-1]):
            Api(again).groups({"action": "undo"})
            assert shown_groups(again) == expected
        assert Api(again).groups({"action": "undo"})["group"]["undo"] is None


def test_settings_that_cannot_be_kept_change_nothing(session: Session) -> None:
    session.skip([0])
    session.set(pattern="long {n}")
    session.labels.ledger._connection.execute("PRAGMA query_only = ON")  # type: ignore[union-attr]
    for act in (lambda: session.skip([5]), lambda: session.set(pattern="{word} {n}")):
        with pytest.raises(InputError, match="nothing was changed"):
            act()
    session.labels.ledger._connection.execute("PRAGMA query_only = OFF")  # type: ignore[union-attr]
    with pytest.raises(InputError, match="no recording name matches"):
        session.set(pattern="short {n}")
    assert session.skipped == [0]
    assert (session.settings_kept, session.collection.pattern) == ({"pattern": "long {n}"}, "long {n}")


def test_table_by_recording_says_what_most_of_each_is(session: Session) -> None:
    api, collection = Api(session), session.collection
    for number, label in enumerate(("calm", "=wild")):
        rows = np.flatnonzero(np.isin(collection.recording, [2 * number, 2 * number + 1])).tolist()
        api.label({"rows": rows, "label": label})
    session.fit_now()
    lines = list(csv.DictReader(io.StringIO(api.table({"by": "recording"}).decode())))
    assert [line["recording"] for line in lines] == collection.recordings
    assert [line["label"] for line in lines] == ["calm", "calm", "'=wild", "'=wild", "", ""]  # no formula
    assert lines[0]["label share"] == "1.0"
    mean = session.model.prediction.probabilities[collection.rows_of(5)].mean(0)
    assert lines[5]["best"].lstrip("'") == session.model.classifier.classes[mean.argmax()]
    assert float(lines[5]["probability"]) == pytest.approx(mean.max(), abs=1e-4)
    assert (
        not session.model.prediction.rejected.any()
    )  # people are not known, so nothing tells what is unlike them


def test_command_of_the_page_fits_a_model_to_the_labels_that_were_given(session: Session) -> None:
    api, collection = Api(session), session.collection
    for number in range(4):
        api.label({"rows": collection.rows_of(number)[:3].tolist(), "label": "ab"[number % 2]})
    command = shlex.split(api.state({})["command"])
    assert command[:3] == ["halp", "classify", "fit"]
    assert command[-4:] == ["--window", "1", "--stride", "0.25"]
    command[command.index("model")] = str(session.labels.path.with_name("model"))
    main(command[1:])
    values = session.label_column().values
    assert sum(load_model(session.labels.path.with_name("model")).labelled.values()) == (values >= 0).sum()


def test_second_start_reads_no_recording_until_one_is_shown_and_a_changed_file_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "recordings"
    folder.mkdir()
    for number in range(8):
        write_utdmhad(folder, f"a1_s{number + 1}_t1", body(12 + number, seed=number))
    read: list[str] = []
    work = Pipeline.work

    def watched(self: Pipeline, items: Sequence[Item]) -> list[Outcome]:
        read.extend(item.path.name for item in items)
        return work(self, items)

    monkeypatch.setattr(Pipeline, "work", watched)

    def start() -> tuple[Collection, int]:
        read.clear()
        session = Session(Settings(folder, labels=tmp_path / "labels.csv"))
        session.load()
        before = len(read)
        session.collection.packed(3)
        return session.collection, before

    first, number = start()
    assert number == 8
    second, number = start()
    assert number == 0, "vectors, rows and maps are kept"
    assert len(read) <= 2, "one frame to learn what can be shown, and the recording that is shown"
    assert second.packed(3)[0].tolist() == first.packed(3)[0].tolist()
    assert second.table.rows.tolist() == first.table.rows.tolist()
    assert second.up_axis == first.up_axis
    write_utdmhad(folder, "a1_s4_t1", body(30, seed=40))
    third, number = start()
    assert number == 1, "the others are kept"
    assert third.packed(3)[0].shape[0] == 30
    assert not np.allclose(third.table.vectors[3], first.table.vectors[3])
    write_utdmhad(folder, "a1_s8_t2", body(20, seed=41))
    assert (len(start()[0]), start()[1]) == (9, 0)
    (folder / "a1_s8_t2_skeleton.mat").unlink()
    assert (len(start()[0]), start()[1]) == (8, 0)


def test_a_recording_that_cannot_be_read_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "recordings"
    folder.mkdir()
    for number in range(4):
        write_utdmhad(folder, f"a1_s{number + 1}_t1", body(12 + number, seed=number))
    (folder / "a1_s9_t1_skeleton.mat").write_bytes(b"nothing")
    session = Session(Settings(folder, labels=tmp_path / "labels.csv"))
    session.load()
    assert sum("was left out" in str(one.message) for one in recwarn) == 1
    assert sum("was left out" in one for one in session.warnings) == 1


def test_a_folder_that_changed_is_told_of_every_time_it_is_asked_for() -> None:
    items = ListedWhenRead(2, lambda: (None, [1, 2, 3]))  # type: ignore[arg-type, return-value]
    for _ in range(2):
        with pytest.raises(InputError, match="the folder changed while it was read"):
            items[0]


def test_a_folder_of_as_many_but_other_files_is_not_taken_for_the_same() -> None:
    items = ListedWhenRead(2, lambda: (None, [1, 3]), lambda found: found == [1, 2])  # type: ignore[arg-type, return-value]
    with pytest.raises(InputError, match="the folder changed while it was read"):
        items[0]


def test_every_kind_of_left_out_recording_has_its_reason() -> None:
    drops = [Dropped(name, f"'{name}.bvh': the file is empty") for name in "ab"]
    drops.append(Dropped("c", "'c.bvh', line 3: 4 numbers instead of 6"))
    assert _reasons(drops) == f"'a': {drops[0].reason}; 'c': {drops[2].reason}"


def test_recordings_are_counted_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "recordings").mkdir()
    for number in range(8):
        write_utdmhad(tmp_path / "recordings", f"a1_s{number + 1}_t1", body(12, seed=number))
    session = Session(Settings(tmp_path / "recordings"))
    seen: list[tuple[str, int, int]] = []

    def watch(bar: Bar) -> None:
        session._watch(bar)
        seen.append((session.progress.title, session.progress.done, session.progress.total))

    watchers.append(watch)
    try:
        session.load()
    finally:
        watchers.remove(watch)
    assert [part for part in seen if part[0] == "reading"] == [("reading", done, 8) for done in range(9)]
    totals = [total for title, _, total in seen if title == "embedding"]
    assert totals == sorted(totals)  # parts of the work do not start the count again


def test_maps_and_groups_that_are_kept_need_neither_torch_nor_scikit_learn_nor_pandas(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", get_topology("kinect-v2"), persons=1) as writer:
        for number in range(8):
            frames = np.random.default_rng(number).normal(size=(12, 1, 25, 3)).astype(np.float32)
            writer.add(Clip(frames, f"clip_{number}", subject=number, extra={"fps": 30.0}))
    script = (
        "import sys; from pathlib import Path; from halp.explorer.session import Session, Settings\n"
        "import halp.explorer.server\n"
        "kept = Session(Settings(Path(sys.argv[1]), encoder='halp-base'))._read()\n"
        "kept.lay_out('pca'), kept.lay_out('tsne'), kept.group()\n"
        "print(*sys.modules)"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "store")],
            env=os.environ | {"HALP_CACHE": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout.split()
        for _ in range(2)  # the first embeds
    ]
    slow = {"torch", "lightning_fabric", "pandas", "sklearn", "scipy", "matplotlib", "onnx"}
    assert not slow & set(told[1])
