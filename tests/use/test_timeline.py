"""Groups, comparison, timelines and live answers, and their pages in a real browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from halp.cli import main
from halp.clips.arrays import store_from_arrays
from halp.clips.clip import Clip
from halp.clips.normalise import normalise
from halp.clips.store import Store
from halp.encoders.packaged import PackagedEncoder
from halp.errors import InputError
from halp.skeleton import get_topology
from halp.use.classify import fit
from halp.use.cluster import cluster, group_vectors, silhouette
from halp.use.compare import compare, joint_distances
from halp.use.embed import embed_clips
from halp.use.heads import unit
from halp.use.model_folder import Model, save_model
from halp.use.segment import segment
from halp.use.stream import LiveRecognition, read_frames

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
def model(encoder: PackagedEncoder, few: Store) -> Model:
    return fit(encoder, few, kind="prototypes", progress=False)


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


def test_silhouette_equals_that_of_scikit_learn() -> None:
    draw = np.random.default_rng(1)
    rows, group = unit(draw.normal(size=(60, 5))), draw.integers(0, 4, 60)
    assert silhouette(rows, group) == pytest.approx(silhouette_score(rows, group, metric="cosine"), abs=1e-5)
    alone = np.array([*group[:-1], 9])
    assert silhouette(rows, alone) == pytest.approx(silhouette_score(rows, alone, metric="cosine"), abs=1e-5)
    assert silhouette(rows, np.zeros(60, dtype=np.int64)) == 0


def test_recordings_compared_with_themselves_do_not_differ(encoder: PackagedEncoder, store: Store) -> None:
    clip = np.array(store.clip(0))
    same = compare(encoder, clip, clip)
    assert (same.pairs[:, 0] == same.pairs[:, 1]).all()
    assert same.distance.max() < 1e-5
    assert np.nanmax(same.joints) < 1e-4
    assert same.stretches == []


def test_slower_recording_is_aligned_to_the_faster(encoder: PackagedEncoder, store: Store) -> None:
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


def test_difference_is_found_where_it_was_made(encoder: PackagedEncoder, store: Store) -> None:
    clip = np.array(store.clip(int(np.argmax(store.lengths))))
    changed = clip.copy()
    wrist = store.topology.index("wrist_left")
    first, last = len(clip) // 2, len(clip) // 2 + 15
    changed[first:last, 0, wrist] += 1.5
    made = compare(encoder, clip, changed)
    assert made.stretches
    worst = made.stretches[0]
    assert worst.joints[0] == "wrist_left"
    assert first - 4 <= worst.start <= worst.end <= last + 4
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


def test_timeline_follows_the_classes_of_a_long_recording(model: Model, few: Store) -> None:
    order = [int(np.flatnonzero(few.labels == label)[0]) for label in (0, 1, 2)]
    length = [int(few.lengths[i]) for i in order]
    long = np.concatenate([few.clip(i) for i in order])
    window = min(length) / 30
    found = segment(None, [long], model=model, window=window, stride=window / 4, fps=30.0, progress=False)
    assert (found[0].start, found[0].name) == (0.0, "clip-000000")
    assert found[-1].end == pytest.approx(len(long) / 30)
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
        found = model.classifier.predict(embed_clips(encoder, [Clip(window, "x")]))
        assert answer.probability == pytest.approx(float(found.probability[0]), abs=1e-6)
        assert answer.end - answer.start == pytest.approx(1.0)
    gaps = np.diff([answer.end for answer in answers])
    assert np.allclose(gaps, 0.25, atol=1 / 30)
    assert live.summary()["frames"] == len(frames)
    assert live.summary()["answers"] == len(answers)


def test_frames_are_read_line_by_line() -> None:
    topology = get_topology("coco-17")
    joints = np.arange(34.0).reshape(17, 2) + 1
    missing = [None, *joints.tolist()[1:]]
    lines = [
        json.dumps(joints.tolist()),
        "",
        json.dumps({"joints": [joints.tolist()] * 2}),
        json.dumps(missing),
        json.dumps([[float("nan"), 1.0], *joints.tolist()[1:]]),
    ]
    found = list(read_frames(lines, topology))
    assert [frame.shape for frame in found] == [(1, 17, 2), (2, 17, 2), (1, 17, 2), (1, 17, 2)]
    assert np.array_equal(found[0][0], joints)
    assert not found[2][0, 0].any()
    assert not found[3][0, 0].any()
    for bad in ("[", "3", "[]", "{}", '"x"', "[[1, 2]]", "null", json.dumps([joints.tolist(), 3])):
        with pytest.raises(InputError, match="line 1 of standard input"):
            list(read_frames([bad], topology))


@pytest.mark.slow
def test_stream_command_answers_every_stride(model: Model, few: Store, tmp_path: Path) -> None:
    folder = save_model(model, tmp_path / "model")
    lines = "".join(json.dumps(frame.tolist()) + "\n" for frame in few.clip(0))
    command = [sys.executable, "-c", "from halp.cli import main; main()", "segment", str(folder), "-"]
    options = ["--model", str(folder), "--fps", "30", "--window", "1", "--stride", "0.5"]
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
    assert len(answers) == (len(few.clip(0)) - 30) // 15 + 1
    assert list(answers[0]) == ["start", "end", "label", "probability", "milliseconds"]
    assert "latency" in done.stderr


_CLICK = """<script>setTimeout(() => {
  const strip = document.querySelector(".halp-timeline .strip");
  const box = strip.getBoundingClientRect();
  const place = { bubbles: true, clientX: box.left + box.width * 0.75, clientY: box.top + 5 };
  strip.dispatchEvent(new PointerEvent("pointerdown", place));
  document.documentElement.dataset.frame = document.querySelector(".halp-player").dataset.frame;
  document.documentElement.dataset.says = document.querySelector(".halp-timeline .says").textContent;
}, 1000)</script>"""


def browse(path: Path, profile: Path) -> str:
    command = (
        "chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --window-size=1200,3000 --virtual-time-budget=2500 --dump-dom"
    ).split()
    done = subprocess.run(
        [*command, f"--user-data-dir={profile}", path.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="there is no chromium on the path")
def test_pages_run_in_a_browser_and_a_click_on_the_timeline_seeks(
    package: Path, model: Model, few: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, store = str(save_model(model, tmp_path / "model")), str(few.path)
    one, other = str(few.names[0]), str(few.names[1])
    pages = {
        "search": ["search", str(package), one, "--in", store, "-k", "3"],
        "segment": ["segment", folder, store, "--model", folder, "--window", "1", "--stride", "0.5", "--fps", "30"],
        "cluster": ["cluster", str(package), store, "--groups", "3"],
        "compare": ["compare", str(package), one, other, "--in", store],
    }
    for name, command in pages.items():
        path = tmp_path / f"{name}.html"
        main([*command, "--html", str(path), "--json"])
        json.loads(capsys.readouterr().out)
        assert not re.search(r"(src|href)=.https?:", path.read_text())
        if name == "segment":
            path.write_text(path.read_text().replace("</body>", f"{_CLICK}</body>"))
        page = browse(path, tmp_path / f"profile-{name}")
        root = re.search(r"<html[^>]*>", page)
        assert root
        assert "data-error" not in root.group(), name
        assert "data-steps" in page
        if name == "segment":
            length = int(few.lengths[0])
            frame = re.search(r'data-frame="(\d+)"', root.group())
            assert frame
            assert abs(int(frame.group(1)) - 0.75 * length) <= 2
            assert 'data-says="' in root.group()
            assert page.count('class="part') >= 1


def test_commands_print_tables_and_files(
    package: Path, model: Model, few: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["cluster", str(package), str(few.path), "--json"])
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert sum(group["size"] for group in groups) == len(few)
    assert all(group["typical"] in group["members"] for group in groups)
    folder = str(save_model(model, tmp_path / "model"))
    out = tmp_path / "segments.csv"
    more = ["--window", "1", "--fps", "30", "--out", str(out)]
    main(["segment", folder, str(few.path), "--model", folder, *more])
    assert out.read_text().splitlines()[0] == "name,start,end,label,probability"
    assert "probability" in capsys.readouterr().out
    main(["compare", str(package), str(few.names[0]), str(few.names[1]), "--in", str(few.path)])
    assert "bone lengths" in capsys.readouterr().out
    for bad, words in {
        ("segment", str(package), "-"): "need a model",
        ("segment", str(package), str(few.path)): "--fps",
        ("compare", str(package), "a", "b", "--in", str(few.path)): "no recording of that name",
        ("compare", str(package), str(few.path), str(few.path)): "recordings; compare takes one",
        ("cluster", str(package), str(few.path), "--groups", "0"): "0 groups",
    }.items():
        with pytest.raises(SystemExit) as stopped:
            main(list(bad))
        assert stopped.value.code == 2, bad
        assert words in capsys.readouterr().err.replace("\n", " ")


def test_cluster_function_names_rows(encoder: PackagedEncoder, few: Store) -> None:
    table, found = cluster(encoder, few, groups=2, progress=False)
    assert len(table) == len(found.group) == len(few)
    assert table.names == list(few.names)
