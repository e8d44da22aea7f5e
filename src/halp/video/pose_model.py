"""Weights of the pose estimator: downloaded once and verified by hash, or a user's own file.

Packages of mediapipe from 1.0 on carry no weights; the one of 0.10.21 (Apache-2.0) carries two networks
without the metadata that newer versions ask for. `obtain_pose_model` downloads that package with pip as it is
configured, checks its hash, adds the metadata and writes one `.task` file into the cache.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from halp.core.errors import InputError, missing_extra
from halp.core.files import atomic_path, cache_home, sha256
from halp.skeleton import Topology, get_topology

PACKAGE = "mediapipe==0.10.21"
WHEEL = "mediapipe-0.10.21-cp311-cp311-manylinux_2_28_x86_64.whl"
WHEEL_SHA256 = "05dc4a9e593655a79558d05d6227d31018c2537a4bd3362b51e230cf22aecfe3"
TASK_SHA256 = "47cbdf9212622a2d01f30f4b97976a5054cf53384f43f16cd0bd1d44f049af80"
#: Members of the task file, where the package has them, and mean and standard deviation of their input.
NETWORKS = {
    "pose_detector.tflite": ("mediapipe/modules/pose_detection/pose_detection.tflite", 127.5, 127.5),
    "pose_landmarks_detector.tflite": (
        "mediapipe/modules/pose_landmark/pose_landmark_full.tflite",
        0.0,
        255.0,
    ),
}
_METADATA = "TFLITE_METADATA"
_MASK, _FLAG = 2, 1  # outputs of the landmark network: a mask of the body, which nothing reads, and a flag


def cache_folder() -> Path:
    """The folder of downloaded weights and of landmarks of videos: the user's cache, or a temporary folder."""
    return cache_home() or Path(tempfile.gettempdir()) / "halp"


def kept_pose_model() -> Path:
    """Where `halp pose-model` puts the weights."""
    return cache_folder() / "pose_landmarker_full.task"


def find_pose_model(chosen: str | os.PathLike[str] = "") -> Path:
    """The user's own file, or the one that `halp pose-model` put into the cache; never downloads."""
    path = Path(chosen) if chosen else Path(os.environ.get("HALP_POSE_MODEL") or kept_pose_model())
    if path.is_file():
        return path
    if chosen or os.environ.get("HALP_POSE_MODEL"):
        raise InputError(
            f"there is no pose model at '{path}'; give a .task file of mediapipe's PoseLandmarker, or an"
            " .onnx file"
        )
    raise InputError(
        "videos need the weights of a pose estimator: fetch them once with `halp"
        " pose-model`, or give a .task file of your own with --option pose_model=FILE or the variable"
        " HALP_POSE_MODEL"
    )


def obtain_pose_model(wheel: Path | None = None) -> Path:
    """Make the task file in the cache, from a given package or one downloaded by pip; verified by hash."""
    path = kept_pose_model()
    if path.is_file() and sha256(path) == TASK_SHA256:
        return path
    if find_spec("flatbuffers") is None:  # before anything is downloaded
        raise missing_extra("videos need flatbuffers", "video")
    with tempfile.TemporaryDirectory() as folder:
        package = _download(Path(folder)) if wheel is None else wheel
        if sha256(package) != WHEEL_SHA256:
            raise InputError(f"'{package}' does not have the pinned hash of {PACKAGE}; nothing was kept")
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as part:
            write_task(package, part)
            if sha256(part) != TASK_SHA256:
                raise InputError("the pose model from the package has an unexpected hash; nothing was kept")
    return path


def _download(folder: Path) -> Path:
    """The package by pip, which knows the index and its settings."""
    # the same file for every platform: only its data is used
    place = ["--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--abi=cp311"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *place]
    command += ["--platform=manylinux_2_28_x86_64", "--dest", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603  (fixed arguments)
    path = folder / WHEEL
    if done.returncode or not path.is_file():
        why = next(
            (line for line in reversed(done.stderr.splitlines()) if "ERROR" in line), "pip failed"
        ).strip()
        raise InputError(
            f"the package {PACKAGE} could not be downloaded ({why}); with the file {WHEEL} from elsewhere: "
            "`halp pose-model --wheel FILE`"
        )
    return path


def write_task(package: Path, path: Path) -> None:
    """A task file of the package's two networks with their metadata; the same bytes every time."""
    with zipfile.ZipFile(package) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as task:
        for member, (name, mean, std) in NETWORKS.items():
            entry, network = zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0)), source.read(name)
            if member == "pose_landmarks_detector.tflite":
                network = without_output(network, _MASK, _FLAG)
            task.writestr(entry, with_metadata(network, image_metadata(mean, std)))


