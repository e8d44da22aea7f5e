"""The lock file: the versions of constraints.txt, with hashes, for everything that halp asks for."""

from __future__ import annotations

import re
from pathlib import Path

import tomlkit
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
TESTED = {"python_version": "3.11", "sys_platform": "linux"}
APART = {"torch"}  # in the build that fits the machine
UNSTATED = {"pympi-ling"}  # MIT in its repository, not in its metadata


def lock() -> dict[str, tuple[str, int]]:
    """Version and number of hashes of every locked package."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {
        canonicalize_name(wanted.partition("==")[0]): (
            wanted.partition("==")[2],
            sum(bool(re.fullmatch("--hash=sha256:[0-9a-f]{64}", word)) for word in more),
        )
        for wanted, *more in lines
    }


def test_lock_and_constraints_agree() -> None:
    constraints = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        wanted, _, marker = line.partition(";")
        if wanted.strip() and not wanted.startswith("#") and (not marker or Marker(marker).evaluate(TESTED)):
            name, _, version = wanted.strip().partition("==")
            constraints[canonicalize_name(name)] = version
    locked = {name: version for name, (version, _) in lock().items()}
    assert len(constraints) > 20
    assert {name: locked[name] for name in constraints if name in locked} == {
        name: version for name, version in constraints.items() if name in locked
    }
    assert set(constraints) - set(locked) - APART == set()


def test_every_package_that_halp_asks_for_is_in_the_lock_with_hashes() -> None:
    project = tomlkit.parse((ROOT / "pyproject.toml").read_text(encoding="utf-8")).unwrap()["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    wanted = {canonicalize_name(Requirement(text).name) for text in [*project["dependencies"], *extras]}
    locked = lock()
    assert wanted - {canonicalize_name(project["name"]), *APART} <= set(locked)
    assert all(hashes for _, hashes in locked.values())
    assert "://" not in (ROOT / "requirements.lock").read_text(encoding="utf-8"), (
        "a lock names no place to fetch from"
    )


def test_every_locked_package_has_its_licence_in_the_table() -> None:
    text = (ROOT / "DEPENDENCIES.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w-]+) \| (\S+) \| ([^|]+) \| [^|]+ \|$", text, flags=re.M)
    listed = {name: version for name, version, _ in rows}
    assert {name: version for name, (version, _) in lock().items()}.items() <= listed.items(), "make licences"
    assert {"torch"} < set(listed)
    assert not [name for name, _, licence in rows if licence in ("not stated", "–") and name not in UNSTATED]
