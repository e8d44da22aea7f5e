"""The `halp` command. Each command is a thin function here; the work is done by the library.

Exit codes: 0 done · 2 wrong use or bad input, said in one sentence · 3 stopped as asked, can be resumed · 1 anything else.
"""

from __future__ import annotations

import os
import sys

import tyro

from halp._version import __version__

from halp.cli import start, data, training, results, use, classify  # noqa: F401  (registers the commands, in this order)  # isort: skip
from halp.cli.app import app, first_process

# idle threads that spin for long cost a busy machine dearly; torch has to find this in the environment when it is loaded.
# The second is some microseconds, where the library is GNU's.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}

OLD_SPELLINGS = {"--floors": "--baselines", "--no-floors": "--no-baselines"}

CLASSIFY = "Classes from a handful of labels."


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `halp` command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        sys.stdout.write(f"halp {__version__}\n")
        return
    for name, value in WAITING.items():
        os.environ.setdefault(name, value)
    arguments = [OLD_SPELLINGS.get(argument, argument) for argument in arguments]
    try:
        nested = arguments[:1] == ["classify"]
        (classify.classify_app if nested else app).cli(
            prog="halp classify" if nested else "halp",
            description=CLASSIFY if nested else "Learn human actions from skeletons without labels.",
            args=arguments[1:] if nested else arguments,
            config=(tyro.conf.OmitSubcommandPrefixes,),
        )
    except KeyboardInterrupt:
        _fail("stopped", 130)
    except Exception as error:
        code = getattr(error, "exit_code", None)
        if code is None:
            raise
        _fail(str(error), code)


def _fail(message: str, code: int) -> None:
    from rich.console import Console
    from rich.markup import escape

    if code != 2 or first_process():  # bad input is the same for every process of a job
        Console(stderr=True, soft_wrap=True).print(f"[bold red]halp:[/] {escape(message)}", highlight=False)
    sys.exit(code)
