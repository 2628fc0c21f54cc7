"""Clients of a server for some seconds, beside hostile clients: `python -m tests.serving.load --seconds 60`.

It prints how many answers were right, and the percentiles of their times, with and without the hostile clients.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from engine.files.executable_file import ExecutableFile
from tests.files.programs import expected
from tests.interrupting import PATIENCE_SECONDS
from tests.serving.plain import export, serving

PATH = "/v1/models/m:predict"
THERE = "127.0.0.2"
"""The address of the hostile clients."""


@dataclass
class Outcome:
    """Results of the honest clients: seconds of right answers, and counts of all others."""

    seconds: list[float] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)

    def percentile(self, share: float) -> float:
        """The seconds within which that share of right answers came."""
        return float(np.percentile(self.seconds, 100 * share))

    def __str__(self) -> str:
        times = " ".join(f"p{round(100 * share)} {1e3 * self.percentile(share):.1f} ms" for share in (0.5, 0.9, 0.99))
        return f"{len(self.seconds)} right, others {dict(self.others)}, {times}, longest {max(self.seconds):.2f} s"


def honest(port: int, file: ExecutableFile, end: float, outcome: Outcome, seed: int) -> None:
    """Asks for predictions on one connection, which it reopens if the server has closed it."""
    draw = np.random.default_rng(seed)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    while time.monotonic() < end:
        x = draw.normal(size=(int(draw.integers(1, 6)), 5)).astype(np.float32)
        begin = time.monotonic()
        try:
            connection.request("POST", PATH, json.dumps({"instances": x.tolist()}))
            response = connection.getresponse()
            status, answer = response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException) as error:
            outcome.others[type(error).__name__] += 1
            connection.close()
            continue
        right = expected(file, x)["scores"]
        if status != 200:
            outcome.others[str(status)] += 1
        elif np.allclose([row["scores"] for row in answer["predictions"]], right, rtol=1e-4, atol=1e-5):
            outcome.seconds.append(time.monotonic() - begin)
        else:
            outcome.others["wrong"] += 1
    connection.close()


Attack = Callable[[socket.socket, random.Random], None]
HEAD = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\n"


def drips(connection: socket.socket, draw: random.Random) -> None:
    """Sends the head of a second request, a byte at a time."""
    connection.sendall(b"GET /v1/models/m HTTP/1.1\r\nHost: x\r\n\r\n")
    for _ in range(20):
        connection.sendall(b"a")
        time.sleep(0.2)


def long_head(connection: socket.socket, draw: random.Random) -> None:
    """Sends headers without an end."""
    connection.sendall(HEAD)
    for k in itertools.count():
        connection.sendall(b"X-%d: %s\r\n" % (k, b"a" * 4000))


def garbage(connection: socket.socket, draw: random.Random) -> None:
    """Sends bytes that are no HTTP."""
    for _ in range(20):
        connection.sendall(draw.randbytes(1000))


def half_closed(connection: socket.socket, draw: random.Random) -> None:
    """Sends part of a body, and no more."""
    connection.sendall(HEAD + b'Content-Length: 1000\r\n\r\n{"instances"')
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1000)


def unread(connection: socket.socket, draw: random.Random) -> None:
    """Asks for many answers and reads none."""
    body = json.dumps({"instances": [[1.0] * 5] * 500}).encode()
    for _ in range(100):
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    time.sleep(2)


def large_body(connection: socket.socket, draw: random.Random) -> None:
    """Sends many megabytes of JSON of the wrong shape."""
    body = b'{"instances": [' + b"[1.5,2.5,3.5]," * 300_000 + b"[1]]}"
    connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    connection.recv(1000)


def nested(connection: socket.socket, draw: random.Random) -> None:
    """Sends JSON of a great depth."""
    body = b"[" * 100_000
    connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    connection.recv(1000)


def flood(connection: socket.socket, draw: random.Random) -> None:
    """Opens many connections at once."""
    address = connection.getpeername()
    with contextlib.ExitStack() as opened:
        for _ in range(100):
            opened.enter_context(socket.create_connection(address, 1, (THERE, 0)))
        time.sleep(0.5)


def smuggled(connection: socket.socket, draw: random.Random) -> None:
    """Sends two lengths, and chunks that fit neither."""
    connection.sendall(HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n")
    connection.recv(1000)


ATTACKS: tuple[Attack, ...] = (drips, long_head, garbage, half_closed, unread, large_body, nested, flood, smuggled)


def hostile(port: int, end: float, attack: Attack, seed: int) -> None:
    """Repeats an attack, whatever happens to it."""
    draw = random.Random(seed)
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5, (THERE, 0)) as connection:
            attack(connection, draw)
        time.sleep(0.05)


def measured(port: int, file: ExecutableFile, seconds: float, clients: int, attackers: int) -> Outcome:
    """The answers that `clients` clients get, with attackers beside them."""
    outcome, end = Outcome(), time.monotonic() + seconds
    threads = [threading.Thread(target=honest, args=(port, file, end, outcome, k)) for k in range(clients)]
    command = [sys.executable, "-m", "tests.serving.load", "--attack", str(port), "--hostile", str(attackers)]
    with subprocess.Popen([*command, "--seconds", str(seconds)], cwd=Path(__file__).parents[2]) as process:
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        process.kill()
    return outcome


def attack_all(port: int, seconds: float, attackers: int) -> None:
    """Runs the hostile clients of a process; they stand for other machines, so the process leaves cores to others."""
    os.nice(10)
    end = time.monotonic() + seconds
    attacks = zip(range(attackers), itertools.cycle(ATTACKS), strict=False)
    threads = [threading.Thread(target=hostile, args=(port, end, each, k)) for k, each in attacks]
    for each in threads:
        each.start()


@contextlib.contextmanager
def served(*options: str) -> Iterator[tuple[int, ExecutableFile]]:
    """A server of the classifier in a process, its port, and the program."""
    with tempfile.TemporaryDirectory() as folder:
        file = export(Path(folder) / "m" / "1")
        with serving(Path(folder) / "m", Path(folder) / "log", *options) as (port, _):
            yield port, file


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--hostile", type=int, default=20)
    parser.add_argument("--attack", type=int, metavar="PORT", help="run the hostile clients of a server alone")
    options = parser.parse_args()
    if options.attack:
        attack_all(options.attack, options.seconds, options.hostile)
        return
    with served() as (port, file):
        for count in (0, options.hostile):
            outcome = measured(port, file, options.seconds, options.clients, count)
            print(f"{options.clients} clients, {count} hostile, {options.seconds:g} s: {outcome}", flush=True)


if __name__ == "__main__":
    main()