def without_output(network: bytes, output: int, instead: int) -> bytes:
    """A TFLite network without one of its outputs; another output replaces it.

    The bytes keep their places: the list of operators becomes shorter, everything else is as it was.
    """
    data = bytearray(network)
    (graph,) = _targets(network, _fields(network, struct.unpack_from("<I", network)[0])[2])
    fields = _fields(network, graph)
    results, operators = _target(network, fields[2]), _targets(network, fields[3])
    place = results + 4 + 4 * output
    struct.pack_into("<I", data, place, struct.unpack_from("<I", network, results + 4 + 4 * instead)[0])
    wanted, kept = set(_integers(bytes(data), results)), []
    for operator in reversed(operators):
        parts = _fields(network, operator)
        reads, writes = (_integers(network, _target(network, parts[slot])) for slot in (1, 2))
        if wanted.intersection(writes):
            wanted.update(reads)
            kept.append(operator)
    vector = _target(network, fields[3])
    struct.pack_into("<I", data, vector, len(kept))
    for number, operator in enumerate(reversed(kept)):
        place = vector + 4 + 4 * number
        struct.pack_into("<I", data, place, operator - place)
    return bytes(data)


def _integers(data: bytes, vector: int) -> tuple[int, ...]:
    count = struct.unpack_from("<I", data, vector)[0]
    return struct.unpack_from(f"<{count}i", data, vector + 4)


def image_metadata(mean: float, std: float) -> bytes:
    """Metadata of a network with one RGB picture as input: how its numbers are normalised."""
    import flatbuffers

    builder = flatbuffers.Builder(256)

    def table(*fields: tuple[str, Any]) -> int:
        builder.StartObject(len(fields))
        for slot, (kind, value) in enumerate(fields):
            if kind == "offset" and value:
                builder.PrependUOffsetTRelativeSlot(slot, value, 0)
            elif kind == "byte":
                builder.PrependUint8Slot(slot, value, 0)
        return int(builder.EndObject())

    def vector(items: Sequence[float], size: int, prepend: Any) -> int:
        builder.StartVector(size, len(items), size)
        for item in reversed(items):
            prepend(item)
        return int(builder.EndVector())

    def tables(*items: int) -> int:
        return vector(items, 4, builder.PrependUOffsetTRelative)

    none: tuple[str, Any] = ("offset", 0)
    numbers = [vector([value], 4, builder.PrependFloat32) for value in (mean, std)]
    normalisation = table(*(("offset", number) for number in numbers))
    unit = table(("byte", 1), ("offset", normalisation))  # 1: normalisation
    units = tables(unit)
    picture = table(("byte", 1))  # colours: RGB
    content = table(("byte", 2), ("offset", picture))  # 2: a picture
    name = builder.CreateString("image")
    tensor = table(("offset", name), none, none, ("offset", content), ("offset", units))
    inputs = tables(tensor)
    graph = table(none, none, ("offset", inputs))
    graphs = tables(graph)
    title = builder.CreateString("pose")
    model = table(("offset", title), none, none, ("offset", graphs))
    builder.Finish(model, b"M001")
    return bytes(builder.Output())


