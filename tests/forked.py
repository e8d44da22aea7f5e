"""Python processes that need not load torch: `import forked as subprocess`, and what starts this Python is
forked instead.

A server that has the large libraries loaded – and nothing of halp – forks a process for each command: a
process of its own with its own environment, folder, signals and exit code, some seconds sooner. It sees one
core, so that it starts worker processes only where it is told to. Commands that set other Python variables or
interpreter options, and all others, are started as always.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from subprocess import DEVNULL, PIPE, STDOUT, CompletedProcess, TimeoutExpired
from typing import Any, NoReturn

__all__ = ["DEVNULL", "PIPE", "STDOUT", "CompletedProcess", "Popen", "TimeoutExpired", "commands", "run"]

LIBRARIES = (
    "torch._dynamo",
    "lightning_fabric",
    "scipy.stats",
    "sklearn.linear_model",
    "sklearn.cluster",
    "jsonschema",
)
LIBRARIES += (
    "filelock",
    "platformdirs",
    "pyarrow.parquet",
    "xml.etree.ElementTree",
    "torch.distributed.launcher.api",
    "safetensors.torch",
    "tomlkit",
    "tyro",
    "rich.console",
    "jinja2",
)


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """As in the standard library; a forked process is killed when this one ends or forgets it."""

    connection: socket.socket | None = None

    def _execute_child(self, *given: Any) -> None:
        args, executable, preexec, _, pass_fds, cwd, env, _, _, shell, *pipes = given[:16]
        environment = dict(os.environ if env is None else env)
        if shell or executable or preexec or pass_fds or not _is_forked(args, environment):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        read, _, _, write, _, errors = pipes
        files = [own if file == -1 else file for own, file in enumerate((read, write, errors))]
        environment["PYTHON_EXEC"] = os.path.join(_server(), "python")  # what torchrun starts
        words = [os.fspath(word) for word in args[1:]]
        self.connection = _connect(_server(), words, os.fspath(cwd or os.getcwd()), environment, files)
        self.pid = _number(self.connection)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self.connection is None:
            return super()._try_wait(flags)  # type: ignore[misc,no-any-return]
        if (
            self.connection.fileno() < 0
        ):  # nobody waited for it, and it was killed when the connection was forgotten
            return self.pid, signal.SIGKILL
        if flags & os.WNOHANG and not select.select([self.connection], [], [], 0)[0]:
            return 0, 0
        return self.pid, _number(self.connection)

    def _internal_poll(self, *given: Any, **more: Any) -> int | None:
        if self.connection is None:
            return super()._internal_poll(*given, **more)  # type: ignore[misc,no-any-return]
        if self.returncode is None:
            process, status = self._try_wait(os.WNOHANG)
            if process == self.pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]
        return self.returncode


def run(
    command: Sequence[Any],
    *,
    input: Any = None,
    timeout: float | None = None,
    check: bool = False,
    capture_output: bool = False,
    **more: Any,
) -> CompletedProcess[Any]:
    """As in the standard library."""
    if capture_output:
        more |= {"stdout": PIPE, "stderr": PIPE}
    if input is not None:
        more["stdin"] = PIPE
    with Popen(command, **more) as job:
        try:
            output, errors = job.communicate(input, timeout=timeout)
        except BaseException:
            job.kill()
            raise
    answer: CompletedProcess[Any] = CompletedProcess(command, job.returncode, output, errors)
    if check:
        answer.check_returncode()
    return answer


def commands() -> str:
    """A folder for the PATH with `python` and `halp` that are forked."""
    return _server() if _possible() else os.path.dirname(sys.executable)


def _possible() -> bool:
    return hasattr(os, "pidfd_open")  # Linux


def _is_forked(args: Any, environment: dict[str, str]) -> bool:
    if (
        not _possible()
        or isinstance(args, (str, bytes))
        or len(args) < 2
        or os.fspath(args[0]) != sys.executable
    ):
        return False
    names = {
        name for name in (*environment, *os.environ) if name.startswith("PYTHON") and name != "PYTHON_EXEC"
    }
    option = os.fspath(args[1])
    return all(environment.get(name) == os.environ.get(name) for name in names) and (
        option in ("-c", "-m", "-u") or not option.startswith("-")
    )


@cache
def _server() -> str:
    """The folder of this process's server, which ends when this process does."""
    import tempfile

    folder = tempfile.mkdtemp(prefix="halp-forks-")
    for name, words in (("python", ""), ("halp", " -m halp")):
        path = os.path.join(folder, name)
        with open(path, "w") as file:
            file.write(
                f'#!/bin/sh\nexec {sys.executable} -S -E {os.path.abspath(__file__)} {folder}{words} "$@"\n'
            )
        os.chmod(path, 0o755)  # noqa: S103
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    server = subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), folder], stdin=PIPE, stdout=DEVNULL, env=environment
    )
    deadline = time.monotonic() + 300
    while not os.path.exists(os.path.join(folder, "ready")):
        assert server.poll() is None and time.monotonic() < deadline, "no server to fork from"  # noqa: PT018
        time.sleep(0.05)
    _server.process = server  # type: ignore[attr-defined]
    return folder


