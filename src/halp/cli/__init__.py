"""The `halp` command. Each command is a thin function here; the work is done by the library.

Exit codes: 0 done · 2 wrong use or bad input, reported in one sentence · 3 stopped as asked, can be resumed ·
1 anything else.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import warnings
from typing import Any

from halp import homes
from halp._version import __version__

from halp.cli import (  # noqa: F401  (registers the commands, in this order)  # isort: skip
    start,
    data,
    training,
    results,
    use,
    classify,
    findings,
    video,
    service,
)
from halp.cli.app import app, first_process, note, warn
from halp.cli.verbs import Verb
from halp.core.errors import InputError

# idle threads that spin for long cost a busy machine dearly; torch has to find this in the environment when
# it is loaded. The second is some microseconds, where the library is GNU's.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}

# I/O errors that are reported as one sentence
DISK = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
}

OTHER_SPELLINGS = {"--normalize": "--normalise"}

# the commands as people look for them
HEADINGS = {
    "Begin": ("demo", "doctor", "cache", "completion"),
    "Look at recordings": ("explore", "people", "same-people", "inspect", "formats", "pose-model"),
    "Use an encoder": (
        *("encoders", "search", "cluster", "compare", "segment", "live"),
        *("classify", "finetune", "embed", "export", "serve", "push", "pull"),
    ),
    "Measure movement": (
        *("events", "stats", "motifs", "repetitions", "gait", "angles", "curves"),
        *("deviation", "agreement", "poses"),
    ),
    "Make a store": ("prepare", "join", "merge", "split"),
    "Train and evaluate": (
        "recipes",
        "pretrain",
        "sweep",
        "evaluate",
        "report",
        "reproduce",
        "verify",
        "convert",
    ),
}
PLUGINS = (
    "With any command, --plugin MODULE_OR_FILE loads encoders, terms, methods, augmentations, protocols and"
    " readers of your\nown (see examples/plugin.py)."
)


# public functions of `halp.tasks` are commands, but for those that Python alone needs
OF_PYTHON = ("load_model", "save_model")

_NOT_VERBS = {*OF_PYTHON, *(name.replace("-", "_") for name in app.commands)}
for public, (home, original) in homes().items():
    if (
        home.startswith("halp.tasks.")
        and public == original
        and public.islower()
        and public not in _NOT_VERBS
    ):
        app.verb(f"{home}:{public}")


def headings() -> dict[str, list[str]]:
    """All commands under the headings of the help; a verb that is not listed goes by what it takes."""
    shown = {heading: list(names) for heading, names in HEADINGS.items()}
    listed = {name for names in HEADINGS.values() for name in names}
    for name, entry in app.commands.items():
        if name not in listed:
            through = isinstance(entry, Verb) and entry.takes_encoder
            shown["Use an encoder" if through else "Measure movement"].append(name)
    return shown


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `halp` command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        sys.stdout.write(f"halp {__version__}\n")
        return
    for name, value in WAITING.items():
        os.environ.setdefault(name, value)
    warnings.showwarning = _show_warning
    log = logging.getLogger("halp")
    if not log.handlers:
        log.addHandler(_Notes())
        log.setLevel("INFO")
    arguments = [OTHER_SPELLINGS.get(argument, argument) for argument in arguments]
    try:
        arguments = _load_plugins(arguments)
        if not arguments or arguments[0] in ("-h", "--help"):
            sys.stdout.write(f"{app.help(headings())}\n{PLUGINS}\n")
            if not arguments:
                sys.exit(2)
        else:
            app.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        _fail("stopped", 130)
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if error.errno not in DISK or error.filename is None:
            raise
        _fail(
            f"'{error.filename}' cannot be read or written ({error.strerror}); check the disk and its"
            " permissions",
            2,
        )
    except Exception as error:
        code = getattr(error, "exit_code", None)
        if code is None:
            raise
        _fail(str(error), code)


def _load_plugins(arguments: list[str]) -> list[str]:
    """Load the plugins named by --plugin, at any position, and return the other arguments."""
    rest, waiting = [], False
    for argument in arguments:
        if waiting or argument.startswith("--plugin="):
            from halp.core.registry import load_plugin

            load_plugin(argument.removeprefix("--plugin="))
            waiting = False
        elif argument == "--plugin":
            waiting = True
        else:
            rest.append(argument)
    if waiting:
        raise InputError("--plugin needs the name of a module or the path of a .py file")
    return rest


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Show a warning of the library as one line on standard error."""
    warn(str(message))


class _Notes(logging.Handler):
    """Log records of the library as lines on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def _fail(message: str, code: int) -> None:
    from rich.console import Console
    from rich.markup import escape

    if code != 2 or first_process():  # bad input is the same for every process of a job
        Console(stderr=True, soft_wrap=True).print(f"[bold red]halp:[/] {escape(message)}", highlight=False)
    sys.exit(code)