def with_metadata(network: bytes, metadata: bytes) -> bytes:
    """A TFLite network with metadata as a further buffer.

    A flatbuffer points forward only, so that what is new stands before the old bytes: a root table with the
    old fields, a longer list of buffers, and a longer list of metadata. The old bytes keep their distances to
    each other.
    """
    root = struct.unpack_from("<I", network)[0]
    fields = _fields(network, root)
    old, described = _targets(network, fields[4]), _targets(network, fields[6]) if 6 in fields else []
    head = bytearray(b"\0" * 8)
    head[4:8] = b"TFL3"
    # where an offset stands and what it points to; old places are negative, less one
    links: list[tuple[int, int]] = []

    def append(data: bytes, align: int = 4) -> int:
        head.extend(b"\0" * (-len(head) % align))
        head.extend(data)
        return len(head) - len(data)

    # vtables: size of it, size of the table, then where each field stands in the table
    vtable = append(struct.pack("<10H", 20, 36, 4, 8, 12, 16, 20, 24, 28, 32))
    table = append(struct.pack("<i", len(head) - vtable) + b"\0" * 32)
    struct.pack_into("<i", head, table, table - vtable)
    struct.pack_into("<I", head, 0, table)
    struct.pack_into("<I", head, table + 4, struct.unpack_from("<I", network, fields[0])[0])
    kept = {slot: 4 + 4 * slot for slot in (1, 2, 3, 5, 7)}
    for slot, place in kept.items():
        if slot in fields:
            links.append((table + place, -1 - _target(network, fields[slot])))
        else:
            struct.pack_into("<H", head, vtable + 4 + 2 * slot, 0)
    buffers = append(struct.pack("<I", len(old) + 1) + b"\0" * (4 * len(old) + 4))
    links += [(table + 20, buffers)]
    links += [(buffers + 4 + 4 * number, -1 - place) for number, place in enumerate(old)]
    entries = append(struct.pack("<I", len(described) + 1) + b"\0" * (4 * len(described) + 4))
    links += [(table + 28, entries)]
    links += [(entries + 8 + 4 * number, -1 - place) for number, place in enumerate(described)]
    two = append(struct.pack("<4H", 8, 12, 4, 8))
    entry = append(struct.pack("<iII", 0, 0, len(old)))
    struct.pack_into("<i", head, entry, entry - two)
    name = append(struct.pack("<I", len(_METADATA)) + _METADATA.encode() + b"\0")
    links += [(entries + 4, entry), (entry + 4, name)]
    one = append(struct.pack("<3H", 6, 8, 4))
    buffer = append(struct.pack("<iI", 0, 0))
    struct.pack_into("<i", head, buffer, buffer - one)
    # the bytes of a buffer begin at a multiple of 16, after their number
    append(b"\0" * ((12 - len(head)) % 16), 1)
    data = append(struct.pack("<I", len(metadata)) + metadata)
    links += [(buffers + 4 + 4 * len(old), buffer), (buffer + 4, data)]
    append(b"\0" * (-len(head) % 64), 1)
    for place, target in links:
        struct.pack_into("<I", head, place, (len(head) - 1 - target if target < 0 else target) - place)
    return bytes(head) + network


def _fields(data: bytes, table: int) -> dict[int, int]:
    """The position of each field of a flatbuffer table, by its number."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    places = struct.unpack_from(f"<{size // 2 - 2}H", data, vtable + 4)
    return {slot: table + place for slot, place in enumerate(places) if place}


def _target(data: bytes, place: int) -> int:
    return int(place + struct.unpack_from("<I", data, place)[0])


def _targets(data: bytes, field: int) -> list[int]:
    """Targets of a vector of offsets."""
    vector = _target(data, field)
    count = struct.unpack_from("<I", data, vector)[0]
    return [_target(data, vector + 4 + 4 * number) for number in range(count)]


def describe_pose_model(path: Path) -> dict[str, str]:
    """The estimator as recorded in a store: version and hash of its weights."""
    package = "onnxruntime" if path.suffix == ".onnx" else "mediapipe"
    try:
        installed = version(package)
    except PackageNotFoundError:
        raise missing_extra(f"videos need {package}", "video") from None
    return {"estimator": f"{package} {installed}", "weights": sha256(path)}


def pose_topology(path: Path, dimensions: int = 2) -> Topology:
    """The joint layout that a pose model gives, in the image or in space; an ONNX file has no depth."""
    if path.suffix == ".onnx":
        from halp.video.onnx_poses import onnx_topology

        return onnx_topology(path)
    return get_topology("mediapipe-33" if dimensions == 3 else "mediapipe-33-2d")
