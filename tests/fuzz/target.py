"""What libFuzzer drives: one file of one format, read again and again in one process whose parsers report
their coverage.

`python -m fuzz.target SAMPLE FILE COUNTS PLACE …` is started by `fuzz.guided`; what follows are arguments of
libFuzzer. The source is written to a folder in `PLACE`. `COUNTS` is a file that holds how many sources gave
clips and how many were refused, also after this process was ended.
"""

from __future__ import annotations

import mmap
import resource
import struct
import sys
from pathlib import Path
from typing import Any


def caches() -> list[Any]:
    """Caches of the readers, which know files by their path: every file here has the same."""
    modules = [module for name, module in sys.modules.items() if name.startswith("halp.data.readers")]
    return [value for module in modules for value in vars(module).values() if hasattr(value, "cache_clear")]


def main() -> None:
    import atheris  # an extra, and what is imported below it reports its coverage

    with atheris.instrument_imports(include=["halp.data", "halp.core.files"]):
        from fuzz.samples import MEMORY, WRITERS, files_of, read, sample

        from halp.core.errors import InputError
        from halp.data.readers import list_readers

        list_readers()
    name, number, counts, place = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    reader, folder = WRITERS[name][0], sample(name, place)
    file, known = files_of(folder)[number], caches()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with open(counts, "r+b") as opened:
        shared = mmap.mmap(opened.fileno(), 16)
    tally = [0, 0]

    def read_one(data: bytes) -> None:
        file.write_bytes(data)
        for one in known:
            one.cache_clear()
        try:
            read(reader, folder)
            tally[0] += 1
        except InputError:
            tally[1] += 1
        shared[:] = struct.pack("<QQ", *tally)

    atheris.Setup([sys.argv[0], *sys.argv[5:]], read_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
