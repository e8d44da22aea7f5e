"""Groups, comparison, timelines and live answers, and their pages in a real browser."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import forked as subprocess
import numpy as np
import pytest

import halp
from halp.cli import main
from halp.core.errors import InputError
from halp.data.arrays import store_from_arrays
from halp.data.normalise import normalise
from halp.data.store import Store
from halp.data.windows import WindowSettings
from halp.encoders.pretrained import PretrainedEncoder
from halp.features.encode import embed_frames
from halp.skeleton import Topology, get_topology
from halp.tasks.classify import fit, predict
from halp.tasks.cluster import Clustering, Clusters, cluster, group_vectors, silhouette
from halp.tasks.compare import compare, joint_distances
from halp.tasks.heads import unit
from halp.tasks.live import LONGEST_LINE, Frame, FrameReader, LiveRecognition
from halp.tasks.model_folder import Model, save_model
from halp.tasks.search import SearchResults
from halp.tasks.segment import Timeline, segment, timeline_cutting
from halp.tasks.segments import prediction_json

FEW = ("wave", "kick", "sit down")


@pytest.fixture(scope="session")
def few(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Clips of three classes."""
    rows = [i for i in range(len(store)) if store.class_names[store.labels[i]] in FEW]
    return store_from_arrays(
        tmp_path_factory.mktemp("few") / "store",
        [store.clip(i) for i in rows],
        topology=store.topology,
        labels=[FEW.index(store.class_names[store.labels[i]]) for i in rows],
        names=[str(store.names[i]) for i in rows],
        class_names=FEW,
        normalisation=store.normalisation,
    )


@pytest.fixture(scope="session")
def model(encoder: PretrainedEncoder, few: Store) -> Model:
    return fit(encoder, few, kind="prototypes", progress=False)


@pytest.mark.parametrize("answer", [Timeline, SearchResults, Clustering])
def test_an_answer_is_printed_without_network_and_vectors(answer: type[Any]) -> None:
    printed = {each.name for each in fields(answer) if each.repr}
    assert printed.isdisjoint({"encoder", "table"})
    assert {"encoder", "table"} <= {each.name for each in fields(answer)}


def test_groups_are_found_and_counted() -> None:
    draw = np.random.default_rng(0)
    centres = 4 * draw.normal(size=(4, 10))
    kinds = np.repeat(np.arange(4), [40, 30, 20, 10])
    vectors = (centres[kinds] + 0.3 * draw.normal(size=(100, 10))).astype(np.float32)
    found = group_vectors(vectors)
    assert found.sizes.tolist() == [40, 30, 20, 10]
    assert all(len(set(kinds[found.group == group])) == 1 for group in range(4))
    assert max(found.silhouettes, key=lambda count: found.silhouettes[count]) == 4
    assert [found.group[row] for row in found.typical] == [0, 1, 2, 3]
    assert group_vectors(vectors, 2).sizes.sum() == 100
    assert group_vectors(vectors[:1]).sizes.tolist() == [1]
    with pytest.raises(InputError, match="cannot make 101 groups"):
        group_vectors(vectors, 101)


def test_silhouette_of_one_group_or_of_clips_all_alone_is_zero() -> None:
    rows = unit(np.random.default_rng(1).normal(size=(6, 5)))
    assert silhouette(rows, np.zeros(6, dtype=np.int64)) == silhouette(rows, np.arange(6)) == 0
    assert silhouette(rows, np.arange(6) % 2) != 0


def test_recordings_compared_with_themselves_do_not_differ(encoder: PretrainedEncoder, store: Store) -> None:
    clip = np.array(store.clip(0))
    same = compare(encoder, clip, clip)
    assert (same.pairs[:, 0] == same.pairs[:, 1]).all()
    assert same.distance.max() < 1e-5
    assert np.nanmax(same.joints) < 1e-4
    assert same.stretches == []


