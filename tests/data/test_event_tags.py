"""A table of events labels what its events cover."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from halp.core.errors import InputError
from halp.data.clip import Clip
from halp.data.tagger import make_tagger

HEAD = "recording,start,stop,label,subject,source,score\n"


def window(start: float, seconds: float = 2.0, recording: str = "long") -> Clip:
    frames = np.ones((round(seconds * 10), 1, 3, 3), dtype=np.float32)
    return Clip(frames, f"{recording}@{start:.2f}", fps=10.0, recording=recording, start=start)


def test_a_window_has_the_label_of_the_event_that_covers_half_of_it(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text(
        HEAD
        + "long,0,4,walk,7,human,\nlong,4,6,sit,,human,\nlong,6,9,jump,,model,0.9\nother,0,1,walk,,human,\n"
    )
    tagger = make_tagger(tmp_path, table, None)
    assert tagger is not None
    assert tagger.class_names == ["sit", "walk"]  # what a model found is not a label
    tagged = [tagger.tag(window(start)) for start in (0.0, 2.9, 3.1, 4.0, 7.0)]
    assert [clip.label for clip in tagged] == [1, 1, 0, 0, -1]
    assert tagged[0].subject == 7
    assert "'other'" in " ".join(tagger.check())


def test_windows_of_a_source_are_labelled_by_events(tmp_path: Path) -> None:
    from halp.data.store_writer import StoreWriter
    from halp.features.opening import open_source
    from halp.skeleton import get_topology

    with StoreWriter(tmp_path / "store", get_topology("kinect-v2"), persons=1) as writer:
        writer.add(Clip(np.ones((60, 1, 25, 3), dtype=np.float32), "long", fps=10.0, extra={"fps": 10.0}))
    table = tmp_path / "labels.csv"
    table.write_text(HEAD + "long,0,3,walk,1,human,\nlong,3,6,sit,2,human,\n")
    source = open_source(tmp_path / "store", window=2, stride=2, labels=table)
    assert [source.class_names[label] for label in source.labels] == ["walk", "sit", "sit"]
    assert source.subjects.tolist() == [1, 2, 2]


def test_an_event_that_stops_before_it_starts_is_named_with_its_line(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text(HEAD + "long,0,4,walk,,human,\nlong,4,4,sit,,human,\n")
    with pytest.raises(InputError, match="line 3"):
        make_tagger(tmp_path, table, None)
