"""UTD-MHAD: one MATLAB file a sequence, `a1_s1_t1_skeleton.mat`, with the array `d_skel` of 20 joints × 3 × frames."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.io

from halp.clips.clip import Clip
from halp.clips.readers import Dropped, Info, Item, register_reader
from halp.clips.readers.files import MIB, first_file, read_bytes
from halp.clips.readers.sources import named_files
from halp.clips.readers.text import coordinates, problem, unless_empty
from halp.clips.splits import Split
from halp.errors import InputError
from halp.skeleton import KINECT_V1

CLASSES = (
    "swipe left,swipe right,wave,clap,throw,arm cross,basketball shoot,draw X,draw circle clockwise,"
    "draw circle counter clockwise,draw triangle,bowling,boxing,baseball swing,tennis swing,arm curl,tennis serve,push,"
    "knock,catch,pickup and throw,jog,walk,sit to stand,stand to sit,lunge,squat"
).split(",")
SPLITS = (Split("xsub", "subject", train=(1, 3, 5, 7), test=(2, 4, 6, 8)),)
JOINTS = (
    "head shoulder_center spine hip_center "
    "shoulder_left elbow_left wrist_left hand_left shoulder_right elbow_right wrist_right hand_right "
    "hip_left knee_left ankle_left foot_left hip_right knee_right ankle_right foot_right"
).split()
_ORDER = [JOINTS.index(joint) for joint in KINECT_V1.joints]
_NAME = re.compile(r"(a(\d{1,3})_s(\d{1,3})_t(\d{1,3}))_skeleton\.mat", re.ASCII | re.IGNORECASE)
_HEADER, _MATRIX, _COMPRESSED = 128, 14, 15
_LARGEST = 64 * MIB


@dataclass
class UtdMhadReader:
    """The Kinect skeletons of the UTD Multimodal Human Action Dataset, metres, one person."""

    name: str = "utd-mhad"
    description: str = "UTD-MHAD: a folder of a1_s1_t1_skeleton.mat files"

    def sniff(self, path: Path) -> bool:
        return first_file(path, "_skeleton.mat") is not None

    def info(self, path: Path) -> Info:
        return Info(KINECT_V1, class_names=tuple(CLASSES), splits=SPLITS, normalisation=("drop-empty", "centre"))

    def items(self, path: Path) -> Iterable[Item]:
        return [Item(file) for file in named_files(path, _NAME, "a1_s1_t1_skeleton.mat")]

    def read(self, item: Item) -> Sequence[Clip | Dropped]:
        match = _NAME.fullmatch(item.path.name)
        if match is None:
            raise problem(item.path, "", "the name tells no action and subject", "name it like a1_s1_t1_skeleton.mat")
        action, subject, repetition = map(int, match.groups()[1:])
        if not 1 <= action <= len(CLASSES):
            raise problem(item.path, "", f"action {action} is no class of UTD-MHAD (1 to 27)", "leave it out")
        array = load_matrix(item.path, "d_skel")
        if array.ndim != 3 or array.shape[:2] != (20, 3) or array.shape[2] == 0 or array.dtype.kind not in "fiu":
            raise problem(
                item.path,
                "array 'd_skel'",
                f"it holds {array.dtype} in shape {array.shape} instead of numbers in (20, 3, frames)",
                "check that this is a UTD-MHAD skeleton",
            )
        values = array.astype(np.float64).transpose(2, 0, 1)[:, _ORDER]
        frames = coordinates(values, item.path, "array 'd_skel'")[:, None]
        return [unless_empty(Clip(frames, match[1].lower(), action - 1, subject, extra={"repetition": repetition}))]


def load_matrix(path: Path, name: str) -> npt.NDArray[Any]:
    """One array of a MATLAB 5 file; compressed parts are unpacked with a bound, and only plain numbers are let through."""
    try:
        found = scipy.io.loadmat(io.BytesIO(_plain(path, read_bytes(path, _LARGEST))), variable_names=[name])
    except InputError:
        raise
    except Exception as error:
        # SciPy raises whatever its C code meets in a broken file: nearly every kind of exception there is.
        reason = str(error).split("\n")[0][:120] or type(error).__name__
        raise problem(path, "", f"it is no whole MATLAB 5 file ({reason})", "fetch it again or leave it out") from error
    if not isinstance(found.get(name), np.ndarray):
        raise problem(path, "", f"it has no array '{name}'", "check that this is a UTD-MHAD skeleton")
    array: npt.NDArray[Any] = found[name]
    return array


def _plain(path: Path, data: bytes) -> bytes:
    """The file with its compressed elements unpacked, so that no element can swell beyond the bound inside SciPy."""
    if len(data) < _HEADER or data[126:128] not in (b"IM", b"MI"):
        raise problem(path, "", "it has no header of a MATLAB 5 file", "save it with MATLAB's option -v6 or -v7")
    order: Any = "little" if data[126:128] == b"IM" else "big"
    parts, position = [data[:_HEADER]], _HEADER
    while position + 8 <= len(data):
        kind = int.from_bytes(data[position : position + 4], order)
        size = int.from_bytes(data[position + 4 : position + 8], order)
        body = data[position + 8 : position + 8 + size]
        if len(body) < size or kind not in (_MATRIX, _COMPRESSED):
            raise problem(path, f"byte {position}", "an element is cut off or of an unknown kind", "fetch it again")
        if kind == _COMPRESSED:
            unpacker = zlib.decompressobj()
            try:
                body = unpacker.decompress(body, _LARGEST)
            except zlib.error as error:
                raise problem(
                    path, f"byte {position}", f"an element cannot be unpacked ({error})", "fetch it again"
                ) from None
            if unpacker.unconsumed_tail:
                raise problem(path, f"byte {position}", f"an element swells beyond {_LARGEST} bytes", "leave it out")
            parts.append(body)
        else:
            parts.append(data[position : position + 8] + body)
        position += 8 + size
    return b"".join(parts)


register_reader(UtdMhadReader())
