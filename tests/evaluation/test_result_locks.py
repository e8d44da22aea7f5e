"""Results and cached features have one owner at a time, with real processes: the second is told who, the dead
are replaced.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import forked as subprocess
import numpy as np
import pytest

from halp.core.locks import InUse
from halp.data.store import Store
from halp.encoders.pretrained import PretrainedEncoder
from halp.evaluation import RawCoordinates
from halp.evaluation.evaluate_run import evaluate_cached, evaluate_protocols, saved_results
from halp.features.cache import FeatureCache
from halp.features.embed import embed
from halp.training import load_recipe
from halp.training.run import create_run
from halp.training.run_folder import RunFolder

pytestmark = pytest.mark.slow  # real processes

# evaluates raw coordinates into a folder, or caches their features, after a pause while it owns them
OWNER = """
import sys, time
from pathlib import Path
from halp.data.store import open_store
from halp.evaluation import RawCoordinates
from halp.features.cache import FeatureCache
from halp.features.embed import embed
from halp.evaluation.evaluate_run import evaluate_cached
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
    FeatureCache(folder).get("key", plain.output_size, lambda: [embed(encoder, store, progress=False)])
"""


def raw(store: Store) -> PretrainedEncoder:
    return RawCoordinates(store.topology, persons=store.persons, frames=8)


def owner(what: str, store: Store, folder: Path, pause: float) -> subprocess.Popen[bytes]:
    """A process that owns something below `folder`: it is waited for until its lock is there."""
    job = subprocess.Popen([sys.executable, "-c", OWNER, what, str(store.path), str(folder), str(pause)])
    deadline = time.monotonic() + 300
    while not any(path.stat().st_size for path in folder.rglob(".*.lock")):  # the owner has written its name
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
        with pytest.raises(
            InUse, match=rf"^result '.*knn-xsub.*json' is in use by process {job.pid} on .*try again$"
        ):
            evaluate_cached(RunFolder(tmp_path), raw(store), store, "knn", "xsub", **options)
        assert not saved_results(RunFolder(tmp_path))
    finally:
        job.kill()
        job.wait()
    found = evaluate_cached(RunFolder(tmp_path), raw(store), store, "knn", "xsub", **options)
    assert saved_results(RunFolder(tmp_path)) == [found]
    assert not list((tmp_path / "results").glob(".*"))


def test_second_process_waits_for_the_features_of_the_first(store: Store, tmp_path: Path) -> None:
    job = owner("features", store, tmp_path, pause=2)
    cache, encoder = FeatureCache(tmp_path), raw(store)

    def compute() -> np.ndarray:
        raise AssertionError("the features were computed twice")

    with pytest.warns(UserWarning, match=f"in use by process {job.pid} on "):
        found = cache.get("key", encoder.output_size, compute).vectors
    assert job.wait() == 0
    np.testing.assert_array_equal(found, embed(encoder, store, progress=False))
    assert cache.hits == 1


def test_features_of_a_killed_process_are_computed_by_the_next(store: Store, tmp_path: Path) -> None:
    job = owner("features", store, tmp_path, pause=60)
    job.kill()
    job.wait()
    cache, encoder = FeatureCache(tmp_path), raw(store)
    assert list(tmp_path.glob(".*.lock"))
    found = cache.get("key", encoder.output_size, lambda: [embed(encoder, store, progress=False)])
    assert cache.hits == 0
    again = cache.get("key", encoder.output_size, lambda: pytest.fail("they were not kept"))
    np.testing.assert_array_equal(found.vectors, again.vectors)
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


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
