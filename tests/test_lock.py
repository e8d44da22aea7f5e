"""The lock file: hashes for everything that is needed, the versions of constraints.txt, and this environment compared with it."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.markers import Marker
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK, CONSTRAINTS = ROOT / "requirements.lock", ROOT / "constraints.txt"
TESTED = {"python_version": "3.11", "sys_platform": "linux"}


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lock", ROOT / "tools" / "lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def constraints() -> dict[str, str]:
    """Versions by name, as they hold where the lock was made."""
    found = {}
    for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines():
        wanted, _, marker = line.partition(";")
        if wanted.strip() and not wanted.startswith("#") and (not marker or Marker(marker).evaluate(TESTED)):
            name, _, version = wanted.strip().partition("==")
            found[canonicalize_name(name)] = version
    return found


def test_lock_and_constraints_agree(tool: ModuleType) -> None:
    lock = tool.read_lock(LOCK.read_text(encoding="utf-8"))
    assert len(constraints()) > 20
    assert {name: lock[name][0] for name in constraints()} == constraints()


def test_every_package_that_halp_asks_for_is_in_the_lock_with_hashes(tool: ModuleType) -> None:
    lock = tool.read_lock(LOCK.read_text(encoding="utf-8"))
    assert {canonicalize_name(one.name) for one in tool.roots()} <= set(lock)
    assert all(hashes for _, hashes in lock.values())
    assert "://" not in LOCK.read_text(encoding="utf-8"), "a lock names no place to fetch from"


def test_a_line_without_hashes_or_of_another_version_is_noticed(tool: ModuleType, tmp_path: Path) -> None:
    text = LOCK.read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="'numpy==2' is not a requirement with hashes"):
        tool.read_lock("numpy==2\n")
    (tmp_path / "lock").write_text(re.sub(r"^(numpy==)\S+", r"\g<1>0.1", text, flags=re.M))
    command = [sys.executable, str(ROOT / "tools" / "lock.py"), "--check", str(tmp_path / "lock")]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "numpy: 0.1 in the lock" in answer.stdout


def test_pip_takes_a_wheel_whose_hash_is_in_the_lock_and_no_other(tool: ModuleType, tmp_path: Path) -> None:
    """torch may come from a wheel of one's own: its hash is added by --wheels. Here with a package of a few bytes."""

    wheel = tmp_path / "wheels" / "tiny-1.0+cpu-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr("tiny-1.0+cpu.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0+cpu\n")
        archive.writestr(
            "tiny-1.0+cpu.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny-1.0+cpu.dist-info/RECORD", "")
    (own,) = tool.wheel_hashes(wheel.parent, "tiny", "1.0")
    for digest, code in ((own, 0), ("0" * 64, 1)):
        (tmp_path / "lock").write_text(f"tiny==1.0 --hash=sha256:{digest}\n")
        assert tool.read_lock((tmp_path / "lock").read_text())["tiny"] == ("1.0", {digest})
        options = ["--isolated", "--no-index", "--find-links", str(wheel.parent), "--require-hashes", "--no-deps"]
        command = [sys.executable, "-m", "pip", "install", *options, "--target", str(tmp_path / "out"), "--quiet", "-r"]
        answer = subprocess.run([*command, str(tmp_path / "lock")], capture_output=True, text=True, check=False)
        assert answer.returncode == code, answer.stderr
        assert code == 0 or "THESE PACKAGES DO NOT MATCH THE HASHES" in answer.stderr


def test_advisories_that_concern_a_locked_version_are_named_without_a_network(tmp_path: Path) -> None:
    version = constraints()["tomlkit"]

    def advisory(name: str, **affected: object) -> dict[str, object]:
        return {
            "id": f"TEST-{name}-{len(affected)}",
            "affected": [{"package": {"ecosystem": "PyPI", "name": name}, **affected}],
        }

    ordered = {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "9999"}]}
    records = [
        advisory("tomlkit", versions=["0.1"]),
        advisory("Tomlkit", versions=[version], ranges=[]),
        advisory("numpy", ranges=[ordered]),
        advisory("numpy", ranges=[{**ordered, "events": [{"introduced": "0"}, {"fixed": "0.5"}]}]),
        {**advisory("scipy", ranges=[ordered]), "withdrawn": "2020-01-01T00:00:00Z"},
        advisory("of-somebody-else", ranges=[ordered]),
    ]
    for number, record in enumerate(records):
        (tmp_path / f"{number}.json").write_text(json.dumps(record))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for path in tmp_path.glob("*.json"):
            archive.write(path, path.name)
    for source in (tmp_path, tmp_path / "all.zip"):
        command = [sys.executable, str(ROOT / "tools" / "audit.py"), str(LOCK), str(source)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        assert answer.returncode == 1, answer.stderr
        lines = answer.stdout.splitlines()
        assert [line.partition(":")[0].split()[0] for line in lines[:-1]] == ["numpy", "tomlkit"]
        assert "5 advisories, 2 concern them" in lines[-1]
