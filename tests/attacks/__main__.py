"""Sums of the hostile input: `make attacks` reads every payload of the tests in a process of its own and
prints a table.

By kind: payloads tried, how many were refused or read, how many ended otherwise or ran code, the most memory
that one took, and the most memory per byte of a payload, of what exceeds the 2 MiB that reading the smallest
file may take.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from attacks import test_archives, test_checkpoints, test_pickles
from data import test_unpickle

from halp.core.errors import InputError
from halp.data.readers.archives import load_npz
from halp.data.sandbox import load_pickle
from halp.training import convert

MIB = 2**20
FREE = 2 * MIB


@dataclass
class Sums:
    """What was seen of one kind of payload."""

    payloads: int = 0
    refused: int = 0
    read: int = 0
    otherwise: int = 0
    ran_code: int = 0
    most_memory_mib: float = 0.0
    most_memory_per_byte: float = 0.0


def cases(test: Any, place: int = 0) -> list[Any]:
    """The parameters of a test; `place` counts its lists from the one written last."""
    return list(test.pytestmark[place].args[1])


def payloads(folder: Path) -> Iterator[tuple[str, Path, Callable[[Path], object]]]:
    """Kind, file and what reads it; a payload that runs code makes the file `mark`."""
    path, mark = folder / "a.pkl", folder / "mark"
    for make in cases(test_unpickle.test_a_malicious_pickle_is_refused_and_does_nothing, 1):
        for protocol in (0, 2, 5):
            path.write_bytes(pickle.dumps([make(mark)], protocol=protocol))
            yield "pickles that call something", path, load_pickle
    for arguments in cases(test_pickles.test_ndarray_cannot_be_called):
        path.write_bytes(pickle.dumps(test_pickles.Raw(np.ndarray, arguments)))
        yield "pickles that declare arrays", path, load_pickle
    for kind in (list, tuple):
        for place in ("frame_dir", "label", "keypoint", "total_frames"):
            path.write_bytes(test_pickles.annotations(**{place: test_pickles.laughs(40, kind)}))
            yield "pickles that share and nest", path, load_pickle
    for data in cases(test_pickles.test_programs_that_waste_memory_or_time_are_refused):
        path.write_bytes(data)
        yield "pickles that waste", path, load_pickle
    for data in cases(test_unpickle.test_a_damaged_or_wasteful_pickle_is_refused):
        path.write_bytes(data)
        yield "pickles that waste", path, load_pickle
    path = folder / "a.npz"
    for frames, padding in ((600_000, 0), (600_000, 100_000), (3_000_000, 1_000_000)):
        yield "archives that expand", test_archives.bomb(path, frames, padding), load_npz
    for shape in ((10**12,), (2**62, 2**62), (40, 1, 20, 3), (1, 1, 1, 1)):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("joints.npy", test_archives.header(shape) + bytes(1000))
        yield "archives that lie", path, load_npz
    path = folder / "a.pth.tar"
    for changes in cases(test_checkpoints.test_convert_refuses_tensors_that_declare_more_than_they_hold):
        test_checkpoints.authors_file(path, **changes)
        yield "checkpoints that declare", path, lambda file: convert(file, folder / "out")


def in_child(read: Callable[[], object]) -> tuple[int, int]:
    """Exit code (0 read, 2 refused) and peak memory in bytes of a process that reads."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_AS, (16 * 2**30, 16 * 2**30))
            read()
            code = 0
        except InputError:
            code = 2
        finally:
            os._exit(code)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024


def tried() -> dict[str, Sums]:
    """Sums by kind of payload."""
    found: dict[str, Sums] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, path, read in payloads(Path(folder)):
            before = in_child(lambda: None)[1]
            code, memory = in_child(lambda path=path, read=read: read(path))
            sums, extra = found.setdefault(kind, Sums()), max(0, memory - before)
            sums.payloads += 1
            sums.refused += code == 2
            sums.read += code == 0
            sums.otherwise += code not in (0, 2)
            sums.ran_code += (Path(folder) / "mark").exists()
            sums.most_memory_mib = max(sums.most_memory_mib, round(extra / MIB, 1))
            sums.most_memory_per_byte = max(
                sums.most_memory_per_byte, round(max(0, extra - FREE) / max(1, path.stat().st_size), 1)
            )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where the sums are recorded")
    chosen = parser.parse_args()
    found = tried()
    columns = list(asdict(Sums()))
    lines = [f"| payloads | {' | '.join(name.replace('_', ' ') for name in columns[1:])} | tried |"]
    lines += ["|---" * (len(columns) + 1) + "|"]
    for kind, sums in found.items():
        row = asdict(sums)
        lines.append(f"| {kind} | {' | '.join(str(row[name]) for name in columns[1:])} | {sums.payloads} |")
    sys.stdout.write("\n".join(lines) + "\n")
    bad = sum(sums.otherwise + sums.ran_code for sums in found.values())
    total = sum(sums.payloads for sums in found.values())
    sys.stdout.write(f"{total} payloads, {bad} ended otherwise or ran code\n")
    if chosen.json:
        record = {
            "command": "make attacks",
            "payloads": total,
            "kinds": {kind: asdict(one) for kind, one in found.items()},
        }
        chosen.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
