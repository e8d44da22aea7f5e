"""The page of `halp export MODEL OUT --web` in Chromium: the library's answers from key points, and a film as
its camera.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from os import environ
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from clip_samples import moving_clips
from conftest import chromium

import halp
from halp.core.errors import InputError
from halp.skeleton import get_topology
from halp.tasks.model_folder import Model
from halp.tasks.web_page import COMMAND
from halp.video.pose_model import kept_pose_model

MODELS = {"halp-base": "mediapipe-33", "halp-view": "mediapipe-33-2d"}
POSE_MODEL = Path(environ.get("HALP_POSE_MODEL") or kept_pose_model())  # before tests have their own cache
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@cache
def fit(encoder: str) -> Model:
    topology = get_topology(MODELS[encoder])
    source = halp.open_source(moving_clips(topology, 24), topology=topology)
    source = source.with_labels(np.arange(24) % 3, ["a", "b", "c"], np.arange(24) // 3)
    return halp.classify_fit(encoder, source, kind="linear", rejection_rate=0.2, progress=False)


@pytest.fixture(scope="module")
def model() -> Model:
    return fit("halp-base")


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the place of the estimator's weights, where nothing looks at a picture."""
    path = tmp_path / "own.task"
    path.write_bytes(b"weights")
    monkeypatch.setenv("HALP_POSE_MODEL", str(path))
    return path


@pytest.fixture(scope="module")
def whole_page(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page that was exported with npm."""
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "own.task").write_bytes(b"weights")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HALP_POSE_MODEL", str(folder / "own.task"))
        page = halp.export(model, folder / "page", web=True)
    if not (page / "lib").is_dir():
        pytest.skip("npm cannot install the libraries of the page")
    assert not (page / "node_modules").exists()
    return page


def export(model: Model, folder: Path, whole_page: Path) -> Path:
    """A page with libraries that are there already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder.parent))  # without npm
        page = halp.export(model, folder, web=True)
    shutil.copytree(whole_page / "lib", page / "lib")
    return page


