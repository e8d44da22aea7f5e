"""The service under load and under faults: `python -m benchmarks.service --json results/service.json`.

`load`: 1, 16 and 64 connections to one process and to two, requests per second and latencies of clips of 60 frames.
`soak`: an hour of `--rate` answers a second from /predict, /embed, /search and /stream of two processes, for clips of
20 to 120 frames, some with gaps; latencies and memory by minute. `faults`, each beside requests that must be
answered: clients that send a byte a second, bodies that are no requests, 10,000 connections. `workers`: 64
connections to eight processes, of which one is killed. All but `soak` need `wrk`; timings are of the machine and its
load at that time. The parts of `--json` that are not run are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import halp
from halp._version import __version__, revision

LUA = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local bodies, turn = {}, 0
for path in string.gmatch(os.getenv("HALP_BODIES"), "[^:]+") do
  bodies[#bodies + 1] = io.open(path, "rb"):read("*a")
end
request = function()
  turn = turn % #bodies + 1
  return wrk.format(nil, nil, nil, bodies[turn])
end
done = function(summary, latency, requests)
  local e = summary.errors
  print(string.format("RESULT %d %d %d %f %f %f %f", summary.requests, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(95), latency:percentile(99), latency.max))
end
"""
SECONDS = 4  # between two samples of the memory
PARTS = ("load", "soak", "faults", "workers")


def clip(seed: int, frames: int = 60) -> np.ndarray:
    """A swinging body of 16 joints."""
    draw = np.random.default_rng(seed)
    time_ = np.linspace(0, 6, frames)[:, None, None]
    swing = np.sin((1 + seed % 3) * time_) * np.sin(np.arange(16))[:, None]
    return (
        np.random.default_rng(0).normal(size=(16, 3)) + 0.3 * swing + 0.05 * draw.normal(size=swing.shape)
    ).astype(np.float32)


