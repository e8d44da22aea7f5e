"""`make wheel`: build the source distribution and the wheel, look into them, and try the wheel in empty
environments.

    python tools/try_wheel.py [--python EXECUTABLE …] [--extra NAME …] [--lowest] [--torch VERSION]
        [--no-install] [--json FILE]

Sources are taken from the last commit, so that nothing of this folder slips in. `--python` tries it with
other versions of Python, `--extra` with each of these extras alone (`--extra all`: all that users need),
`--lowest` with the lowest versions that pyproject.toml allows; torch is the one that constraints.txt
pins, or `--torch`.
The tries run without a network where the system can cut it off (`unshare`). Prints sizes and times as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
# a wheel without these would be broken: pattern → what it is
WANTED = {
    r"halp/recipes/.*\.toml": "recipes",
    r"halp/reproduce/paper_tables\.toml": "the paper's tables",
    r"halp/encoders/shipped/halp-base/model\.safetensors": "the encoder of 3D poses",
    r"halp/encoders/shipped/halp-view/model\.safetensors": "the encoder of 2D poses",
    r"halp/explorer?/static/index\.html": "the page of the explorer",
    r"halp/evaluation/result\.schema\.json": "the schema of results",
    r"halp/py\.typed": "the mark of a typed package",
}
LOAD = (
    "import halp; [print(name, halp.load_encoder(name).topology.name) for name in ('halp-base', 'halp-view')]"
)
TRIES = (
    "halp --version",
    "halp recipes",
    "halp formats",
    "halp doctor",
    "python make_recordings.py recordings",
    "halp search halp-base recordings/wave/person1_1.bvh --in recordings -k 3 --html found.html",
    "halp prepare auto recordings stores/mine",
    "halp pretrain small --data stores/mine --run runs/mine --set epochs=1",
    "halp evaluate runs/mine",
    "halp segment halp-base long.bvh --out segments.csv",
)
STARTS = ("python -c pass", "python -c 'import torch'", "python -c 'import halp'", "halp --help")
EXTRAS = {
    "loggers": "halp pretrain small --data stores/mine --run runs/logged --set epochs=1 --log tensorboard",
    "search": "python -c 'import faiss'",
    "onnx": "halp export halp-base package --onnx",
    "hub": "python -c 'import huggingface_hub'",
    "graphs": "python -c 'import torch_geometric'",
    "explore": "halp explore recordings --static explored",
    "notebook": "python -c 'import anywidget'",
    "umap": "python -c 'import umap'",
    "formats": "python -c 'import h5netcdf, h5py'",
    "sleap": "python -c 'import sleap_io'",
    "video": "python -c 'import halp.video, mediapipe, av'",
    "cluster": "python -c 'import distributed'",
    "nwb": "python -c 'import pynwb, ndx_pose'",
    "serve": "python -c 'import halp.serve.server, uvicorn'",
    "statistics": "python -c 'import statsmodels'",
    "findings": "halp events segments.csv events.xlsx",
}


def run(*command: str, cwd: str | Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command, show its output where it fails, and hand it on."""
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env)
    if answer.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{answer.stdout}\n{answer.stderr}")
    return answer.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """Source distribution and wheel from a clean copy of the last commit."""
    archive, copy, out = folder / "commit.tar", folder / "copy", folder / "dist"
    run("git", "-C", str(ROOT), "archive", "--output", str(archive), "HEAD")
    with tarfile.open(archive) as packed:
        packed.extractall(copy, filter="data")
    (ROOT / "dist").mkdir(exist_ok=True)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(copy))
    kept = [shutil.copy(path, ROOT / "dist") for path in sorted(out.iterdir())]
    print("built:", *kept, sep="\n  ", file=sys.stderr)
    return next(out.glob("*.tar.gz")), next(out.glob("*.whl"))


def check_contents(wheel: Path, sdist: Path) -> None:
    """Stop where something is missing from either, or does not belong there."""
    inside = zipfile.ZipFile(wheel).namelist()
    with tarfile.open(sdist) as archive:
        packed = archive.getnames()
    for pattern, title in WANTED.items():
        if not any(re.fullmatch(pattern, name) for name in inside):
            raise SystemExit(f"{wheel.name} lacks {title} ({pattern})")
    for name in ("LICENSE", "README.md", "recipes"):
        if not any(name in Path(path).parts for path in packed):
            raise SystemExit(f"{sdist.name} lacks {name}")
    unwanted = [
        name for name in inside if name.startswith(("tests/", "benchmarks/")) or name.endswith(".npz")
    ]
    if unwanted:
        raise SystemExit(f"{wheel.name} holds what does not belong there: {unwanted[:3]}")