class Quiet(SimpleHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Address of a folder, and what was asked for."""
    handler = type("Handler", (Quiet,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", handler.asked
        server.shutdown()


@contextmanager
def visit(browser: Any, folder: Path) -> Iterator[Any]:
    with serving(folder) as (address, _):
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("html[data-ready=true]")
        yield page
        page.close()


def until(page: Any, condition: str) -> None:
    """Wait; the page's policy lets nothing be evaluated from within."""
    deadline = time.monotonic() + 300
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(100)


PREDICT = "({ points, shape }) => halp.recogniser.predict(Float32Array.from(points, (x) => x ?? NaN), shape)"
PUSH = """async ({ frames, times, window, stride }) => {
  const { recogniser } = halp, answers = [];
  Object.assign(recogniser.facts, { window, stride });
  recogniser.clear();
  for (const [place, people] of frames.entries()) {
    const due = recogniser.push(times[place], people.map((body) => Float32Array.from(body, (x) => x ?? NaN)));
    if (due) answers.push(await recogniser.answer());
  }
  return answers;
}"""


def nulls(points: np.ndarray) -> list[Any]:
    return np.where(np.isnan(points), None, points.astype(object)).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("encoder", list(MODELS))
def test_key_points_get_the_answers_of_the_library(
    encoder: str, browser: Any, tmp_path: Path, whole_page: Path, weights: Path
) -> None:
    model = fit(encoder)
    layout = MODELS[encoder]
    clips = moving_clips(get_topology(layout), 12, seed=1, damaged=True)
    somebody = 0
    folder = whole_page if encoder == "halp-base" else export(model, tmp_path / "page", whole_page)
    answers = halp.classify_predict(model, clips, topology=layout, progress=False).to_json()
    vectors = halp.embed(model.encoder, clips, topology=layout, progress=False)
    probabilities = model.classifier.predict(vectors).probabilities
    with visit(browser, folder) as page:
        for clip, wanted, row in zip(clips, answers, probabilities, strict=True):
            found = page.evaluate(PREDICT, {"points": nulls(clip.ravel()), "shape": [1, *clip.shape]})
            if wanted["best"] is None:
                continue
            somebody += 1
            assert found["best"] == wanted["best"]
            assert found["rejected"] is wanted["rejected"]
            assert found["probability"] == pytest.approx(wanted["probability"], abs=1e-4)
            assert found["probabilities"] == pytest.approx(row.tolist(), abs=1e-4)
    assert 0 < somebody < len(clips)


@pytest.mark.slow
def test_frames_get_the_answers_of_live_recognition_and_uneven_ones_are_made_even(
    browser: Any, model: Model, whole_page: Path
) -> None:
    clip = np.concatenate([clip[:20, :1] for clip in moving_clips(get_topology("mediapipe-33"), 4)])
    clip[50:75] = np.nan
    live = halp.LiveRecognition(model, fps=20, window=1.0, stride=0.5, topology="mediapipe-33")
    wanted = [one for frame in np.nan_to_num(clip) if (one := live.push(frame)) is not None]
    times, asked = np.arange(len(clip)) / 20, {"window": 1.0, "stride": 0.5}
    with visit(browser, whole_page) as page:
        frames = nulls(clip.reshape(len(clip), 1, -1))
        found = page.evaluate(PUSH, {"frames": frames, "times": times.tolist(), **asked})
        # an even stream of a straight movement, seen at uneven moments
        uneven = np.sort(np.random.default_rng(0).uniform(0, 2, 60))
        bodies = uneven[:, None, None] * np.ones((1, 1, 99)) + np.arange(99)
        page.evaluate(PUSH, {"frames": bodies.tolist(), "times": uneven.tolist(), **asked})
        window = page.evaluate(
            "() => { const w = halp.recogniser.window(); return [[...w.points], w.shape]; }"
        )
    assert len(found) == len(wanted)
    assert [one.get("best") for one in found] == [one.more["best"] for one in wanted]
    assert None in [one.more["best"] for one in wanted]
    assert any("best" in one for one in found)
    for one, other in zip(found, wanted, strict=True):
        if "best" in one:
            assert one["probability"] == pytest.approx(other.score, abs=1e-4)
            assert one["rejected"] is other.more["rejected"]
    count = window[1][1]
    even = uneven[-1] - (count - 1 - np.arange(count)) / count
    points = np.reshape(window[0], (count, 99))
    np.testing.assert_allclose(points, even[:, None] + np.arange(99), atol=1e-4)


def demo_film() -> Path | None:
    """The film of the package sports2d, or the one that `HALP_TEST_FILM` names."""
    spec = find_spec("Sports2D")
    places = (
        [Path(part) / "Demo" / "demo.mp4" for part in (spec.submodule_search_locations or [])] if spec else []
    )
    named = [Path(environ["HALP_TEST_FILM"])] if "HALP_TEST_FILM" in environ else []
    return next((path for path in (*named, *places) if path.is_file()), None)


def as_camera(film: Path, path: Path) -> Path:
    """A film in the form that Chromium takes for a camera."""
    av = pytest.importorskip("av", reason="PyAV is not installed (pip install halp-motion[video])")
    with av.open(str(film)) as source, av.open(str(path), "w", format="mjpeg") as camera:
        stream = camera.add_stream("mjpeg", rate=30, options={"q:v": "5"})
        stream.width, stream.height, stream.pix_fmt = 640, 360, "yuvj420p"
        for frame in source.decode(video=0):
            camera.mux(stream.encode(frame.reformat(640, 360, "yuvj420p")))
        camera.mux(stream.encode())
    return path


@pytest.mark.slow
@pytest.mark.skipif(
    demo_film() is None, reason="no film: pip install --no-deps sports2d, or set HALP_TEST_FILM"
)
@pytest.mark.skipif(not POSE_MODEL.is_file(), reason="no pose model: halp pose-model")
def test_people_before_the_camera_are_recognised_and_nothing_leaves_the_page(
    browser: Any, model: Model, tmp_path: Path, whole_page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALP_POSE_MODEL", str(POSE_MODEL))
    camera = as_camera(demo_film(), tmp_path / "camera.mjpeg")
    folder = export(model, tmp_path / "page", whole_page)
    options = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    options += ["--disable-background-networking", f"--use-file-for-fake-video-capture={camera}"]
    options += ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    with serving(folder) as (address, asked), serving(folder) as other:
        opened = browser.browser_type.launch(executable_path=chromium(), args=options)
        page = opened.new_page()
        page.set_default_timeout(180_000)
        page.goto(address)
        page.wait_for_selector("html[data-ready=true]")
        page.evaluate("halp.recogniser.facts.window = 20")  # however slow this machine is
        page.click("#camera")
        until(page, "halp.recogniser.frames.some(({ people }) => people.some((one) => one))")
        before = list(asked)
        until(page, "halp.player.display.answers.some(({ answer }) => answer.best)")
        answers = page.evaluate(
            "halp.player.display.answers.map(({ answer }) => answer).filter(({ best }) => best)"
        )
        assert {answer["best"] for answer in answers} <= {"a", "b", "c"}
        drawn = "[...document.getElementById('view').getContext('2d').getImageData(0, 0, 640, 360).data]"
        assert page.evaluate(f"{drawn}.some((value) => value)")
        assert asked == before
        stopped = "(address) => fetch(address).then(() => 'sent', (error) => error.name)"
        assert page.evaluate(stopped, other[0]) == "TypeError"
        assert other[1] == []
        page.click("#stop")
        assert page.evaluate("halp.player.video.srcObject") is None
        page.evaluate("halp.player.display.people = []")
        page.uncheck("#picture")  # hides a picture that stays as well
        assert not page.evaluate(f"{drawn}.some((value) => value)")
        opened.close()


@pytest.mark.slow
def test_without_a_camera_or_with_a_file_that_is_no_video_the_page_says_so(
    browser: Any, whole_page: Path, tmp_path: Path
) -> None:
    (tmp_path / "wrong.mp4").write_bytes(b"not a video")
    without = browser.browser_type.launch(executable_path=chromium(), args=["--no-sandbox"])
    with visit(without, whole_page) as page:
        page.set_default_timeout(300_000)
        page.click("#camera")
        refused = (
            "/^(No camera was found|The camera was not allowed)/"  # where there is none, and where there is
        )
        until(page, f"{refused}.test(document.getElementById('status').textContent)")
        page.set_input_files("#film", tmp_path / "wrong.mp4")
        until(page, "document.getElementById('status').textContent.includes(\"cannot play 'wrong.mp4'\")")
    without.close()


def test_without_npm_the_folder_is_written_and_the_command_named(
    model: Model,
    tmp_path: Path,
    weights: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("halp.core.progress.log.propagate", True)
    page = halp.export(model, tmp_path / "page", web=True)
    assert COMMAND in caplog.text
    assert "npm is not installed" in caplog.text
    facts = json.loads((page / "page.json").read_text())
    assert facts["classes"] == ["a", "b", "c"]
    assert (page / "pose.task").read_bytes() == b"weights"
    assert not {"lib", "node_modules", "config.json"} & {path.name for path in page.iterdir()}
    locked = json.loads((page / "package-lock.json").read_text())["packages"]
    assert len(locked) > 1
    assert all(name == "" or package["integrity"].startswith("sha512-") for name, package in locked.items())
    wanted = json.loads((page / "package.json").read_text())["dependencies"]
    assert {name: locked[f"node_modules/{name}"]["version"] for name in wanted} == wanted


def test_what_cannot_be_a_page_is_refused_before_anything_is_written(
    model: Model, tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="--web needs classes"):
        halp.export("halp-base", tmp_path / "page", web=True)
    with pytest.raises(InputError, match="leave out --topology"):
        halp.export(model, tmp_path / "page", web=True, topology="kinect-v2")
    monkeypatch.setenv("HALP_POSE_MODEL", str(weights.rename(tmp_path / "own.onnx")))
    with pytest.raises(InputError, match=r"needs a \.task file"):
        halp.export(model, tmp_path / "page", web=True)
    monkeypatch.setenv("HALP_POSE_MODEL", str(tmp_path / "nowhere.task"))
    with pytest.raises(InputError, match="there is no pose model"):
        halp.export(model, tmp_path / "page", web=True)
    assert not (tmp_path / "page").exists()
