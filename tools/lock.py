"""The lock file: every package that halp and its extras need, in the version that is installed, with the hashes of its files.

`python tools/lock.py --wheels FOLDER > requirements.lock` writes down the installed set. Versions are those of this environment,
hashes those that the package index states for them, on every platform, for this version of Python. `--wheels` adds the hashes of
wheels that lie in a folder, such as a build of torch for CPUs, which is not the index's. `--check requirements.lock` compares an
environment with a lock and needs no network. One requirement is one line, so that `grep` can leave one out.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
import urllib.parse
import urllib.request
from importlib import metadata
from pathlib import Path
from typing import Any

import tomlkit
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).parents[1]
HEAD = """\
# The tested set with hashes (Python {python}, Linux; torch as built for CPUs). Made by tools/lock.py, not by hand.
# pip install --require-hashes --no-deps -r requirements.lock && pip install --no-deps -e .
"""
#: Interpreters and interfaces that this version of Python takes, of any platform.
PYTHONS = {(tag.interpreter, tag.abi) for tag in sys_tags()}


def roots() -> list[Requirement]:
    """What pyproject.toml asks for, all extras included."""
    project = tomlkit.parse((ROOT / "pyproject.toml").read_text(encoding="utf-8")).unwrap()["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    return [Requirement(text) for text in [*project["dependencies"], *extras] if not text.startswith("halp")]


def closure() -> dict[str, str]:
    """Names and installed versions of everything needed; an extra that is not installed is left out."""
    found: dict[str, str] = {}
    waiting = [(one, frozenset(one.extras)) for one in roots()]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted, extras = waiting.pop()
        name = canonicalize_name(wanted.name)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            installed = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = Version(installed.version).public
        for text in installed.requires or []:
            need = Requirement(text)
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                waiting.append((need, frozenset(need.extras)))
    return dict(sorted(found.items()))


def index_address() -> str:
    """The package index that pip uses here."""
    from pip._internal.models.index import PyPI

    return (os.environ.get("PIP_INDEX_URL") or PyPI.simple_url).rstrip("/")


def index_hashes(name: str, version: str) -> set[str]:
    """SHA-256 of every file of a version, as the index states them."""
    # the plain list of links, which every index has; a link ends in file name and hash
    with urllib.request.urlopen(f"{index_address()}/{name}/", timeout=60) as answer:  # noqa: S310
        page = answer.read().decode("utf-8")
    links = re.findall(r"""href=["'][^"']*?([^/"']+)#sha256=([0-9a-f]{64})["']""", page)
    return {digest for filename, digest in links if file_version(urllib.parse.unquote(filename)) == version}


def file_version(filename: str) -> str | None:
    """The version that a file of the index is of; None for what this version of Python does not install.

    >>> file_version("torch-2.13.0+cpu-py3-none-any.whl"), file_version("six-1.17.0.tar.gz"), file_version("six-1.17.0.exe")
    ('2.13.0', '1.17.0', None)
    """
    try:
        if not filename.endswith(".whl"):
            return parse_sdist_filename(filename)[1].public
        _, version, _, tags = parse_wheel_filename(filename)
    except ValueError:
        return None
    return version.public if any((tag.interpreter, tag.abi) in PYTHONS for tag in tags) else None


def wheel_hashes(folder: Path, name: str, version: str) -> set[str]:
    """SHA-256 of the wheels of a version in a folder."""
    return {
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("*.whl"))
        if canonicalize_name(path.name.split("-")[0]) == name and file_version(path.name) == version
    }


def read_lock(text: str) -> dict[str, tuple[str, set[str]]]:
    """Version and hashes by name."""
    found = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"([a-z0-9-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)", line):
            found[match[1]] = (match[2], set(re.findall(r"[0-9a-f]{64}", match[3])))
        elif line and not line.startswith("#"):
            raise SystemExit(f"lock: the line '{line[:60]}' is not a requirement with hashes")
    return found


def differences(lock: dict[str, tuple[str, Any]]) -> list[str]:
    """Packages of this environment that are not those of a lock."""
    installed = closure()
    wrong = [f"{name}: {lock[name][0]} in the lock, {version} here" for name, version in installed.items()
             if name in lock and lock[name][0] != version]  # fmt: skip
    return wrong + [
        f"{name}: not in the lock, {version} here" for name, version in installed.items() if name not in lock
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, help="a folder whose wheels are allowed too")
    parser.add_argument("--check", type=Path, help="compare this environment with a lock")
    chosen = parser.parse_args()
    if chosen.check:
        found = differences(read_lock(chosen.check.read_text(encoding="utf-8")))
        sys.stdout.write("\n".join(found or ["every package is the one of the lock"]) + "\n")
        return int(bool(found))
    sys.stdout.write(HEAD.format(python=".".join(map(str, sys.version_info[:2]))))
    for name, version in closure().items():
        hashes = index_hashes(name, version)
        if chosen.wheels:
            hashes |= wheel_hashes(chosen.wheels, name, version)
        if not hashes:
            raise SystemExit(f"lock: the index knows no file of {name} {version}; give its wheel with --wheels")
        sys.stdout.write(f"{name}=={version} " + " ".join(f"--hash=sha256:{one}" for one in sorted(hashes)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
