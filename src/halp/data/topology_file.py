"""A custom topology from a small TOML file: joints, bones, centre and axes.

```toml
name = "rat"
dimensions = 2
joints = ["nose", "neck", "hip", "tail"]
bones = [["nose", "neck"], ["neck", "hip"], ["tail", "hip"]]   # child, parent
centre = "hip"                                                  # optional, as are:
up = ["hip", "neck"]
across = ["shoulder_left", "shoulder_right"]
```
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from halp.core.errors import InputError, check_choice
from halp.data.source_files import MIB, read_text
from halp.skeleton import Topology, canonical_joints, chain, get_topology

_MOST_JOINTS = 500
# Every joint stands in quotes once among the joints and at most twice in each bone; the parser is slow.
_MOST_QUOTES = 10 * 2 * _MOST_JOINTS
_FIELDS = ("name", "dimensions", "joints", "bones", "centre", "up", "across")


def find_topology(name: str | Topology) -> Topology:
    """A topology by its name, or read from a `.toml` file."""
    if isinstance(name, Topology):
        return name
    return read_topology(Path(name)) if name.lower().endswith(".toml") else get_topology(name)


def read_topology(path: Path) -> Topology:
    """The topology in a TOML file; joints are named in halp's spelling (`hip_left`)."""
    # Loaded here, because listing formats imports this module and has no use for TOML.
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    text = read_text(path, MIB)
    if text.count('"') + text.count("'") > _MOST_QUOTES:
        raise InputError(f"'{path}' names more than {_MOST_JOINTS} joints; shorten it")
    try:
        data: dict[str, Any] = tomlkit.parse(text).unwrap()
    except TOMLKitError as error:
        raise InputError(f"'{path}' is not TOML ({error}); correct that line") from None
    for field in data:
        check_choice(f"entry of topology file '{path}'", field, _FIELDS)
    given = _texts(path, data, "joints", required=True)
    names = dict(zip(given, canonical_joints(given)))

    def joint(field: str, name: str) -> str:
        return names[check_choice(f"joint in '{field}' of '{path}'", name, names)]

    dimensions = data.get("dimensions", 3)
    if dimensions not in (2, 3):
        raise InputError(f"'{path}': dimensions = {dimensions!r} is not possible; give 2 or 3")
    pairs = data.get("bones", [])
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise InputError(f'\'{path}\': bones is a list of pairs [child, parent], such as [["head", "neck"]]')
    bones = {joint("bones", str(child)): joint("bones", str(parent)) for child, parent in pairs}
    if len(bones) != len(pairs):
        raise InputError(f"'{path}': a joint has two parents in bones; give every joint one")
    axes = {}
    for field in ("up", "across"):
        ends = _texts(path, data, field)
        if ends and len(ends) != 2:
            raise InputError(f"'{path}': {field} is a pair of joints [from, to]")
        axes[field] = (joint(field, ends[0]), joint(field, ends[1])) if ends else None
    joints = list(names.values())
    centre = joint("centre", str(data["centre"])) if "centre" in data else joints[0]
    name = str(data.get("name", path.stem))
    return Topology(name, tuple(joints), chain(joints, bones), centre=centre, dimensions=dimensions, **axes)


def _texts(path: Path, data: dict[str, Any], field: str, *, required: bool = False) -> list[str]:
    """A list of joint names, none of them twice."""
    values = data.get(field, [])
    sound = isinstance(values, list) and all(isinstance(value, str) and value.strip() for value in values)
    if (
        not sound
        or len(set(values)) != len(values)
        or len(values) > _MOST_JOINTS
        or (required and not values)
    ):
        raise InputError(
            f'\'{path}\': {field} must be a list of different joint names, such as ["head", "neck"]'
        )
    return list(values)
