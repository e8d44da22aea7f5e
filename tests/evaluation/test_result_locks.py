"""Results and cached features have one owner at a time, with real processes: the second is told who, the dead are replaced."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from halp.clips.store import Store
from halp.encoders.packaged import PackagedEncoder
from halp.evaluation import RawCoordinates
from halp.evaluation.evaluate_run import evaluate_protocols
from halp.evaluation.feature_cache import FeatureCache
from halp.evaluation.features import embed
from halp.evaluation.result_store import evaluate_cached, saved_results
from halp.locks import InUse
from halp.training import load_recipe
from halp.training.run import create_run
from halp.training.run_folder import RunFolder

pytestmark = pytest.mark.slow  # real processes

# evaluates raw coordinates into a folder, or caches their features, after a pause while it owns them
OWNER = """
import sys, time
from pathlib import Path
from halp.clips.store import open_store
from halp.evaluation import RawCoordinates
from halp.evaluation.feature_cache import FeatureCache
from halp.evaluation.features import embed
from halp.evaluation.result_store import evaluate_cached
from halp.training.run_folder import RunFolder
what, path, folder, pause = sys.argv[1:]
store = open_store(path)
class Slow(RawCoordinates):
    def forward(self, clips):
        time.sleep(float(pause))
        return super().forward(clips)
encoder = Slow(store.topology, persons=store.persons, frames=8)
if what == "result":
    evaluate_cached(RunFolder(Path(folder)), encoder, store, "knn", "xsub", seeds=(0,), settings={}, progress=False)
else:
    plain = RawCoordinates(store.topology, persons=store.persons, frames=8)
    shape = (len(store), plain.output_size)
    FeatureCache(folder).get(plain, store, "centre", shape, lambda: embed(encoder, store, progress=False))
"""


def raw(store: Store) -> PackagedEncoder:
    return RawCoordinates(store.topology, persons=store.persons, frames=8)


def owner(what: str, store: Store, folder: Path, pause: float) -> subprocess.Popen[bytes]:
    """A process that owns something below `folder`: it is waited for until its lock is there."""
    job = subprocess.Popen([sys.executable, "-c", OWNER, what, str(store.path), str(folder), str(pause)])
    deadline = time.monotonic() + 60
    while not list(folder.rglob(".*.lock")):
        assert job.poll() is None
        assert time.monotonic() < deadline, "the other process does not begin"
        time.sleep(0.02)
    return job


def test_second_process_on_a_result_is_told_who_computes_it_and_takes_over_from_the_dead(
    store: Store, tmp_path: Path
) -> None:
    job = owner("result", store, tmp_path, pause=60)
    options = {"seeds": (0,), "settings": {}, "progress": False}
    try:
        with pytest.raises(InUse, match=rf"^result '.*knn-xsub.*json' is in use by process {job.pid} on .*try again$"):
            evaluate_cached(RunFolder(tmp_path), raw(store), store, "knn", "xsub", **options)
        assert not saved_results(RunFolder(tmp_path))
    finally:
        job.kill()
        job.wait()
    found = evaluate_cached(RunFolder(tmp_path), raw(store), store, "knn", "xsub", **options)
    assert saved_results(RunFolder(tmp_path)) == [found]
    assert not list((tmp_path / "results").glob(".*"))


def test_second_process_waits_for_the_features_of_the_first(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = owner("features", store, tmp_path, pause=2)
    cache, encoder = FeatureCache(tmp_path), raw(store)

    def compute() -> np.ndarray:
        raise AssertionError("the features were computed twice")

    found = cache.get(encoder, store, "centre", (len(store), encoder.output_size), compute)
    assert job.wait() == 0
    np.testing.assert_array_equal(found, embed(encoder, store, progress=False))
    assert cache.hits == 1
    assert f"in use by process {job.pid} on " in capsys.readouterr().err.replace("\n", " ")


def test_features_of_a_killed_process_are_computed_by_the_next_and_of_an_unknown_one_not_kept(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = owner("features", store, tmp_path, pause=60)
    job.kill()
    job.wait()
    cache, encoder = FeatureCache(tmp_path), raw(store)
    shape = (len(store), encoder.output_size)
    (lock,) = tmp_path.glob(".*.lock")
    of_the_dead = lock.read_text()
    lock.write_text("of another version")
    found = cache.get(encoder, store, "centre", shape, lambda: embed(encoder, store, progress=False))
    assert not list(tmp_path.glob("*.npy"))
    assert "not kept" in capsys.readouterr().err
    lock.write_text(of_the_dead)
    cache.get(encoder, store, "centre", shape, lambda: embed(encoder, store, progress=False))
    assert cache.hits == 0
    again = cache.get(encoder, store, "centre", shape, lambda: pytest.fail("they were not kept"))
    np.testing.assert_array_equal(found, again)
    assert [path.suffix for path in tmp_path.iterdir()] == [".npy"]


def test_what_a_killed_evaluation_left_unfinished_is_no_result(store: Store, tmp_path: Path) -> None:
    found = evaluate_cached(
        RunFolder(tmp_path), raw(store), store, "knn", "xsub", seeds=(0,), settings={}, progress=False
    )
    (tmp_path / "results" / ".knn.123.partial.json").write_text('{"protocol"')
    assert saved_results(RunFolder(tmp_path)) == [found]


def test_results_are_given_without_a_lock_where_nothing_can_be_written(store: Store, tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", load_recipe("small"), store)
    run.results.write_text("in the way")
    rows = evaluate_protocols("raw", raw(store), store, protocols=("knn",), run=run, progress=False)
    assert rows.results[0].accuracy > 0