def requirements(wheel: Path) -> dict[str, list[Requirement]]:
    """What the wheel asks for, by extra; the core is under ''."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    by_extra: dict[str, list[Requirement]] = {}
    for line in lines:
        if line.startswith("Requires-Dist:"):
            wanted = Requirement(line.removeprefix("Requires-Dist:").strip())
            extra = re.search(r"extra == ['\"]([\w-]+)", str(wanted.marker or ""))
            by_extra.setdefault(extra[1] if extra else "", []).append(wanted)
    return by_extra


def lowest(wheel: Path, extras: list[str]) -> list[str]:
    """Requirements of the core and of some extras at their lowest versions; torch stays as the constraints
    pin it.
    """
    wanted = requirements(wheel)
    pairs = [
        requirement for key in {"", *extras} for requirement in wanted[key] if requirement.name != "torch"
    ]
    return [
        f"{pair.name}=={spec.version}" for pair in pairs for spec in pair.specifier if spec.operator == ">="
    ]


def offline() -> list[str]:
    """The command that runs another without a network, where the system has one."""
    tool = shutil.which("unshare")
    works = tool and subprocess.run([tool, "-n", "true"], capture_output=True, check=False).returncode == 0
    return [str(tool), "-n"] if works else []


def try_wheel(wheel: Path, python: str, extras: list[str], low: bool, torch: str) -> dict[str, object]:
    """Install the wheel into an empty environment and type what a newcomer types first, then each extra
    alone; in seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", f"{folder}/venv")
        bin_folder = Path(folder) / "venv" / ("Scripts" if os.name == "nt" else "bin")
        work = Path(folder) / "work"
        work.mkdir()
        shutil.copy(ROOT / "examples" / "make_recordings.py", work)
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment = {**clean, "HALP_CACHE": f"{folder}/cache"}
        seconds: dict[str, float] = {}

        def pip(*words: str) -> list[str]:
            return run(str(bin_folder / "python"), "-m", "pip", *words, env=environment).splitlines()

        def install(extra: str) -> None:
            began = time.monotonic()
            tested = Path(folder) / "constraints.txt"
            text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
            tested.write_text(re.sub(r"^torch==\S+", f"torch=={torch}", text, flags=re.M), encoding="utf-8")
            pins = [f"torch=={torch}", *lowest(wheel, [extra])] if low else ["-c", str(tested)]
            pip("install", "--quiet", *pins, f"{wheel}[{extra}]" if extra else str(wheel))
            seconds[f"install {extra}".strip()] = round(time.monotonic() - began, 1)

        def typed(command: list[str]) -> float:
            start = time.monotonic()
            run(*offline(), str(bin_folder / command[0]), *command[1:], cwd=work, env=environment)
            return time.monotonic() - start

        install("")
        for line in TRIES:
            seconds[line] = round(typed(shlex.split(line)), 2)
        seconds["load both encoders"] = round(typed(["python", "-c", LOAD]), 2)
        rounds = [{line: typed(shlex.split(line)) for line in STARTS} for _ in range(5)]
        ratios = {
            line: round(statistics.median(each[line] / each[STARTS[0]] for each in rounds), 1)
            for line in STARTS
        }
        sizes = [path.stat().st_size for path in (Path(folder) / "venv").rglob("*") if path.is_file()]
        core = pip("list", "--format=freeze")
        for extra in extras:
            install(extra)
            seconds[EXTRAS[extra]] = round(typed(shlex.split(EXTRAS[extra])), 2)
            names = {line.split("==")[0] for line in core}
            added = [
                name for line in pip("list", "--format=freeze") if (name := line.split("==")[0]) not in names
            ]
            pip("uninstall", "--quiet", "--yes", *added)
    return {
        "python": run(python, "--version").split()[1],
        "extras": extras,
        "lowest": low,
        "offline": bool(offline()),
        "installed MB": round(sum(sizes) / 1e6),
        "packages": len(core),
        "torch": next((line for line in core if line.startswith("torch==")), ""),
        "times of an empty Python": ratios,
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", nargs="*", default=[sys.executable])
    parser.add_argument("--extra", nargs="*", default=[])
    parser.add_argument("--lowest", action="store_true")
    pinned = re.search(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), flags=re.M)
    parser.add_argument("--torch", default=pinned[1] if pinned else "")
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    extras = list(EXTRAS) if chosen.extra == ["all"] else chosen.extra
    with tempfile.TemporaryDirectory() as folder:
        sdist, wheel = build(Path(folder))
        check_contents(wheel, sdist)
        if untried := requirements(wheel).keys() - {"", "dev", "docs", "fuzz", *EXTRAS}:
            raise SystemExit(f"no command tries the extras {sorted(untried)}; add them to EXTRAS")
        run(sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel))
        facts: dict[str, object] = {"sdist bytes": sdist.stat().st_size, "wheel bytes": wheel.stat().st_size}
        if not chosen.no_install:
            facts["tries"] = [
                try_wheel(wheel, python, extras, chosen.lowest, chosen.torch) for python in chosen.python
            ]
    text = json.dumps(facts, indent=1) + "\n"
    sys.stdout.write(text)
    if chosen.json:
        chosen.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
