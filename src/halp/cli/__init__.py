"""The `halp` command. Each command is a thin function here; the work is done by the library.

Exit codes: 0 done · 2 wrong use or bad input, said in one sentence · 3 stopped as asked, can be resumed · 1 anything else.
"""

from __future__ import annotations

import errno
import os
import sys

import tyro

from halp._version import __version__

from halp.cli import start, data, training, results, use, classify, movements  # noqa: F401  (registers the commands, in this order)  # isort: skip
from halp.cli.app import app, first_process
from halp.errors import InputError

# idle threads that spin for long cost a busy machine dearly; torch has to find this in the environment when it is loaded.
# The second is some microseconds, where the library is GNU's.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}

# what a disk or its owner says, wherever it was met
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

OTHER_SPELLINGS = {"--floors": "--baselines", "--no-floors": "--no-baselines", "--normalize": "--normalise"}

DESCRIPTION = (
    "Learn human actions from skeletons without labels. With any command, --plugin MODULE_OR_FILE loads encoders, terms, "
    "methods, augmentations, protocols and readers of your own (see examples/plugin.py)."
)
CLASSIFY = "Classes from a handful of labels."
LISTS = {"formats": data.formats, "recipes": start.recipes}  # as they stand they need no parser, and answer at once


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `halp` command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        sys.stdout.write(f"halp {__version__}\n")
        return
    for name, value in WAITING.items():
        os.environ.setdefault(name, value)
    arguments = [OTHER_SPELLINGS.get(argument, argument) for argument in arguments]
    try:
        arguments = _load_plugins(arguments)
        if len(arguments) == 1 and arguments[0] in LISTS:
            return LISTS[arguments[0]]()
        nested = arguments[:1] == ["classify"]
        (classify.classify_app if nested else app).cli(
            prog="halp classify" if nested else "halp",
            description=CLASSIFY if nested else DESCRIPTION,
            args=arguments[1:] if nested else arguments,
            config=(tyro.conf.OmitSubcommandPrefixes,),
        )
    except KeyboardInterrupt:
        _fail("stopped", 130)
    except OSError as error:
        if error.errno not in DISK or error.filename is None:
            raise
        _fail(f"'{error.filename}' cannot be read or written ({error.strerror}); check the disk and its permissions", 2)
    except Exception as error:
        code = getattr(error, "exit_code", None)
        if code is None:
            raise
        _fail(str(error), code)


def _load_plugins(arguments: list[str]) -> list[str]:
    """Load what --plugin names, wherever it stands, and hand on the other arguments."""
    rest, waiting = [], False
    for argument in arguments:
        if waiting or argument.startswith("--plugin="):
            from halp.plugins import load_plugin

            load_plugin(argument.removeprefix("--plugin="))
            waiting = False
        elif argument == "--plugin":
            waiting = True
        else:
            rest.append(argument)
    if waiting:
        raise InputError("--plugin needs the name of a module or the path of a .py file")
    return rest


def _fail(message: str, code: int) -> None:
    from rich.console import Console
    from rich.markup import escape

    if code != 2 or first_process():  # bad input is the same for every process of a job
        Console(stderr=True, soft_wrap=True).print(f"[bold red]halp:[/] {escape(message)}", highlight=False)
    sys.exit(code)
