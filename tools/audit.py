"""Known vulnerabilities of the lock file without a network: compared with advisories that were fetched beforehand.

`python tools/audit.py requirements.lock advisories.zip` reads advisories in the OSV format (a zip or a folder of JSON files, such
as the export of the ecosystem "PyPI" that the OSV project publishes) and names every one that concerns a locked version.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version


def advisories(source: Path) -> Iterator[dict[str, Any]]:
    """Every advisory of a zip or folder that was not withdrawn."""
    if source.is_dir():
        texts: Iterator[str | bytes] = (path.read_bytes() for path in sorted(source.rglob("*.json")))
    else:
        archive = zipfile.ZipFile(source)
        texts = (archive.read(name) for name in sorted(archive.namelist()) if name.endswith(".json"))
    for text in texts:
        found = json.loads(text)
        if not found.get("withdrawn"):
            yield found


def concerns(affected: dict[str, Any], version: Version) -> bool:
    """Whether one entry of `affected` names a version: by itself, or by a range of releases."""
    if str(version) in {str(parsed(text)) for text in affected.get("versions", ())}:
        return True
    return any(
        within(ordered.get("events", ()), version)
        for ordered in affected.get("ranges", ())
        if ordered.get("type") == "ECOSYSTEM"
    )


def within(events: Any, version: Version) -> bool:
    """Whether a version lies between an `introduced` and the `fixed` or `last_affected` that follows it.

    >>> events = [{"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "2.0"}, {"last_affected": "2.1"}]
    >>> [text for text in ("1.1", "1.2", "2.0", "2.1", "2.2") if within(events, Version(text))]
    ['1.1', '2.0', '2.1']
    """
    rows = [(kind, parsed(text)) for event in events for kind, text in event.items()]
    inside = False
    for kind, bound in sorted((row for row in rows if row[1] is not None), key=lambda row: row[1] or Version("0")):
        if bound is not None and kind == "introduced" and version >= bound:
            inside = True
        elif bound is not None and (
            (kind == "fixed" and version >= bound) or (kind == "last_affected" and version > bound)
        ):
            inside = False
    return inside


def parsed(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def locked(text: str) -> dict[str, Version]:
    """Versions of a lock file by name."""
    return {canonicalize_name(name): Version(found) for name, found in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.M)}


def audit(lock: dict[str, Version], source: Path) -> tuple[int, list[str]]:
    """How many advisories were read, and a line for each that concerns a locked version."""
    count, found = 0, []
    for advisory in advisories(source):
        count += 1
        for affected in advisory.get("affected", ()):
            package = affected.get("package", {})
            name = canonicalize_name(str(package.get("name", "")))
            if package.get("ecosystem") == "PyPI" and name in lock and concerns(affected, lock[name]):
                found.append(f"{name} {lock[name]}: {advisory.get('id')} {advisory.get('summary', '')}".strip())
    return count, sorted(set(found))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lock", type=Path)
    parser.add_argument("advisories", type=Path, help="a zip or folder of OSV records")
    chosen = parser.parse_args()
    lock = locked(chosen.lock.read_text(encoding="utf-8"))
    count, found = audit(lock, chosen.advisories)
    sys.stdout.write("".join(f"{line}\n" for line in found))
    sys.stdout.write(f"{len(lock)} packages, {count} advisories, {len(found)} concern them\n")
    return int(bool(found) or not count)


if __name__ == "__main__":
    sys.exit(main())
