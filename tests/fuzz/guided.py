"""Coverage-guided fuzzing (atheris, libFuzzer): a process for every file of a format, whose corpus grows with
what is covered.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fuzz.samples import SECONDS, TESTS, TOKENS, files_of, keep, read_in_child

LIMIT = 4  # files may grow to so many times the size of the sample


def available() -> bool:
    """Whether atheris is installed; it is an extra (`pip install 'halp-motion[fuzz]'`)."""
    return importlib.util.find_spec("atheris") is not None


class GuidedFuzz:
    """One format: its files in turn, each with a corpus of its own below `corpus`."""

    def __init__(self, sample: str, reader: str, folder: Path, corpus: Path) -> None:
        self.sample, self.reader, self.folder = sample, reader, folder
        self.corpus = corpus / sample.replace(" ", "-")
        self.counts: Counter[str] = Counter()
        self.kept: list[str] = []
        self.covered = 0

    def run(self, seconds: float) -> None:
        """Fuzz every file of the format for its share of the time; a process that was ended is started
        again.
        """
        files = files_of(self.folder)
        for number, file in enumerate(files):
            end = time.monotonic() + seconds / len(files)
            while (left := end - time.monotonic()) > 1:
                if not self._process(number, file, left):
                    break

    def _process(self, number: int, file: Path, seconds: float) -> bool:
        """One process of libFuzzer; whether it found something and there may be more to find."""
        seeds = self.corpus / str(number)
        seeds.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, seeds / "sample")
        # in memory if there is such a place: a file lives for a millisecond
        place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
        with tempfile.TemporaryDirectory(dir=place) as home:
            counts, words, found = Path(home) / "counts", Path(home) / "words", Path(home) / "found"
            counts.write_bytes(bytes(16))
            words.write_text("".join(f'"{escaped(token)}"\n' for token in TOKENS))
            found.mkdir()
            options = [
                f"-max_total_time={max(1, int(seconds))}",
                f"-timeout={SECONDS}",
                f"-max_len={LIMIT * file.stat().st_size + 64}",
                "-rss_limit_mb=3072",
                f"-dict={words}",
                f"-artifact_prefix={found}/",
                str(seeds),
            ]
            command = [
                sys.executable,
                "-m",
                "fuzz.target",
                self.sample,
                str(number),
                str(counts),
                home,
                *options,
            ]
            done = subprocess.run(command, cwd=TESTS, capture_output=True, check=False)
            clips, refused = struct.unpack("<QQ", counts.read_bytes())
            self.counts.update(clips=clips, refused=refused)
            said = done.stderr.decode(errors="replace")
            self.covered = max([self.covered, *map(int, re.findall(r"cov: (\d+)", said))])
            harmful = sorted(found.iterdir())
            for one in harmful:
                self._confirm(file, one.read_bytes(), said)
            if done.returncode and not harmful:
                self.kept.append(f"{self.sample}: the fuzzer ended with {done.returncode}: {said[-300:]}")
                self.counts["bad"] += 1
                return False
            return bool(harmful)

    def _confirm(self, file: Path, data: bytes, said: str) -> None:
        """Keep what a fresh process does not read well either."""
        original = file.read_bytes()
        file.write_bytes(data)
        kind, text = read_in_child(self.reader, self.folder)
        if kind == "bad":
            self.counts["bad"] += 1
            self.kept.append(f"{keep(self.sample, self.reader, self.folder)}: {text}")
        else:
            self.counts["unconfirmed"] += 1
            self.kept.append(f"{self.sample}: not confirmed by a fresh process: {said[-300:]}")
        file.write_bytes(original)


def escaped(token: bytes) -> str:
    """A token as libFuzzer's dictionaries write it."""
    return "".join(f"\\x{byte:02x}" for byte in token)
