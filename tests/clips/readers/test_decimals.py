"""The fast reading of decimal numbers equals `float` bit for bit and refuses what is not a number."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halp.clips.readers.decimals import decimals, leading_words

CASES = int(os.environ.get("HALP_FUZZ_CASES", "200"))
NUMBERS = st.one_of(
    st.floats(-1e7, 1e7).map(lambda number: f"{number:.7g}"),
    st.floats(-10, 10).map(lambda number: f"{number:.6f}"),
    st.floats(allow_nan=False).map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.from_regex(r"-?[0-9]{0,8}\.[0-9]{1,8}", fullmatch=True),
    st.sampled_from(
        ["0", "-0", "5.", "+1", "1E-05", "-1.234567E-05", "inf", "00012.500", "99999999999999", "0.1234567890123"]
    ),
)


def read(text: str) -> np.ndarray:
    lengths = np.array([len(word) for word in text.split(" ")])
    ends = np.cumsum(lengths + 1) - 1
    return decimals(np.frombuffer(text.encode(), dtype=np.uint8), ends - lengths, ends)


@settings(max_examples=CASES, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=12))
def test_numbers_equal_float_bit_for_bit(words: list[str]) -> None:
    expected = np.array([float(word) for word in words])
    np.testing.assert_array_equal(read(" ".join(words)).view(np.int64), expected.view(np.int64))


@pytest.mark.parametrize("word", ["", "-", ".", "-.", "1.2.3", "1-2", "--1", "x", "1_0", "1e", "0x10", "1,5"])
def test_what_is_no_number_is_refused(word: str) -> None:
    for text in (word, f"12345678.5 {word} 1", f"{'1 ' * 20}{word}"):
        with pytest.raises(ValueError, match=r"."):
            read(text)


def test_leading_words_are_found_in_every_line_and_long_ones_refused() -> None:
    text = "-0.5 12.25 3 9 9\n1 2 3 4\n" + "7 " * 60
    starts, ends = leading_words(np.frombuffer(text.encode(), dtype=np.uint8), np.array([0, 17, 25]), 3)
    words = [[text[start:end] for start, end in zip(*row)] for row in zip(starts, ends)]
    assert words == [["-0.5", "12.25", "3"], ["1", "2", "3"], ["7", "7", "7"]]
    long = np.frombuffer(b"1" * 200, dtype=np.uint8)
    with pytest.raises(ValueError, match="too long"):
        leading_words(long, np.array([0]), 3)
    with pytest.raises(ValueError, match="too long"):
        leading_words(np.frombuffer(b"1 2", dtype=np.uint8), np.array([0]), 3)
