"""What the explorer keeps beside the vectors is checked before it is shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from halp.explorer.collection import kept_array


@pytest.mark.parametrize("damage", ["noise", "shorter", "no array", "no hash"])
def test_a_kept_map_that_was_changed_is_made_again(tmp_path: Path, damage: str) -> None:
    path, calls = tmp_path / "map.npy", []

    def places() -> np.ndarray:
        calls.append(1)
        return np.arange(6.0).reshape(3, 2)

    assert kept_array(path, places).tolist() == kept_array(path, places).tolist()
    assert len(calls) == 1, "the second time it is read"
    if damage == "no array":
        path.write_bytes(b"nothing")
    elif damage == "no hash":
        (tmp_path / "map.npy.sha256").unlink()
    else:
        np.save(path, np.full((3 if damage == "noise" else 2, 2), 9.0))
    assert kept_array(path, places).tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert len(calls) == 2
    assert kept_array(path, places).shape == (3, 2)
    assert len(calls) == 2
