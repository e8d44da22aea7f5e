"""`python -m benchmarks.explore_soak [--kills N] [--clients N]`: labels of the explorer under kills and
failing system calls.

Clients label over HTTP while the server is killed again and again: nothing that was acknowledged may be
missing after the next start, and nothing may be there that no client sent. Then every write, sync,
truncation, opening, renaming and removal of the label files fails once, in turn, with each of several errors
(needs strace). Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from random import Random
from typing import Any

WRITER = """
import sys
from pathlib import Path
from halp.core.errors import InputError
from halp.explorer.labels import LabelBook
try:
    book = LabelBook(Path(sys.argv[1])).__enter__()
except InputError:
    sys.exit(3)
for number in range(4):
    try:
        done = book.undo() if number == 2 else book.label([(f"r{number}", 0.0, 1.0, "")], f"c{number % 2}")
        print("kept", number, flush=True)
    except InputError as error:
        print("refused", number, error, flush=True)
print("shown", *sorted(event.recording for _, event in book.now.events), flush=True)
book.__exit__()
"""
READER = """
import sys
from pathlib import Path
from halp.explorer.labels import LabelBook
with LabelBook(Path(sys.argv[1])) as book:
    print(*sorted(event.recording for _, event in book.now.events))
"""
CALLS = {
    "pwrite64": ("ENOSPC", "EIO"),
    "write": ("ENOSPC",),
    "fdatasync": ("EIO",),
    "fsync": ("EIO",),
    "ftruncate": ("EIO",),
    "openat": ("EACCES",),
    "rename": ("EACCES",),
    "unlink": ("EACCES",),
    "pread64": ("EIO",),
}

PRELOADED = [
    "halp.explorer.server",
    "halp.explorer.collection",
    "halp.explorer.fewlabel",
    "halp.features.loading",
    *(f"sklearn.{part}" for part in ("manifold", "cluster", "metrics", "linear_model", "model_selection")),
]


class Client(threading.Thread):
    """Somebody who labels as fast as answers come, and remembers what was acknowledged and what was not."""

    def __init__(self, number: int, rows: int, clients: int) -> None:
        super().__init__(daemon=True)
        self.client, self.rows = f"client-{number}", range(number, rows, clients)
        self.chance = Random(number)  # noqa: S311
        self.kept: dict[int, str] = {}
        self.open: dict[int, set[str]] = {}
        self.base, self.token, self.number, self.ended = "", "", 0, False
        self.acknowledged = 0

    def run(self) -> None:
        while not self.ended:
            if not self.base:
                time.sleep(0.02)
                continue
            row, label = self.chance.choice(self.rows), f"class {self.chance.randrange(6)}"
            self.number += 1
            given = {
                "rows": [row],
                "label": label,
                "client": self.client,
                "number": self.number,
                "based": 1 << 40,
            }
            headers = {"X-Halp-Token": self.token, "Content-Type": "application/json"}
            request = urllib.request.Request(f"{self.base}/api/label", json.dumps(given).encode(), headers)  # noqa: S310
            self.open.setdefault(row, set()).add(label)
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                    answer.read()
            except (OSError, urllib.error.URLError):
                time.sleep(0.05)
                continue
            self.kept[row] = label
            self.open[row] = set()
            self.acknowledged += 1


def run_server(store: Path, labels: Path, address: Path) -> None:
    """What a process of its own runs: the server as `halp explore` starts it."""
    from halp.explorer.server import serve
    from halp.explorer.session import Settings

    sys.stdout = address.open("w")
    serve(Settings(store, "halp-base", labels), browser=False)


def start(store: Path, labels: Path) -> tuple[Any, str, str]:
    """A server whose collection is read, its address and its token; forked from a process that has imported
    everything, which makes a start cheap.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    address = labels.with_name("address")
    address.unlink(missing_ok=True)
    process = context.Process(target=run_server, args=(store, labels, address))
    process.start()
    until = time.monotonic() + 600
    while not (address.exists() and address.read_text().endswith("\n")):
        assert process.is_alive()
        assert time.monotonic() < until
        time.sleep(0.02)
    base, _, token = address.read_text().strip().partition("/?token=")
    while True:
        request = urllib.request.Request(f"{base}/api/state", headers={"X-Halp-Token": token})  # noqa: S310
        with urllib.request.urlopen(request, timeout=600) as answer:  # noqa: S310
            if json.load(answer)["rows"]:
                return process, base, token
        time.sleep(0.05)


