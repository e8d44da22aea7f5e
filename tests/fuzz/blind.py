"""Fuzzing without coverage: bits, bytes, blocks, numbers, cuts and joins of a format's sample, each read in a
child process.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from pathlib import Path

from fuzz.samples import TOKENS, files_of, keep, read_in_child


def mutated(data: bytes, chance: random.Random) -> bytes:
    """A few changes of a file at random places."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 8))):
        at = chance.randrange(len(changed) + 1)
        kind = chance.choice((0, 0, 0, 1, 1, 2, 3, 4, 5, 6))
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and at < len(changed):
            changed[at] = chance.randrange(256)
        elif kind == 2:
            del changed[at : at + chance.choice((1, 4, 16, 1000))]
        elif kind == 3:
            changed[at:at] = changed[at : at + chance.choice((1, 8, 200))]
        elif kind == 4:
            changed[at:at] = chance.choice(TOKENS)
        elif kind == 5:
            changed[at : at + 4] = chance.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1)).to_bytes(4, "little")
        else:
            del changed[at:]
    return bytes(changed)


class BlindFuzz:
    """One format. What is answered by a sentence not heard before joins the files that are changed
    further.
    """

    def __init__(self, sample: str, reader: str, folder: Path, chance: random.Random) -> None:
        self.sample, self.reader, self.folder, self.chance = sample, reader, folder, chance
        self.originals = {file: file.read_bytes() for file in files_of(folder)}
        self.corpus = list(self.originals.items())
        self.heard: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.kept: list[str] = []

    def run(self, seconds: float) -> None:
        """Change and read files for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.step()

    def step(self) -> None:
        """Change one file and read the source."""
        file, data = self.chance.choice(self.corpus)
        if self.chance.random() < 0.5:
            data = self.originals[file]  # what was refused once is mostly refused again
        changed = mutated(data, self.chance)
        file.write_bytes(changed)
        kind, text = read_in_child(self.reader, self.folder)
        self.counts[kind] += 1
        said = re.sub(r"'[^']*'|\d+", "", text)
        if kind == "bad":
            self.kept.append(f"{keep(self.sample, self.reader, self.folder)}: {text}")
        elif said not in self.heard and len(self.corpus) < 300:
            self.heard.add(said)
            self.corpus.append((file, changed))
        file.write_bytes(self.originals[file])
