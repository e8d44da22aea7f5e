"""Metadata that is added to a network: everything old is still there, and the new buffer says what it was
given.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest

from halp.core.errors import InputError
from halp.video import pose_model
from halp.video.pose_model import image_metadata, obtain_pose_model, with_metadata

flatbuffers = pytest.importorskip(
    "flatbuffers", reason="flatbuffers is not installed (pip install halp-motion[video])"
)


def network(described: bool) -> bytes:
    """A network of two buffers with a description, as TFLite writes it."""
    builder = flatbuffers.Builder(64)

    def buffer(data: bytes) -> int:
        vector = builder.CreateByteVector(data)
        builder.StartObject(1)
        builder.PrependUOffsetTRelativeSlot(0, vector, 0)
        return int(builder.EndObject())

    def vector(items: list[int]) -> int:
        builder.StartVector(4, len(items), 4)
        for item in reversed(items):
            builder.PrependUOffsetTRelative(item)
        return int(builder.EndVector())

    buffers = vector([buffer(b"first"), buffer(b"second one")])
    name = builder.CreateString("min_runtime_version")
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(0, name, 0)
    builder.PrependUint32Slot(1, 1, 0)
    metadata = vector([builder.EndObject()])
    text = builder.CreateString("a network")
    builder.StartObject(8)
    builder.PrependUint32Slot(0, 3, 0)
    builder.PrependUOffsetTRelativeSlot(3, text, 0)
    builder.PrependUOffsetTRelativeSlot(4, buffers, 0)
    if described:
        builder.PrependUOffsetTRelativeSlot(6, metadata, 0)
    builder.Finish(builder.EndObject(), b"TFL3")
    return bytes(builder.Output())


def text_at(data: bytes, place: int) -> bytes:
    place = pose_model._target(data, place)
    return data[place + 4 : place + 4 + struct.unpack_from("<I", data, place)[0]]


@pytest.mark.parametrize("described", [False, True])
def test_old_fields_stay_and_the_new_buffer_is_found_by_its_entry(described: bool) -> None:
    data = with_metadata(network(described), b"what it is")
    assert data[4:8] == b"TFL3"
    fields = pose_model._fields(data, struct.unpack_from("<I", data)[0])
    assert struct.unpack_from("<I", data, fields[0])[0] == 3
    assert text_at(data, fields[3]) == b"a network"
    assert sorted(fields) == [0, 3, 4, 6]
    buffers = [
        text_at(data, pose_model._fields(data, place)[0]) for place in pose_model._targets(data, fields[4])
    ]
    assert buffers == [b"first", b"second one", b"what it is"]
    place = pose_model._target(data, pose_model._fields(data, pose_model._targets(data, fields[4])[2])[0])
    assert (place + 4) % 16 == 0
    entries = {}
    for entry in pose_model._targets(data, fields[6]):
        parts = pose_model._fields(data, entry)
        entries[text_at(data, parts[0])] = struct.unpack_from("<I", data, parts[1])[0]
    assert entries == {b"TFLITE_METADATA": 2, **({b"min_runtime_version": 1} if described else {})}


def test_metadata_states_mean_and_deviation() -> None:
    data = image_metadata(127.5, 2.0)
    assert data[4:8] == b"M001"
    assert struct.pack("<If", 1, 127.5) in data
    assert struct.pack("<If", 1, 2.0) in data


def test_another_package_is_refused_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALP_CACHE", str(tmp_path / "cache"))
    package = tmp_path / "package.whl"
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(InputError, match="does not have the pinned hash"):
        obtain_pose_model(package)
    assert not list((tmp_path / "cache").glob("**/*"))


def graph_of_three() -> bytes:
    """A network with a chain of two operators (tensors 0, 1, 2) and another one (0, 3); 2, 3 and 1 are its
    outputs.
    """
    builder = flatbuffers.Builder(64)

    def integers(*items: int) -> int:
        builder.StartVector(4, len(items), 4)
        for item in reversed(items):
            builder.PrependInt32(item)
        return int(builder.EndVector())

    def table(**slots: int) -> int:
        builder.StartObject(8)
        for slot, offset in slots.items():
            builder.PrependUOffsetTRelativeSlot(int(slot[1:]), offset, 0)
        return int(builder.EndObject())

    def vector(*items: int) -> int:
        builder.StartVector(4, len(items), 4)
        for item in reversed(items):
            builder.PrependUOffsetTRelative(item)
        return int(builder.EndVector())

    operators = []
    for reads, writes in ((0, 1), (0, 3), (1, 2)):
        inputs, outputs = integers(reads), integers(writes)
        operators.append(table(_1=inputs, _2=outputs))
    listed = vector(*operators)
    results, inputs = integers(2, 3, 1), integers(0)
    graph = table(_1=inputs, _2=results, _3=listed)
    graphs = vector(graph)
    builder.Finish(table(_2=graphs), b"TFL3")
    return bytes(builder.Output())


def test_operators_that_only_serve_a_dropped_output_are_dropped() -> None:
    def parts(data: bytes) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
        root = pose_model._fields(data, struct.unpack_from("<I", data)[0])
        graph = pose_model._fields(data, pose_model._targets(data, root[2])[0])
        operators = [pose_model._fields(data, one) for one in pose_model._targets(data, graph[3])]
        chained = [
            tuple(
                number
                for slot in (1, 2)
                for number in pose_model._integers(data, pose_model._target(data, one[slot]))
            )
            for one in operators
        ]
        return chained, pose_model._integers(data, pose_model._target(data, graph[2]))

    network = graph_of_three()
    assert parts(network) == ([(0, 1), (0, 3), (1, 2)], (2, 3, 1))
    assert parts(pose_model.without_output(network, 1, 2)) == ([(0, 1), (1, 2)], (2, 1, 1))
    assert parts(pose_model.without_output(network, 0, 2)) == ([(0, 1), (0, 3)], (1, 3, 1))
    assert len(pose_model.without_output(network, 1, 2)) == len(network)
