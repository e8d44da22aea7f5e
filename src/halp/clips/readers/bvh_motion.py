"""The MOTION part of a BVH file: channel values in blocks of lines, parsed without a Python loop over numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from halp.clips.readers.decimals import Bytes, Places, decimals
from halp.clips.text_files import LARGEST, Floats, coordinates, number_table, problem, shown, whole_number
from halp.errors import InputError

# Blocks of this size stay in the processor's cache; larger ones are parsed at half the speed.
_BLOCK = 2**18
_NEWLINE = 10
# Newline, tabulator, carriage return: numpy counts them several times faster than bytes.count.
_CONTROL = (_NEWLINE, 9, 13)


class Motion:
    """Declared frames and frame time of a file whose MOTION lines begin at `start`, after `line` lines."""

    def __init__(self, path: Path, data: bytes, start: int, line: int, channels: int) -> None:
        self.path, self.data, self.channels = path, data, channels
        (first, declared), (second, time), (self.line, self.start) = self._header(start, line)
        words = declared.split()
        if len(words) != 2 or words[0].lower() != "frames:":
            what = "there is no 'Frames:' with a number"
            raise problem(path, f"line {first}", what, "check that the file is whole")
        self.frames = whole_number(words[1], path, f"line {first}")
        if not time.lower().replace(" ", "").startswith("frametime:"):
            raise problem(path, f"line {second}", "there is no 'Frame Time:'", "check that the file is whole")
        self.time, self.time_line = time.partition(":")[2].strip(), second
        text = np.frombuffer(data, dtype=np.uint8)[self.start :]
        lines = np.count_nonzero(text == _NEWLINE) + (not data.endswith(b"\n"))
        # blank lines do not count; only where there are some is it worth looking for them
        if lines != self.frames:
            lines = sum(1 for one in data[self.start :].split(b"\n") if one.strip())
        if not lines:
            raise problem(path, "MOTION", "there are no frames", "check that the file is whole")
        if lines != self.frames or not channels:
            what = f"{self.frames} frames with {channels} channels are declared, {lines} lines of numbers are there"
            raise problem(path, f"line {first}", what, "check that the file is whole")

    def _header(self, start: int, line: int) -> tuple[tuple[int, str], tuple[int, str], tuple[int, int]]:
        """The first two filled lines with their numbers, and number and place of the line after them."""
        found: list[tuple[int, str]] = []
        while start < len(self.data) and len(found) < 2:
            end = self.data.find(b"\n", start)
            end = len(self.data) if end < 0 else end
            line += 1
            text = self.data[start : min(end, start + 200)].decode("utf-8", "replace")
            if text.strip():
                found.append((line, text))
            start = end + 1
        if len(found) < 2:
            raise problem(self.path, "MOTION", "there are no frames", "check that the file is whole")
        return found[0], found[1], (line, start)

    @property
    def known_rate(self) -> float:
        """Recorded frames per second, −1 where the frame time is not a usual number."""
        try:
            time = float(self.time)
        except ValueError:
            return -1.0
        return 1 / time if 1e-6 <= time <= 1e3 else -1.0

    def rate(self, wanted: float) -> float:
        """Recorded frames per second; refused where it is needed (`wanted` is not 0) and the file does not tell it."""
        if wanted and self.known_rate < 0:
            what = f"a frame time of {shown(self.time)} gives no frame rate"
            raise problem(self.path, f"line {self.time_line}", what, "correct it, or prepare without fps")
        return self.known_rate

    def values(self, frames: Places, columns: Places) -> Floats:
        """Channel values `(len(frames), channels)` of chosen frames, ascending; other columns than the chosen are 0.

        Every line is checked for its number of words; only the chosen numbers are parsed.
        """
        result = np.zeros((len(frames), self.channels))
        start, first, done = self.start, 0, 0
        while start < len(self.data):
            end = self.data.rfind(b"\n", start, start + max(_BLOCK, 64 * self.channels)) + 1
            if end <= start or len(self.data) - start <= _BLOCK:
                end = len(self.data)
            block = _words(self.data[start:end], self.channels)
            count = len(self._slowly(start, end)) if block is None else len(block[1])
            upto = done + int(np.searchsorted(frames[done:], first + count))
            rows = frames[done:upto] - first
            numbers = None if block is None else _numbers(*block, rows, columns)
            result[done:upto, columns] = self._slowly(start, end)[rows][:, columns] if numbers is None else numbers
            start, first, done = end, first + count, upto
        return result

    def _slowly(self, start: int, end: int) -> Floats:
        """A block that is not plain numbers, line by line: what is wrong with it is named, what is only unusual is read."""
        before = self.line + self.data.count(b"\n", self.start, start)
        try:
            text = self.data[start:end].decode("utf-8")
        except UnicodeDecodeError as error:
            what = "this is not UTF-8 text"
            raise problem(self.path, f"byte {start + error.start}", what, "check that the file is whole") from None
        try:
            values = number_table(self.path, "\n" * before + text, self.channels, "channels of all joints")
        except InputError:
            if not text.strip():
                return np.empty((0, self.channels))
            raise
        coordinates(values, self.path, "MOTION")
        return values


def _words(data: bytes, channels: int) -> tuple[Bytes, Places, Places] | None:
    """Where the words of whole lines start and end, `(lines, channels)` each; None unless they are plain and as many."""
    buffer = np.frombuffer(data, dtype=np.uint8)
    if np.count_nonzero(buffer < 32) != sum(np.count_nonzero(buffer == blank) for blank in _CONTROL):
        return None
    word = buffer > 32
    edges = np.flatnonzero(word[1:] != word[:-1]) + 1
    if word[0]:
        edges = np.concatenate([[0], edges])
    if word[-1]:
        edges = np.append(edges, len(buffer))
    starts, ends = edges[::2], edges[1::2]
    upto = np.append(np.searchsorted(starts, np.flatnonzero(buffer == _NEWLINE)), len(starts))
    words = np.diff(upto, prepend=0)
    if not ((words == channels) | (words == 0)).all():
        return None
    return buffer, starts.reshape(-1, channels), ends.reshape(-1, channels)


def _numbers(buffer: Bytes, starts: Places, ends: Places, rows: Places, columns: Places) -> Floats | None:
    """The numbers in chosen lines and columns; None where one of them is not a number of usual size."""
    where = np.ix_(rows, columns)
    try:
        values = decimals(buffer, starts[where].ravel(), ends[where].ravel())
    except ValueError:
        return None
    return values.reshape(len(rows), len(columns)) if bool((np.abs(values) <= LARGEST).all()) else None