def kill_servers(folder: Path, kills: int, count: int) -> dict[str, Any]:
    """Kill the server at random moments while clients label."""
    from halp import open_store
    from halp.explorer.labels import LabelBook

    store = folder / "store"
    subprocess.run(
        [sys.executable, "-m", "halp", "prepare", "synthetic", "96", str(store)],
        check=True,
        capture_output=True,
    )
    names = open_store(store).names.tolist()
    chance, lost, foreign = Random(0), 0, 0  # noqa: S311
    clients = [Client(number, len(names), count) for number in range(count)]
    for client in clients:
        client.start()
    began, refused = time.monotonic(), 0
    for kill in range(kills):
        process, base, token = start(store, folder / "labels.csv")
        for client in clients:
            client.base, client.token = base, token
        time.sleep(chance.uniform(0.05, 2.5))
        process.kill()
        process.join()
        for client in clients:
            client.base = ""
        time.sleep(0.3)  # answers on their way are over
        with LabelBook(folder / "labels.csv") as book:
            there = {event.recording: event.label for _, event in book.now.events}
            table = (folder / "labels.csv").read_text().splitlines()[1:] if there else []
            refused += len(table) != len(there)
        for client in clients:
            for row in client.rows:
                found, kept = there.get(names[row]), client.kept.get(row)
                if found == kept:
                    continue
                if found in client.open.get(row, set()):
                    client.kept[row] = str(found)  # it was on its way, and done
                elif found is None or kept is not None:
                    lost += 1
                else:
                    foreign += 1
                client.open[row] = set()
        if kill % 10 == 9:
            told = f"{sum(client.acknowledged for client in clients)} acknowledged, {lost} lost, {foreign} foreign"
            sys.stderr.write(f"{kill + 1} kills, {told}\n")
    for client in clients:
        client.ended = True
    acknowledged = sum(client.acknowledged for client in clients)
    seconds = round(time.monotonic() - began)
    return {
        "kills": kills,
        "clients": count,
        "acknowledged": acknowledged,
        "lost": lost,
        "foreign": foreign,
        "tables that differ": refused,
        "seconds": seconds,
    }


def fail_calls(folder: Path) -> dict[str, Any]:
    """Let every system call on the label files fail once."""
    if shutil.which("strace") is None:
        return {"skipped": "strace is not installed"}
    found: dict[str, Any] = {"runs": 0, "refused acts": 0, "refused starts": 0, "wrong": []}
    for call, errors in CALLS.items():
        for error in errors:
            for when in range(1, 200):
                place = folder / "calls"
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir()
                hit = _fail(place, call, error, when, found)
                if not hit:
                    break
            sys.stderr.write(f"{call} {error}: {when - 1} runs, {len(found['wrong'])} wrong so far\n")
    return found


def _fail(place: Path, call: str, error: str, when: int, found: dict[str, Any]) -> bool:
    """One run with one failing call; whether there was such a call."""
    files = [
        place / name
        for name in ("l.sqlite", "l.sqlite-wal", "l.sqlite-shm", "l.csv", f".l.{os.getpid()}.partial.csv")
    ]
    watched = [part for path in files for part in ("-P", str(path))]
    log = place.parent / "strace.txt"
    command = [
        "strace",
        "-f",
        "-qq",
        *watched,
        "-e",
        f"trace={call}",
        "-e",
        f"inject={call}:error={error}:when={when}",
        "-o",
        str(log),
    ]
    ended = subprocess.run(
        [*command, sys.executable, "-c", WRITER, str(place / "l.csv")], capture_output=True, text=True
    )
    if "INJECTED" not in log.read_text(errors="replace"):
        return False
    found["runs"] += 1
    lines = [line.split() for line in ended.stdout.splitlines()]
    if ended.returncode == 3:
        found["refused starts"] += 1
        return True
    kept = [int(line[1]) for line in lines if line[0] == "kept"]
    found["refused acts"] += sum(line[0] == "refused" for line in lines)
    stack: list[str] = []
    for number in kept:
        stack = stack[:-1] if number == 2 else [*stack, f"r{number}"]
    after = subprocess.run(
        [sys.executable, "-c", READER, str(place / "l.csv")], capture_output=True, text=True
    )
    shown = next((line[1:] for line in lines if line[0] == "shown"), None)
    if ended.returncode or shown != sorted(stack) or after.stdout.split() != sorted(stack):
        found["wrong"].append(
            [
                call,
                error,
                when,
                sorted(stack),
                shown,
                after.stdout.split(),
                (ended.stderr or after.stderr)[-300:],
            ]
        )
    return True


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Labels of the explorer under kills and failing system calls."
    )
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--no-calls", action="store_true", help="kills only")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = {} if given.no_calls else {"system calls": fail_calls(Path(folder))}
        if given.kills:
            result["kills"] = kill_servers(Path(folder), given.kills, given.clients)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