def test_slower_recording_is_aligned_to_the_faster(encoder: PretrainedEncoder, store: Store) -> None:
    index = int(np.argmax(store.lengths))
    clip = np.array(store.clip(index), dtype=np.float64)
    length = len(clip)
    # the same movement, slow at first and fast later
    place = (np.linspace(0, 1, 3 * length // 2) ** 1.6) * (length - 1)
    below = np.minimum(place.astype(int), length - 2)
    share = (place - below)[:, None, None, None]
    slower = (1 - share) * clip[below] + share * clip[below + 1]
    made = compare(encoder, clip.astype(np.float32), slower.astype(np.float32), fps=30.0)
    wrong = np.abs(made.pairs[:, 0] - place[made.pairs[:, 1]])
    straight = np.abs(made.pairs[:, 1] * 2 / 3 - place[made.pairs[:, 1]])
    assert wrong.mean() < 0.6 * straight.mean()
    assert made.times()[1][-1] == pytest.approx((len(slower) - 1) / 30)


def test_difference_is_found_where_it_was_made(encoder: PretrainedEncoder, store: Store) -> None:
    clip = np.array(store.clip(int(np.argmax(store.lengths))))
    changed = clip.copy()
    wrist = store.topology.index("wrist_left")
    first, last = len(clip) // 2, len(clip) // 2 + 15
    changed[first:last, 0, wrist] += 1.5
    made = compare(encoder, clip, changed)
    assert made.stretches
    worst = made.stretches[0]
    assert worst.more["joints"][0] == "wrist_left"
    assert first - 4 <= worst.start <= worst.stop <= last + 4
    assert made.to_json()["joints"][0]["joint"] == "wrist_left"


def test_joint_distances_equal_a_loop_and_know_what_is_missing() -> None:
    topology = get_topology("kinect-v1")
    draw = np.random.default_rng(0)
    one, other = (draw.normal(size=(5, 1, len(topology), 3)).astype(np.float32) for _ in range(2))
    other[2, 0, 7] = 0
    pairs = np.array([[0, 1], [3, 2]])
    found = joint_distances(one, other, pairs, topology)
    centre = topology.index(topology.centre)

    def size(frames: np.ndarray) -> float:
        bones = [
            np.linalg.norm(frame[child] - frame[parent])
            for frame in frames[:, 0]
            for child, parent in topology.bones
            if frame[child].any() and frame[parent].any()
        ]
        return float(np.mean(bones))

    for row, (i, j) in enumerate(pairs):
        for v in range(len(topology)):
            a = (one[i, 0, v] - one[i, 0, centre]) / size(one)
            b = (other[j, 0, v] - other[j, 0, centre]) / size(other)
            if other[j, 0, v].any():
                assert found[row, v] == pytest.approx(np.linalg.norm(a - b), rel=1e-4, abs=1e-5)
            else:
                assert np.isnan(found[row, v])


def test_an_empty_room_is_nobody_and_the_clock_keeps_running(
    model: Model, few: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = np.array(few.clip(0))[:30]
    gap = np.concatenate(
        [clip, clip, np.zeros((120, *clip.shape[1:])), clip, clip]
    )  # 2 s, 4 s of nobody, 2 s
    how = {"window": 1.0, "stride": 0.5, "fps": 30.0, "reject": "none", "progress": False}
    segments = segment(None, [gap], model=model, **how)
    empty = [one for one in segments if one.label == "nobody"]
    assert [(one.start, one.stop) for one in empty] == [(2.0, 6.0)]
    assert segments[-1].stop == 8.0
    answers = predict(model, [gap], **how)
    assert [answer.start for answer in answers] == pytest.approx(np.arange(0, 7.01, 0.5))
    assert [answer.label for answer in answers if 2 <= answer.start <= 5] == ["nobody"] * 7
    assert all(answer.more["best"] for answer in answers if answer.stop <= 2 or answer.start >= 6)


def test_timeline_follows_the_classes_of_a_long_recording(model: Model, few: Store) -> None:
    order = [int(np.flatnonzero(few.labels == label)[0]) for label in (0, 1, 2)]
    length = [int(few.lengths[i]) for i in order]
    long = np.concatenate([few.clip(i) for i in order])
    window = min(length) / 30
    found = segment(None, [long], model=model, window=window, stride=window / 4, fps=30.0, progress=False)
    assert (found[0].start, found[0].recording) == (0.0, "clip-000000")
    assert found[-1].stop == pytest.approx(len(long) / 30)
    assert {one.label for one in found} <= {*FEW, None}
    groups = segment(model.encoder, [long], window=window, fps=30.0, groups=3, progress=False)
    assert {one.label for one in groups} <= {"group 1", "group 2", "group 3"}


def test_live_answers_equal_those_of_the_same_windows_cut_afterwards(model: Model, few: Store) -> None:
    frames = np.array(few.clip(0))
    live = LiveRecognition(model, fps=30.0, window=1.0, stride=0.25)
    answers = [answer for frame in frames if (answer := live.push(frame)) is not None]
    assert len(answers) == int((len(frames) - 30) / 7.5) + 1
    encoder = model.encoder
    for answer in answers:
        first = round(answer.start * 30)
        window = normalise(frames[first : first + 30], encoder.topology, encoder.normalisation)
        found = model.classifier.predict(embed_frames(encoder, [window]))
        assert answer.score == pytest.approx(float(found.probability[0]), abs=1e-6)
        assert answer.more["best"] == model.classifier.classes[found.best[0]]
        assert answer.stop - answer.start == pytest.approx(1.0)
    gaps = np.diff([answer.stop for answer in answers])
    assert np.allclose(gaps, 0.25, atol=1 / 30)
    assert f"{len(frames)} frames, {len(answers)} answers" in live.summary()


def read(lines: list[object], topology: Topology) -> tuple[list[Frame | None], FrameReader]:
    """Frames of lines; what is not bytes is written as JSON."""
    text = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    reader = FrameReader(io.BytesIO(text), topology)
    return list(reader), reader


def test_frames_are_read_line_by_line() -> None:
    joints = (np.arange(34.0).reshape(17, 2) + 1).tolist()
    found, reader = read(
        [
            joints,
            b"",
            {"joints": [joints] * 2},
            [None, *joints[1:]],
            [[float("nan"), 1.0], *joints[1:]],
            [None, joints],
        ],
        get_topology("coco-17"),
    )
    assert [np.shape(frame) for frame in found] == [
        (1, 17, 2),
        (2, 17, 2),
        (1, 17, 2),
        (1, 17, 2),
        (2, 17, 2),
    ]
    assert np.array_equal(found[0][0], joints)
    assert not found[2][0, 0].any()
    assert not found[3][0, 0].any()
    assert not found[4][0].any()
    assert reader.bad == 0


def test_nobody_is_a_frame_and_a_bad_line_costs_a_line() -> None:
    joints = (np.arange(34.0).reshape(17, 2) + 1).tolist()
    empty = [None, [], [None] * 17, [[None] * 17] * 2, {"joints": None}]
    bad = [b"[", 3, {}, "x", [[1, 2]], [joints, 3], b"\xff\xfe[1", b"9" * 400, [[10**400, 1], *joints[1:]]]
    bad += [[[1e37, 1], *joints[1:]], [joints] * 101, b"[" * 100_000, b"[" + b" " * LONGEST_LINE * 2 + b"]"]
    found, reader = read([joints, *empty, *bad, joints], get_topology("coco-17"))
    assert [frame is not None for frame in found] == [True, *[False] * (len(empty) + len(bad)), True]
    assert reader.bad == len(bad)
    assert "17 joints with 2 coordinates" in reader.problem


def test_a_stream_without_a_single_frame_is_refused() -> None:
    topology = get_topology("coco-17")
    with pytest.raises(InputError, match="none of the first 30 lines is a frame: line 30 of standard input"):
        read([[[0.0, 1.0]] * 21] * 1000, topology)
    with pytest.raises(InputError, match="ended before the first frame"):
        read([], get_topology("coco-17"))
    with pytest.raises(InputError, match="none of the 2 lines is a frame"):
        read([b"x", b"y"], topology)
    late = [[[0.5, 1.0]] * 17, *[[[0.0, 1.0]] * 21] * 100]
    assert read(late, topology)[1].bad == 100  # a camera that fails later does not stop the clock


def test_a_stride_longer_than_the_window_is_refused() -> None:
    with pytest.raises(InputError, match=r"4 of every 9 s would not be seen; give a stride of up to 5 s"):
        timeline_cutting(None, WindowSettings(5.0, 9.0))


def test_nobody_is_a_state_and_the_clock_keeps_running(model: Model, few: Store) -> None:
    live = LiveRecognition(model, fps=30.0, window=1.0, stride=0.5, reject="none")
    frames = [*few.clip(0)[:30], *[None] * 60, *few.clip(0)[:30]]
    answers = [answer for frame in frames if (answer := live.push(frame)) is not None]
    assert [answer.stop for answer in answers] == pytest.approx(np.arange(1.0, 4.01, 0.5))
    states = [answer.label for answer in answers]
    assert "nobody" not in (states[0], states[-1])
    assert states[2:4] == ["nobody", "nobody"]
    empty = json.loads(json.dumps(prediction_json(answers[2]), allow_nan=False))
    assert {name: empty[name] for name in ("label", "best", "probability", "rejected", "state")} == {
        "label": None,
        "best": None,
        "probability": None,
        "rejected": None,
        "state": "nobody",
    }
    assert "state" not in answers[0].to_json()
    assert "no answer" in LiveRecognition(model, 30.0, 1.0, 0.5).summary()


def test_a_person_in_a_later_slot_is_recognised_live_as_in_the_first(model: Model, few: Store) -> None:
    def answers(slot: int) -> list[float]:
        live = LiveRecognition(model, fps=30.0, window=1.0, stride=0.5)
        frames = np.zeros((len(few.clip(0)), 4, *few.clip(0).shape[2:]), dtype=np.float32)
        frames[:, slot] = few.clip(0)[:, 0]
        return [answer.score for frame in frames if (answer := live.push(frame)) is not None]

    assert answers(3) == pytest.approx(answers(0), abs=1e-6)
    assert answers(1) == pytest.approx(answers(0), abs=1e-6)


def test_live_recognition_takes_a_folder_and_the_windows_of_its_model(model: Model, tmp_path: Path) -> None:
    cut = replace(model, cutting=WindowSettings(1.5, 0.5, 20.0))
    live = LiveRecognition(save_model(cut, tmp_path / "model"))
    assert (live.fps, live.window, live.stride) == (20.0, 1.5, 0.5)
    assert LiveRecognition(model, 30.0).window == 2.0
    with pytest.raises(InputError, match="do not state their rate"):
        LiveRecognition(model)
    with pytest.raises(InputError, match="a model is needed, not int"):
        LiveRecognition(3)


def test_live_frames_may_have_another_layout_by_name(model: Model) -> None:
    live = halp.LiveRecognition(model, 30.0, 0.1, 0.1, topology="mediapipe-33")
    person = np.random.default_rng(0).normal(size=(33, 3))
    answers = [live.push(person * size) for size in (1, 1e30, 1)]
    assert answers[-1] is not None
    assert np.isfinite(answers[-1].score)
    with pytest.raises(InputError, match="mediapipe-33"):
        live.push(person[:20])


@pytest.mark.parametrize(
    ("fps", "window"), [(1e9, 2), (30, 0), (30, 1e12), (30, float("nan")), (30_000, 900)]
)
def test_windows_that_no_stream_has_are_refused(model: Model, fps: float, window: float) -> None:
    with pytest.raises(InputError, match=r"give a number|choose a shorter window|must be"):
        LiveRecognition(model, fps, window, 0.5)


@pytest.mark.slow
def test_stream_command_answers_every_stride(model: Model, few: Store, tmp_path: Path) -> None:
    folder = save_model(model, tmp_path / "model")
    lines = "".join(json.dumps(frame.tolist()) + "\n" for frame in few.clip(0)) + "null\n]\n"
    command = [sys.executable, "-c", "from halp.cli import main; main()", "live", str(folder), "-"]
    options = ["--fps", "30", "--window", "1", "--stride", "0.5"]
    done = subprocess.run(
        [*command, *options],
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "300"},
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == (len(few.clip(0)) + 2 - 30) // 15 + 1
    assert {"start", "end", "label", "probability", "best", "rejected", "milliseconds"} <= set(answers[0])
    assert "latency" in done.stderr
    assert "1 of" in done.stderr


@pytest.mark.slow
def test_pages_run_in_a_browser_and_a_click_on_the_timeline_seeks(
    browser: Any, package: Path, model: Model, few: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, store = str(save_model(model, tmp_path / "model")), str(few.path)
    one, other = str(few.names[0]), str(few.names[1])
    pages = {
        "search": ["search", str(package), one, "--in", store, "-k", "3"],
        "segment": [
            "segment",
            folder,
            store,
            "--model",
            folder,
            "--window",
            "1",
            "--stride",
            "0.5",
            "--fps",
            "30",
        ],
        "cluster": ["cluster", str(package), store, "--groups", "3"],
        "compare": ["compare", str(package), one, other, "--in", store],
    }
    for name, command in pages.items():
        path = tmp_path / f"{name}.html"
        main([*command, "--html", str(path), "--json"])
        json.loads(capsys.readouterr().out)
        assert not re.search(r"(src|href)=.https?:", path.read_text())
        page = browser.new_page(viewport={"width": 1200, "height": 1500})
        page.goto(path.as_uri())
        page.wait_for_selector(".halp-player canvas[data-frame]")
        if name == "segment":
            frame, deadline = int(0.75 * int(few.lengths[0])), time.monotonic() + 300
            there = ",".join(f".halp-player canvas[data-frame='{frame + i}']" for i in (-1, 0, 1))
            while page.locator(there).count() == 0:  # the timeline listens some frames after it is drawn
                assert time.monotonic() < deadline
                box = page.locator(".halp-timeline canvas").first.bounding_box()
                page.mouse.click(box["x"] + box["width"] * 0.75, box["y"] + 40)
                page.wait_for_timeout(50)
            assert page.locator("button[aria-label='play (space)']").count() == 1, "it stands there"
            assert re.match(r"[\d.]+ s: ", page.locator(".halp-timeline .says").first.inner_text())
        assert page.evaluate("document.documentElement.dataset.error ?? null") is None, name
        page.close()


@pytest.mark.heavy
def test_commands_print_tables_and_files(
    package: Path, model: Model, few: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {name: tmp_path / f"{name}.csv" for name in ("cluster", "compare", "search")}
    main(["cluster", str(package), str(few.path), "--json", "--out", str(rows["cluster"])])
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert (
        sum(group["size"] for group in groups)
        == len(few)
        == len(rows["cluster"].read_text().splitlines()) - 1
    )
    assert [group["group"] for group in groups] == list(range(1, len(groups) + 1))
    main(
        [
            "search",
            str(package),
            str(few.names[0]),
            "--in",
            str(few.path),
            "-k",
            "3",
            "--out",
            str(rows["search"]),
        ]
    )
    assert len(rows["search"].read_text().splitlines()) == 4
    assert all(group["typical"] in group["members"] for group in groups)
    folder = str(save_model(model, tmp_path / "model"))
    out = tmp_path / "segments.csv"
    more = ["--window", "1", "--fps", "30", "--out", str(out)]
    main(["segment", folder, str(few.path), "--model", folder, *more])
    assert out.read_text().startswith("recording,start,stop,label,subject,source,score,best,rejected\n")
    assert "score" in capsys.readouterr().out
    pair = [str(few.names[0]), str(few.names[1]), "--in", str(few.path)]
    main(["compare", str(package), *pair, "--out", str(rows["compare"])])
    assert "bone lengths" in capsys.readouterr().out
    assert (
        rows["compare"].read_text().startswith("recording,start,stop,label,subject,source,score,other_start")
    )
    for bad, words in {
        ("segment", str(package), "-"): "halp live MODEL -",
        ("segment", str(package), str(few.path)): "--fps",
        ("compare", str(package), "a", "b", "--in", str(few.path)): "no recording of that name",
        ("compare", str(package), str(few.path), str(few.path)): "recordings; compare takes one",
        ("cluster", str(package), str(few.path), "--groups", "0"): "0 groups",
    }.items():
        with pytest.raises(SystemExit) as stopped:
            main(list(bad))
        assert stopped.value.code == 2, bad
        assert words in capsys.readouterr().err.replace("\n", " ")


def test_cluster_function_names_rows(encoder: PretrainedEncoder, few: Store) -> None:
    answer = cluster(encoder, few, groups=2, progress=False)
    assert len(answer) == 2
    assert len(answer.table) == len(answer.clusters.group) == len(answer.events()) == len(few)
    assert answer.table.names == list(few.names)


def test_a_finer_number_of_groups_is_suggested_where_the_best_are_coarse() -> None:
    clusters = Clusters(np.zeros(4, np.int64), np.zeros(1, np.int64), 0.5, {2: 0.5, 3: 0.3, 4: 0.42, 5: 0.39})
    assert clusters.suggested == 4
    assert replace(clusters, silhouettes={}).suggested is None