def _connect(
    folder: str, words: list[str], cwd: str, environment: dict[str, str], files: list[int]
) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.path.join(folder, "socket"))
    request = json.dumps([words, cwd, environment]).encode("utf-8", "surrogateescape")
    socket.send_fds(connection, [struct.pack("q", len(request))], files)
    connection.sendall(request)
    return connection


def _number(connection: socket.socket) -> int:
    return int(struct.unpack("q", connection.recv(8, socket.MSG_WAITALL))[0])


def _serve(folder: str) -> None:
    """Fork until the process that started this one is gone."""
    import gc
    import importlib
    import shutil

    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.join(folder, "socket"))
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    open(os.path.join(folder, "ready"), "w").close()
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _keep(connection)
        connection.close()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _keep(connection: socket.socket) -> NoReturn:
    """Start what is asked for, say its number, wait for it and say how it ended; end it when nobody
    listens.
    """
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    length, files, _, _ = socket.recv_fds(connection, 8, 3)
    request = connection.recv(struct.unpack("q", length)[0], socket.MSG_WAITALL)
    process = os.fork()
    if process == 0:
        connection.close()
        _become(*json.loads(request), files)
    for file in files:
        os.close(file)
    connection.sendall(struct.pack("q", process))
    if connection in select.select([os.pidfd_open(process), connection], [], [])[0]:
        os.kill(process, signal.SIGKILL)
    status = os.waitpid(process, 0)[1]
    connection.sendall(struct.pack("q", status))
    os._exit(0)


def _become(words: list[str], cwd: str, environment: dict[str, str], files: list[int]) -> NoReturn:
    """What the interpreter does between its start and its end."""
    import atexit
    import runpy
    import threading
    import traceback
    import types

    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    os.sched_getaffinity = lambda process: {0}
    if words[0] == "-u":
        words.pop(0)
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    first, *rest = words
    code: Any = 0
    try:
        if first == "-c":
            sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
            sys.modules["__main__"] = main = types.ModuleType("__main__")
            exec(compile(rest[0], "<string>", "exec"), main.__dict__)  # noqa: S102
        elif first == "-m":
            sys.argv, sys.path[0] = rest, cwd
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[0] = words, os.path.dirname(os.path.abspath(first))
            runpy.run_path(first, run_name="__main__")
    except SystemExit as ending:
        code = ending.code or 0
        if not isinstance(code, int):
            sys.stderr.write(f"{code}\n")
            code = 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 255)


def _act_for(folder: str, words: list[str]) -> NoReturn:
    """Be the process of a shell or launcher for the forked one: hand signals on, end as it ends."""
    connection = _connect(folder, words, os.getcwd(), dict(os.environ), [0, 1, 2])
    process = _number(connection)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(process, number))
    code = os.waitstatus_to_exitcode(_number(connection))
    if code < 0:
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        _act_for(sys.argv[1], sys.argv[2:])
    _serve(sys.argv[1])
