"""The version of the package, in one place."""

__version__ = "0.3.0"
DISTRIBUTION = "halp-motion"  # on the package index; `halp` there is another project


def revision() -> str | None:
    """The commit of this copy of halp, with `+` if files differ from it; None for an installed release."""
    import shutil
    import subprocess
    from pathlib import Path

    git, folder = shutil.which("git"), Path(__file__).parent
    if git is None:
        return None

    def ask(*words: str) -> str:
        command = [git, "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603

    commit = ask("rev-parse", "HEAD") if ask("ls-files", "_version.py") else ""
    return f"{commit}{'+' if ask('status', '--porcelain', '--', '.') else ''}" if commit else None
