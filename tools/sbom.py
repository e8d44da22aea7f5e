"""The bill of materials of an installation: every package with version, licence and source, as CycloneDX JSON and as a table.

`python tools/sbom.py --json sbom.json --licences licences.md --hashes hashes.txt` needs nothing but Python. Packages are those
that halp and its extras need, followed through their requirements; the hashes are those of the installed files, which
`--check hashes.txt` compares later.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(found: metadata.Distribution) -> set[str]:
    """Names of what a package asks for on this machine or in any extra that is installed."""
    names = set()
    for line in found.requires or []:
        if match := re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line):
            names.add(canonical(match[0]))
    return names


def closure(root: str = "halp") -> dict[str, metadata.Distribution]:
    """Every installed package that the root needs, directly or not."""
    installed = {canonical(one.metadata["Name"]): one for one in metadata.distributions() if one.metadata["Name"]}
    if root not in installed:
        raise SystemExit(f"sbom: '{root}' is not installed in this environment; install it first")
    chosen, waiting = {}, [root]
    while waiting:
        name = waiting.pop()
        if name in installed and name not in chosen:
            chosen[name] = installed[name]
            waiting += sorted(requirements(installed[name]))
    return dict(sorted(chosen.items()))


def licence(found: metadata.Distribution) -> str:
    """The licence as the package states it: expression, classifiers, or the first line of its field."""
    fields = found.metadata
    if expression := fields.get("License-Expression"):
        return str(expression)
    named = [line.rpartition(" :: ")[2] for line in fields.get_all("Classifier") or [] if line.startswith("License ::")]
    first = str(fields.get("License") or "").strip().splitlines()[:1]
    return ", ".join(named) or (first[0][:80] if first else "not stated")


def fingerprint(found: metadata.Distribution) -> str:
    """SHA-256 over the names and recorded hashes of a package's files; files that were made after installation are left out."""
    rows = sorted(
        f"{file} {file.hash.value}"
        for file in found.files or []
        if file.hash is not None and not str(file).endswith(".pyc")
    )
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def bill(packages: dict[str, metadata.Distribution]) -> dict[str, Any]:
    """The packages as a CycloneDX 1.5 document."""
    components = [
        {
            "type": "library",
            "name": name,
            "version": one.version,
            "purl": f"pkg:pypi/{name}@{one.version}",
            "licenses": [{"license": {"name": licence(one)}}],
            "hashes": [{"alg": "SHA-256", "content": fingerprint(one)}],
        }
        for name, one in packages.items()
    ]
    wanted = [
        {"ref": f"pkg:pypi/{name}@{one.version}", "dependsOn": sorted(
            f"pkg:pypi/{need}@{packages[need].version}" for need in requirements(one) if need in packages and need != name
        )}
        for name, one in packages.items()
    ]  # fmt: skip
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "components": components,
        "dependencies": wanted,
    }


def licences(packages: dict[str, metadata.Distribution]) -> str:
    rows = [f"| {name} | {one.version} | {licence(one)} |" for name, one in packages.items()]
    return "\n".join(["| package | version | licence |", "| --- | --- | --- |", *rows]) + "\n"


def hashes(packages: dict[str, metadata.Distribution]) -> str:
    return "".join(f"{name}=={one.version} sha256:{fingerprint(one)}\n" for name, one in packages.items())


def differences(packages: dict[str, metadata.Distribution], recorded: str) -> list[str]:
    """Packages whose version or files are not those of a record."""
    before, now = set(recorded.split("\n")) - {""}, set(hashes(packages).split("\n")) - {""}
    return sorted(f"recorded: {line}" for line in before - now) + sorted(f"found: {line}" for line in now - before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("json", "licences", "hashes", "check"):
        parser.add_argument(f"--{name}", type=Path)
    chosen = parser.parse_args()
    packages = closure()
    if chosen.json:
        chosen.json.write_text(json.dumps(bill(packages), indent=1) + "\n", encoding="utf-8")
    if chosen.licences:
        chosen.licences.write_text(licences(packages), encoding="utf-8")
    if chosen.hashes:
        chosen.hashes.write_text(hashes(packages), encoding="utf-8")
    if chosen.check:
        found = differences(packages, chosen.check.read_text(encoding="utf-8"))
        sys.stdout.write("\n".join(found or ["every package is the recorded one"]) + "\n")
        return int(bool(found))
    sys.stdout.write(f"{len(packages)} packages\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
