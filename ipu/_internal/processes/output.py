"""Output of the processes that MPI's launcher has started: labelled lines, and the process that failed first."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import IO

TAG = re.compile(rb"\[\d+,(\d+)\]<std(out|err)>: ?")
NOTICE = re.compile(rb"-{60,}\s*$")
"""Lines around MPI's notices, which repeat the launcher's own message at length."""
ENDED = re.compile(r"process rank (\d+) with PID \d+ on node (\S+) (.*?)\.", re.DOTALL)
EXITED = re.compile(r"Process name: \[\S+,(\d+)\] Exit code: +(\d+)")
ABORTED = re.compile(r"MPI_ABORT was invoked on rank (\d+)")
EVENT = re.compile(rb"\0(begin|end|abort) of MPI\n")
"""Lines by which processes report their progress to the launcher, unseen."""
GLUED = re.compile(rb"\0?(?=\[\d+,\d+\]<std(?:out|err)>: )")
"""Boundary between lines of two processes: one has ended without a newline, or an abort of MPI leaves a zero byte."""
LAUNCHED = "SOFTWARE_IPU_LAUNCHED"
"""The environment variable that the launcher sets for its processes."""
KEPT = 100
"""The number of lines of an error that are kept to be repeated."""


def report_event(event: str) -> None:
    """Reports the begin, end or abort of MPI to the launcher, if it has started this process."""
    if LAUNCHED in os.environ:
        sys.stderr.flush()
        os.write(2, f"\0{event} of MPI\n".encode())


class Output:
    """The output of all processes, forwarded by a thread for each of stdout and stderr."""

    def __init__(self) -> None:
        self._notices: list[str] = []
        self._errors: dict[int, deque[str]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._latest = -1
        self._running: set[int] = set()
        self.aborted = threading.Event()
        self.broken: BaseException | None = None

    def forward(self, lines: Iterable[bytes], out: IO[bytes]) -> None:
        """Writes lines with the number of their process; keeps MPI's notices. `broken` is the error that hinders it."""
        lines = iter(lines)
        try:
            self._forward(lines, out)
        except BaseException as error:
            self.broken = error
            self.aborted.set()
            deque(lines, 0)  # a process would wait for ever with a full pipe

    def _forward(self, lines: Iterable[bytes], out: IO[bytes]) -> None:
        inside, unended = False, False
        for line in (part for joined in lines for part in GLUED.split(joined) if part):
            tag = TAG.match(line)
            text = self._without_event(line[tag.end() :], int(tag[1])) if tag else line
            if NOTICE.match(text):
                inside = not inside
            elif inside or (tag is None and not line.strip()):
                self._notices.append(text.decode(errors="replace"))
            elif text.strip(b" \0\r\n"):
                out.write(b"\n" * unended + (b"[%s] %s" % (tag[1], text) if tag else text))
                out.flush()
                unended = not text.endswith(b"\n")
                if tag and tag[2] == b"err":
                    self._latest = int(tag[1])
                    self._errors[self._latest].append(text.decode(errors="replace"))

    def _without_event(self, text: bytes, rank: int) -> bytes:
        event = EVENT.search(text)
        if event is None:
            return text
        (self._running.add if event[1] == b"begin" else self._running.discard)(rank)
        if event[1] == b"abort":
            self.aborted.set()
        return text[: event.start()] + text[event.end() :]

    def lost(self) -> list[int]:
        """The processes that have initialised MPI, and neither ended nor aborted it."""
        return sorted(self._running)

    def failure(self) -> str:
        """Describes which process failed first, and how, with its error where the errors of others have followed it."""
        text = " ".join(" ".join(self._notices).split())
        if found := ENDED.search(text):
            ended = f"process {found[1]} on {found[2]} ended first: {found[3]}"
        elif found := EXITED.search(text):
            ended = f"process {found[1]} ended first: exit status {found[2]}"
        elif found := ABORTED.search(text):
            ended = f'process {found[1]} ended first: calling "abort"'
        else:
            return "".join(self._notices).strip() or "MPI's launcher has ended all processes"
        rank = int(found[1])
        error = self._error(rank) if self._latest != rank else ""
        return f"{ended}:\n{error}" if error and ("signal 9" not in ended or self._raised(rank)) else ended

    def _raised(self, rank: int) -> bool:
        """Whether a process has printed a traceback. One that is only killed may have left warnings."""
        return any(line.startswith("Traceback") for line in self._errors[rank])

    def _error(self, rank: int) -> str:
        """The message of the error that has ended a process: the lines after its traceback."""
        lines: list[str] = []
        for line in self._errors[rank]:
            lines = [] if line.startswith((" ", "Traceback")) else [*lines, line]
        return "".join(lines).rstrip()
