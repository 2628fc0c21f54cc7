"""Campaign of random checks of all kinds for a given time, in processes of their own; failures are kept."""

from __future__ import annotations

import faulthandler
import gc
import itertools
import json
import os
import signal
import time
from collections import Counter, defaultdict
from multiprocessing.connection import Connection
from pathlib import Path

from engine.whole_files import write_whole
from tests import forking
from tests.fuzz.kinds import KINDS, OUTCOMES

COLLECTED_AFTER = 50
"""Checks between two collections of garbage, each of which takes as long as half a mutant."""
KIND_SECONDS = 20.0
"""Seconds after which the next kind is checked."""
COUNTS = "counts.json"
Counts = dict[str, Counter[str]]


class Worker:
    """One process, which checks the seeds of a kind one after another."""

    def __init__(self, kind: str, log: Path) -> None:
        forking.start_server()
        self._kind, self._log, self._left = kind, log, KINDS[kind].checks_of_a_process
        self._connection, other = forking.CONTEXT.Pipe()
        self._process = forking.CONTEXT.Process(target=_serve, args=(other, kind, str(log)), daemon=True)
        self._process.start()
        other.close()

    def __call__(self, seed: int) -> str:
        """Checks a seed in the process; crashes and hangs count as failures, and end the process."""
        self._left -= 1
        self._connection.send(seed)
        limit = KINDS[self._kind].limit_seconds
        if not self._connection.poll(limit):
            self._left = 0
            self._process.kill()
            return f"hang: it takes more than {limit:.0f} s"
        try:
            return str(self._connection.recv())
        except (EOFError, ConnectionResetError):
            self._left = 0
            self._process.join()
            return f"crash: the process ended with {self._process.exitcode}\n{self._log.read_text()[-4000:]}"

    @property
    def is_over(self) -> bool:
        """Whether it checks no more seeds."""
        return self._left <= 0

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.join()
        self._connection.close()


def _serve(connection: Connection, kind: str, log: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the campaign, which ends its workers
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    faulthandler.enable()
    gc.freeze()
    for done in itertools.count(1):
        try:
            seed = connection.recv()
        except EOFError:
            return
        try:
            end = KINDS[kind].check(seed)
        except Exception as error:  # every error that a check does not expect is a fault
            end = f"{type(error).__name__}: {error!s:.2000}"
        connection.send(end)
        if done % COLLECTED_AFTER == 0:
            gc.collect()


class Campaign:
    """Checks each kind for its share of the time; keeps failures, and the counts of this run and of all, by kind."""

    def __init__(self, folder: Path, kinds: list[str], seed: int) -> None:
        self._folder, self._kinds = folder, kinds
        self.found: Counts = {kind: Counter() for kind in kinds}
        self._next = dict.fromkeys(kinds, seed)
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._workers: dict[str, Worker] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._before = self._read()

    def run(self, seconds: float, most: int | None = None) -> None:
        """Checks for `seconds`, at most `most` seeds of each kind; one check is always made."""
        end = time.monotonic() + seconds
        left = {*self._kinds}
        try:
            while left:
                waiting = [each for each in self._kinds if each in left]
                kind = min(waiting, key=lambda each: self._spent[each] / KINDS[each].share)
                turn = time.monotonic()
                while time.monotonic() - turn < KIND_SECONDS and kind in left:
                    self._check(kind)
                    if most is not None and self.found[kind].total() >= most:
                        left.discard(kind)
                    if time.monotonic() >= end:
                        left.clear()
                self._spent[kind] += time.monotonic() - turn
                self._write()
        finally:
            for worker in self._workers.values():
                worker.end()
            self._workers.clear()
            self._write()

    def _check(self, kind: str) -> None:
        if kind in self._workers and self._workers[kind].is_over:
            self._workers.pop(kind).end()
        if kind not in self._workers:
            self._workers[kind] = Worker(kind, self._folder / f".{kind}.log")
        seed = self._next[kind]
        self._next[kind] += 1
        end = self._workers[kind](seed)
        self.found[kind][end if end in OUTCOMES else "FAILED"] += 1
        if end not in OUTCOMES:
            self._keep(kind, seed, end)

    def _keep(self, kind: str, seed: int, end: str) -> None:
        path = self._folder / f"{kind}-{seed}.txt"
        write_whole(path, f"{KINDS[kind].repeat.format(seed=seed)}\n{end}\n")
        print(f"FAILED {kind} {seed}: {end.splitlines()[0] if end else ''}\n    {path}", flush=True)

    def _read(self) -> Counts:
        path = self._folder / COUNTS
        kept = json.loads(path.read_text()) if path.exists() else {}
        return {kind: Counter(counts) for kind, counts in kept.items()}

    def totals(self) -> Counts:
        """The counts of all runs with this folder."""
        kinds = [*self._before, *(kind for kind in self._kinds if kind not in self._before)]
        return {kind: self._before.get(kind, Counter()) + self.found.get(kind, Counter()) for kind in kinds}

    def _write(self) -> None:
        write_whole(self._folder / COUNTS, json.dumps(self.totals(), indent=1) + "\n")
