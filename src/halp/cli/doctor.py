"""What is installed, what is missing and how to install it: the answer of `halp doctor`."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from halp._version import DISTRIBUTION, __version__
from halp.core.files import read_toml

DEVELOPMENT = ("dev", "fuzz")  # extras that users do not need


def diagnose() -> dict[str, Any]:
    """Versions, devices, extras with what each lacks, and caches with their size in bytes."""
    core = [name for name, extra in _requirements() if extra is None]
    extras: dict[str, list[str]] = {}
    for name, extra in _requirements():
        if extra is not None and extra not in DEVELOPMENT and name != DISTRIBUTION:
            extras.setdefault(extra, []).append(name)
    return {
        "halp": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": {name: _version(name) for name in core},
        "extras": {
            extra: {
                "missing": [name for name in names if _version(name) is None],
                "install": f"pip install '{DISTRIBUTION}[{extra}]'",
            }
            for extra, names in sorted(extras.items())
        },
        "conflict": _conflict(),
        "devices": _devices(),
        "cache": _cache(),
    }


def _requirements() -> list[tuple[str, str | None]]:
    """Requirements of halp, each with the extra that it belongs to."""
    pairs = []
    for line in _requires():
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if name is not None:
            pairs.append((name.group(), None if extra is None else extra.group(1)))
    return pairs


def _requires() -> list[str]:
    """Requirements of the installed distribution; of pyproject.toml if halp runs from a checkout."""
    try:
        return metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        file = Path(__file__).parents[3] / "pyproject.toml"
    if not file.is_file():
        return []
    project = read_toml(file)["project"]
    extras = project["optional-dependencies"].items()
    return [
        *project["dependencies"],
        *(f'{line}; extra == "{extra}"' for extra, lines in extras for line in lines),
    ]


def _conflict() -> str | None:
    """The problem with the unrelated distribution `halp`, if installed: it has the same import name."""
    version = _version("halp")
    if version is None:
        return None
    return (
        f"the package 'halp' {version} is another project with the same import name and overwrites files of"
        f" {DISTRIBUTION}"
    )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _devices() -> list[str]:
    import torch

    devices = [f"cpu, {torch.get_num_threads()} threads"]
    devices += [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return [*devices, *(["mps"] if torch.backends.mps.is_available() else [])]


def _cache() -> dict[str, Any]:
    from halp.core.files import cache_home

    folder = cache_home()
    if folder is None:
        return {"folder": None, "bytes": 0, "files": 0}
    files = [path for path in Path(folder).rglob("*") if path.is_file()] if Path(folder).is_dir() else []
    return {"folder": str(folder), "bytes": sum(path.stat().st_size for path in files), "files": len(files)}


def completion(shell: str, commands: dict[str, list[str]]) -> str:
    """A script that completes commands and their options, to be sourced by bash, zsh or fish."""
    if shell == "fish":
        lines = [f"complete -c halp -f -n __fish_use_subcommand -a {name}" for name in commands]
        for name, options in commands.items():
            seen = f"complete -c halp -n '__fish_seen_subcommand_from {name}'"
            lines += [
                f"{seen} -l {word[2:]}" if word.startswith("--") else f"{seen} -a {word}" for word in options
            ]
        return "\n".join(lines)
    cases = "\n".join(f"    {name}) words='{' '.join(options)}' ;;" for name, options in commands.items())
    head = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return f"""{head}_halp() {{
  local words here="${{COMP_WORDS[COMP_CWORD]}}"
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=( $(compgen -W '{" ".join(commands)}' -- "$here") )
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  case "$here" in
    -*) COMPREPLY=( $(compgen -W "$words" -- "$here") ) ;;
    *) COMPREPLY=( $(compgen -W "${{words%%--*}}" -- "$here") $(compgen -f -- "$here") ) ;;
  esac
}}
complete -o filenames -F _halp halp"""
