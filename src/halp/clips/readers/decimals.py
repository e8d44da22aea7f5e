"""Decimal numbers of a whole text at once: positions of the words come in, float64 comes out, equal to `float` bit for bit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Fifteen digits and a factor of a power of ten up to 10^22 are exact in float64, so one division rounds correctly.
_WIDTH = 14
_FROM_RIGHT = np.arange(_WIDTH, dtype=np.uint8)[::-1, None]
_TENS = 10.0 ** np.arange(_WIDTH + 1)


def word_ends(data: bytes) -> tuple[Bytes, Places, Places]:
    """The text as bytes, where its words end (blanks and line ends), and for every line the number of its last word.

    >>> _, ends, last = word_ends(b"1 23\\n4")
    >>> ends.tolist(), last.tolist()
    ([1, 4, 6], [1, 2])
    """
    buffer = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero((buffer == 32) | (buffer == 10))
    last = np.flatnonzero(buffer[ends] == 10)
    if not data.endswith(b"\n"):
        last = np.append(last, len(ends))
        ends = np.append(ends, len(data))
    return buffer, ends, last


def decimals(buffer: Bytes, starts: Places, ends: Places) -> Floats:
    """The numbers `(n,)` that stand at `buffer[start:end]`; raises ValueError where one is none.

    >>> text = np.frombuffer(b"-12.5 0.25 3 1e-3", dtype=np.uint8)
    >>> decimals(text, np.array([0, 6, 11, 13]), np.array([5, 10, 12, 17])).tolist()
    [-12.5, 0.25, 3.0, 0.001]
    """
    if not len(buffer):
        raise ValueError("there is no number in an empty text")
    lengths = ends - starts
    inside = np.minimum(lengths, 255).astype(np.uint8) > _FROM_RIGHT
    letters = _windows(buffer, ends)
    digits = letters - np.uint8(48)
    is_digit = (digits < 10) & inside
    is_dot = (letters == 46) & inside
    digits *= is_digit
    dots = is_dot.sum(axis=0, dtype=np.uint8)
    negative = buffer.take(np.minimum(starts, len(buffer) - 1)) == 45
    plain = is_digit.sum(axis=0, dtype=np.uint8) + dots + negative == lengths
    plain &= (dots <= 1) & (lengths > dots + negative) & (ends >= _WIDTH)
    # Digits before the dot stand one place too far left, since the dot itself takes one.
    behind = (is_dot * _FROM_RIGHT).sum(axis=0, dtype=np.uint8)
    together = _TENS[_WIDTH - 1 :: -1] @ digits.astype(np.float64)
    factor = _TENS[behind]
    before = np.floor(together / (factor * 10))
    whole = np.where(dots == 1, before * factor + (together - before * factor * 10), together)
    values = whole / factor
    np.negative(values, out=values, where=negative)
    for odd in np.flatnonzero(~plain):
        word = buffer[starts[odd] : ends[odd]].tobytes()
        if b"_" in word:
            raise ValueError(f"{word!r} is no number")
        values[odd] = float(word)
    return values


def _windows(buffer: Bytes, ends: Places) -> Bytes:
    """The letters before every end, `(WIDTH, n)`; an end too near to the start of the text gets some other letters."""
    if len(buffer) < _WIDTH:
        return np.zeros((_WIDTH, len(ends)), dtype=np.uint8)
    # One element for every position, overlapping its neighbours: far faster to pick from than single letters.
    overlapping = np.ndarray((len(buffer) - _WIDTH + 1,), f"V{_WIDTH}", buffer, strides=(1,))
    return np.ascontiguousarray(overlapping[np.maximum(ends - _WIDTH, 0)].view(np.uint8).reshape(-1, _WIDTH).T)
