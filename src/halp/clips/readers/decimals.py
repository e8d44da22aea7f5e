"""Decimal numbers of a whole text at once: positions of the words come in, float64 comes out, equal to `float` bit for bit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Fifteen digits and a factor of a power of ten up to 10^22 are exact in float64, so one division rounds correctly.
_WIDTH = 14
_HALF = 7
_TENS = 10.0 ** np.arange(_WIDTH + 1)


def line_ends(data: bytes) -> tuple[Bytes, Places]:
    r"""The text as bytes and where its lines end.

    >>> line_ends(b"1 23\n4")[1].tolist()
    [4, 6]
    """
    buffer = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(buffer == 10)
    return buffer, ends if data.endswith(b"\n") else np.append(ends, len(data))


def leading_words(buffer: Bytes, starts: Places, count: int) -> tuple[Places, Places]:
    """Where the first words of lines start and end, `(n, count)` each; raises ValueError where they are too long.

    Words are separated by single blanks; one has to follow the last of them.

    >>> text = np.frombuffer(b"1 23 4 5", dtype=np.uint8)
    >>> [places.tolist() for places in leading_words(text, np.array([0]), 3)]
    [[[0, 2, 5]], [[1, 4, 6]]]
    """
    width = (_WIDTH + 1) * count
    if starts.max(initial=0) + width > len(buffer):
        buffer = np.append(buffer, np.zeros(width, dtype=np.uint8))
    blank = _picked(buffer, starts, width) == 32
    before = np.zeros(len(starts), dtype=np.uint8)
    ends = np.zeros((count, len(starts)), dtype=np.uint8)
    numbers = np.arange(count, dtype=np.uint8)[:, None]
    for column in blank:
        before += column
        ends += before <= numbers
    if (before < count).any():
        raise ValueError("a word is too long to be a number")
    lengths = ends.T.astype(np.int64)
    first = np.concatenate([np.zeros((len(starts), 1), dtype=np.int64), lengths[:, :-1] + 1], axis=1)
    return starts[:, None] + first, starts[:, None] + lengths


def decimals(buffer: Bytes, starts: Places, ends: Places) -> Floats:
    """The numbers `(n,)` that stand at `buffer[start:end]`; raises ValueError where one is none.

    >>> text = np.frombuffer(b"-12.5 0.25 3 1e-3", dtype=np.uint8)
    >>> decimals(text, np.array([0, 6, 11, 13]), np.array([5, 10, 12, 17])).tolist()
    [-12.5, 0.25, 3.0, 0.001]
    """
    if not len(buffer):
        raise ValueError("there is no number in an empty text")
    lengths = np.minimum(ends - starts, 255).astype(np.uint8)
    width = min(_WIDTH, int(lengths.max()), len(buffer)) if len(lengths) else 1
    from_right = np.arange(width, dtype=np.uint8)[::-1, None]
    inside = lengths > from_right
    letters = _picked(buffer, np.maximum(ends - width, 0), width)
    digits = letters - np.uint8(48)
    is_digit = (digits < 10) & inside
    is_dot = (letters == 46) & inside
    digits *= is_digit
    dots = is_dot.sum(axis=0, dtype=np.uint8)
    negative = buffer.take(np.minimum(starts, len(buffer) - 1)) == 45
    plain = is_digit.sum(axis=0, dtype=np.uint8) + dots + negative == lengths
    # The letters of a word too near to the start of the text are not those that end it.
    plain &= (dots <= 1) & (lengths > dots + negative) & (ends >= width)
    # Digits before the dot stand one place too far left, since the dot itself takes one.
    behind = np.minimum((is_dot * from_right).sum(axis=0, dtype=np.uint8), width)
    together = _joined(digits[:-_HALF]) * 10.0**_HALF + _joined(digits[-_HALF:])
    factor = _TENS.take(behind)
    before = np.floor(together / (factor * 10))
    # Exact whole numbers throughout; the only rounding is that of the last division.
    values = (together - before * factor * 9 * dots) / factor
    np.negative(values, out=values, where=negative)
    for odd in np.flatnonzero(~plain):
        word = buffer[starts[odd] : ends[odd]].tobytes()
        if b"_" in word:
            raise ValueError(f"{word!r} is not a number")
        values[odd] = float(word)
    return values


def _joined(digits: Bytes) -> npt.NDArray[np.uint32]:
    """Digits `(k, n)`, the leading ones first, as whole numbers `(n,)`; k is small enough for 32 bits."""
    result = np.zeros(digits.shape[1], dtype=np.uint32)
    for row in digits:
        result *= np.uint32(10)
        result += row
    return result


def _picked(buffer: Bytes, starts: Places, width: int) -> Bytes:
    """The `width` letters from every start on, `(width, n)`."""
    # One element for every position, overlapping its neighbours: far faster to pick from than single letters.
    overlapping = np.ndarray((len(buffer) - width + 1,), f"V{width}", buffer, strides=(1,))
    return np.ascontiguousarray(overlapping[starts].view(np.uint8).reshape(-1, width).T)