def make_model(folder: Path) -> Path:
    """A model that rejects, on `halp-base`."""
    source = halp.open_source([clip(number) for number in range(24)], topology="body-16")
    source = source.with_labels(np.arange(24) % 3, ["a", "b", "c"], np.arange(24) // 3)
    model = halp.classify_fit("halp-base", source, kind="prototypes", rejection_rate=0.2, progress=False)
    return model.save(folder / "model")


def make_collection(folder: Path) -> Path:
    """A store of 100 clips to search."""
    (folder / "arrays").mkdir()
    for number in range(100):
        np.save(folder / "arrays" / f"{number:02}.npy", clip(number)[:, None])
    options = {"topology": "body-16"}
    halp.prepare(
        "arrays", folder / "arrays", folder / "store", options=options, normalisation=(), progress=False
    )
    return folder / "store"


@contextlib.contextmanager
def serving(model: Path, workers: int = 1, *options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The service as a process of its own, and its port; it must end well."""
    command = [
        sys.executable,
        "-m",
        "halp",
        "serve",
        str(model),
        "--port",
        "0",
        "--workers",
        str(workers),
        *options,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    assert process.stdout is not None
    port = int(process.stdout.readline().rpartition(":")[2])
    until = time.monotonic() + 600
    while status(port, "GET", "/health") != 200:
        assert process.poll() is None, "the service ended"
        assert time.monotonic() < until, "the service did not start"
        time.sleep(0.2)
    try:
        yield process, port
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(120)
    assert code == 0, f"the service ended with {code}"


def status(port: int, method: str, path: str, body: bytes | None = None) -> int:
    """Status of a request; 0 where there was no answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def load(
    port: int, connections: int, seconds: float, folder: Path, bodies: str = "body.json"
) -> dict[str, float]:
    """Requests per second and latencies in milliseconds, as `wrk` measures them."""
    environment = {**os.environ, "HALP_BODIES": ":".join(map(str, sorted(folder.glob(bodies))))}
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--timeout", "60s"]
    command += ["-s", str(folder / "post.lua"), f"http://127.0.0.1:{port}/predict"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    requests, micro, errors, p50, p95, p99, most = (float(word) for word in line.split()[1:])
    times = {"p50": p50, "p95": p95, "p99": p99, "max": most}
    facts = {"requests": requests, "errors": errors, "per_second": round(1e6 * requests / micro, 1)}
    return {**facts, **{f"{name}_ms": round(value / 1000, 1) for name, value in times.items()}}


def resident(process: int) -> float:
    """Memory of a process in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def cpu(process: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Sender(threading.Thread):
    """Requests at set times over one connection, each timed from when it was due, so that waiting counts."""

    def __init__(
        self, port: int, requests: list[tuple[str, bytes]], began: float, pace: float, end: float
    ) -> None:
        super().__init__(daemon=True)
        self.port, self.requests, self.due, self.pace, self.end = port, requests, began, pace, end
        self.times: list[float] = []  # milliseconds
        self.codes: Counter[str] = Counter()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        for path, body in itertools.cycle(self.requests):
            if max(self.due, time.monotonic()) >= self.end:
                return connection.close()  # what is behind by then is not sent
            time.sleep(max(0.0, self.due - time.monotonic()))
            try:
                connection.request("POST", path, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                code = str(answer.status)
            except (OSError, http.client.HTTPException) as error:
                code = type(error).__name__
                connection.close()
            self.times.append(1000 * (time.monotonic() - self.due))
            self.codes[code] += 1
            self.due += self.pace


class Streamer(threading.Thread):
    """Ten frames a second to /stream, which answers once a second."""

    def __init__(self, port: int, end: float) -> None:
        super().__init__(daemon=True)
        self.port, self.end = port, end
        self.seen: Counter[str] = Counter()

    def run(self) -> None:
        from websockets.exceptions import ConnectionClosed
        from websockets.sync.client import connect

        frames, due = [json.dumps(frame.tolist()) for frame in clip(5, 100)], time.monotonic()
        address = f"ws://127.0.0.1:{self.port}/stream?fps=10&window=2&stride=1"
        with connect(address) as socket_, contextlib.suppress(ConnectionClosed):
            for frame in itertools.cycle(frames):
                if due >= self.end:
                    return
                socket_.send(frame)
                self.seen["frames"] += 1
                due += 0.1
                with contextlib.suppress(TimeoutError):
                    while True:
                        answer = json.loads(socket_.recv(timeout=max(0.0, due - time.monotonic())))
                        self.seen["errors" if "error" in answer else "answers"] += 1
                        self.seen["windows left out"] = answer["dropped"]
        self.seen["closed"] += 1


def soak(process: int, port: int, rate: float, minutes: float, folder: Path) -> dict[str, Any]:
    """Mixed requests at a rate, and every minute their latencies and the memory of the workers."""
    kinds = ("/predict", "/embed", "/search")
    bodies = [file.read_bytes() for file in sorted(folder.glob("mixed-*.json"))]
    mixed = [(path, body) for body in bodies for path in kinds]
    began, streams, senders = time.monotonic(), 2, 8
    end, pace = began + 60 * minutes, senders / (rate - streams)  # a stream has an answer a second
    threads = [
        Sender(port, mixed[n:] + mixed[:n], began + pace * n / senders, pace, end) for n in range(senders)
    ]
    live = [Streamer(port, end) for _ in range(streams)]
    for thread in (*threads, *live):
        thread.start()
    rows: list[dict[str, float]] = []
    seen, files, used = [0] * senders, [], [cpu(one) for one in workers_of(process)]
    for minute in range(1, round(minutes) + 1):
        time.sleep(max(0.0, began + 60 * minute - time.monotonic()))
        times = [time_ for thread, number in zip(threads, seen) for time_ in thread.times[number:]]
        seen = [len(thread.times) for thread in threads]
        p50, p95, p99, most = np.percentile(times, (50, 95, 99, 100)).round(1).tolist()
        files.append(sum(len(os.listdir(f"/proc/{one}/fd")) for one in workers_of(process)))
        rows.append({"requests": len(times), "p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "max_ms": most})
        rows[-1] |= {
            "memory_mb": round(sum(map(resident, workers_of(process))), 1),
            "load": os.getloadavg()[0],
        }
        print(json.dumps(rows[-1]), flush=True)
    for thread in (*threads, *live):
        thread.join(60)
    spent = sum(cpu(one) for one in workers_of(process)) - sum(used)
    memory, quarter = [row["memory_mb"] for row in rows], len(rows) // 4
    every = [time_ for thread in threads for time_ in thread.times]
    codes, stream = sum((one.codes for one in threads), Counter()), sum((one.seen for one in live), Counter())
    p50, p95, p99, most = np.percentile(every, (50, 95, 99, 100)).round(1).tolist()
    paced = f"{rate:g} answers a second, as {rate:g} cameras with an answer a second ask for"
    return {
        "what": f"{paced}: {rate - streams:g} requests of three kinds in turn, {streams} streams",
        "rate": rate,
        "minutes": minutes,
        "answers": dict(codes),
        "streams": dict(stream),
        "seconds_behind_at_the_end": round(max(0, *(end - thread.due for thread in threads)), 1),
        "per_second": round((len(every) + stream["answers"]) / (60 * minutes), 2),
        "latency": {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "max_ms": most},
        "cpu_ms_per_answer": round(1000 * spent / (len(every) + stream["answers"]), 2),
        "mean_of_second_quarter_mb": round(float(np.mean(memory[quarter : 2 * quarter])), 1),
        "mean_of_last_quarter_mb": round(float(np.mean(memory[-quarter:])), 1),
        "open_files_first_and_last_minute": [files[0], files[-1]],
        "by_minute": rows,
    }


def asked(port: int, body: bytes, count: int = 50) -> dict[str, Any]:
    """Answers to good requests one after the other."""
    times: list[float] = []
    codes: Counter[str] = Counter()
    for _ in range(count):
        began = time.perf_counter()
        codes[str(status(port, "POST", "/predict", body))] += 1
        times.append(1000 * (time.perf_counter() - began))
    return {
        "answers": dict(codes),
        "p50_ms": round(float(np.median(times)), 1),
        "max_ms": round(max(times), 1),
    }


def slow_clients(port: int, body: bytes, count: int = 200) -> dict[str, Any]:
    """Clients that send a byte a second, beside good requests; how they were ended."""
    head = (
        b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n"
    )
    clients = [socket.create_connection(("127.0.0.1", port), timeout=120) for _ in range(count)]
    for number, client in enumerate(clients):
        client.sendall(head if number % 2 else head[:20])  # half of them never end the head
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(1):
            for client in clients:
                with contextlib.suppress(OSError):
                    client.sendall(b" ")

    thread = threading.Thread(target=drip)
    thread.start()
    good = asked(port, body)
    ended: Counter[str] = Counter()
    for client in clients:
        try:
            answer = client.recv(64)
            ended[answer.split(b"\r\n")[0].decode() or "closed"] += 1
        except OSError as error:
            ended[type(error).__name__] += 1
    stop.set()
    thread.join()
    for client in clients:
        client.close()
    return {"clients": count, "ended": dict(ended), "good": good}


def bad_bodies(port: int, body: bytes, count: int = 2000) -> dict[str, Any]:
    """Cut, changed and random bodies, beside good requests; a status of 5xx would be a fault."""
    draw = np.random.default_rng(0)
    codes: Counter[str] = Counter()
    for number in range(count):
        data = bytearray(body[: int(draw.integers(len(body)))] if number % 3 else body)
        for place in draw.integers(len(data) or 1, size=3 if data else 0):
            data[place] = int(draw.integers(256))
        bad = bytes(data) if number % 5 else draw.bytes(500)
        codes[str(status(port, "POST", "/predict", bad))] += 1
    return {"bodies": count, "answers": dict(codes), "good": asked(port, body)}


def many_connections(port: int, body: bytes, count: int) -> dict[str, Any]:
    """Open connections at once, beside good requests."""
    open_ones: list[socket.socket] = []
    with contextlib.suppress(OSError):
        while len(open_ones) < count:
            open_ones.append(socket.create_connection(("127.0.0.1", port), timeout=60))
    good = asked(port, body)
    for connection in open_ones:
        connection.close()
    return {"open": len(open_ones), "good": good, "afterwards": asked(port, body)}


def loads(model: Path, seconds: float, folder: Path) -> Iterator[tuple[str, Any]]:
    """One process and two under 1, 16 and 64 connections."""
    for workers in (1, 2):
        with serving(model, workers) as (process, port):
            if workers > 1:
                wait_for_workers(process.pid, workers)
            load(port, 64, 5, folder)  # every process has loaded the model
            connections = {f"{n} connections": load(port, n, seconds, folder) for n in (1, 16, 64)}
            yield f"{workers} {'process' if workers == 1 else 'processes'}", connections


def workers_of(process: int) -> list[int]:
    """Worker processes of a service."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(one) for one in children if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]


def wait_for_workers(process: int, workers: int) -> None:
    """Wait until all workers of a service are there."""
    while len(workers_of(process)) < workers:
        time.sleep(0.1)


def killed_worker(process: int, body: bytes, port: int) -> dict[str, Any]:
    """A worker is killed while requests are answered; seconds until another is there."""
    before, began = workers_of(process), time.monotonic()
    os.kill(before[0], signal.SIGKILL)
    good = asked(port, body, 100)
    while len(now := workers_of(process)) < len(before) or before[0] in now:
        assert time.monotonic() < began + 300, "the worker was not replaced"
        time.sleep(0.1)
    return {"seconds": round(time.monotonic() - began, 1), "good": good, "afterwards": asked(port, body)}


def write_bodies(folder: Path) -> bytes:
    """The requests that `wrk` sends: one that is always the same, and some that differ."""
    body = json.dumps({"points": clip(1).tolist()}).encode()
    (folder / "body.json").write_bytes(body)
    for number, frames in enumerate((20, 30, 40, 60, 90, 120)):
        points = clip(number, frames).tolist()
        for place in range(0, frames, 7 if number % 2 else frames):
            points[place] = None
        (folder / f"mixed-{number}.json").write_text(json.dumps({"points": points}))
    (folder / "post.lua").write_text(LUA)
    return body


def run(
    parts: list[str], rate: float, minutes: float, seconds: float, connections: int
) -> Iterator[tuple[str, Any]]:
    """The parts that are asked for, one after the other."""
    if shutil.which("wrk") is None and parts != ["soak"]:
        raise SystemExit("this needs wrk")
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, max(least, 2 * connections + 1000)), most))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        body, model = write_bodies(folder), make_model(folder)
        if "load" in parts:
            yield "load", dict(loads(model, seconds, folder))
        if "soak" in parts:
            with serving(model, 2, "--index", str(make_collection(folder))) as (process, port):
                wait_for_workers(process.pid, 2)
                yield "soak", soak(process.pid, port, rate, minutes, folder)
        if "faults" in parts:
            with serving(model) as (process, port):
                yield (
                    "faults",
                    {
                        "slow clients": slow_clients(port, body),
                        "bad bodies": bad_bodies(port, body),
                        "connections": many_connections(port, body, connections),
                        "memory_afterwards_mb": round(resident(process.pid), 1),
                    },
                )
        if "workers" in parts:
            with serving(model, workers=8) as (process, port):
                wait_for_workers(process.pid, 8)
                load(port, 64, seconds, folder)  # every worker has loaded the model
                yield (
                    "workers",
                    {
                        "64 connections": load(port, 64, seconds, folder),
                        "memory_mb": [round(resident(one), 1) for one in workers_of(process.pid)],
                        "killed worker": killed_worker(process.pid, body, port),
                    },
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rate", type=float, default=10, help="answers a second of the soak")
    parser.add_argument("--minutes", type=float, default=60, help="of the soak")
    parser.add_argument("--seconds", type=float, default=20, help="of a measurement of load")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    kept = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    result = {"command": "python -m benchmarks.service", **kept}
    when = {
        "halp": __version__,
        "commit": revision(),
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
    }
    for part, facts in run(given.parts, given.rate, given.minutes, given.seconds, given.connections):
        result[part] = {**when, "load_average": os.getloadavg()[0], **facts}
        print(json.dumps({part: result[part]}), flush=True)
        if given.json:
            given.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
