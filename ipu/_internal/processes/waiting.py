"""A collective that takes long: the processes that it waits for, and their activity by their signs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ipu._internal.processes.signs import Sign, state_of

LISTED = 4
"""The most processes that a line names."""
BUSY = 0.05
"""The least share of the time for which a process that computes uses the processor."""


class WaitingCollective:
    """A collective that has begun `seconds` ago, and the signs of the other processes since."""

    def __init__(self, call: str, others: Iterable[int]) -> None:
        self.call, self.seconds, self._before = call, 0.0, 0.0
        self.others = {rank: _Other() for rank in others}

    def passes(self, period: float) -> bool:
        """Whether the seconds waited have passed a multiple of a period in the latest call of `hear`."""
        return self._before // period < self.seconds // period

    def hear(self, answers: Iterable[tuple[int, Sign]], seconds: float) -> None:
        """Takes in signs, and the seconds since the last call."""
        self._before, self.seconds = self.seconds, self.seconds + seconds
        for rank, sign in answers:
            if rank in self.others:
                self.others[rank].hear(sign, self.seconds)

    def look(self, pids: Mapping[int, int]) -> list[int]:
        """Asks the operating system for processes of this machine, by rank; returns the ranks to ask for signs."""
        for rank, other in self.others.items():
            other.look(pids.get(rank), self.seconds)
        unasked = [rank for rank, other in self.others.items() if not other.asked]
        for rank in unasked:
            self.others[rank].asked = True
        return unasked

    def silent(self, seconds: float) -> bool:
        """Whether a process has given no sign for `seconds` seconds."""
        return any(self.seconds - other.heard > seconds for other in self.others.values())

    def first(self, rank: int) -> bool:
        """Whether no process of a lower rank waits as well, by its last sign."""
        return not any(other.waits for lower, other in self.others.items() if lower < rank)

    def __str__(self) -> str:
        """The processes for which this one waits, in words."""
        silent = {rank: other for rank, other in self.others.items() if other.is_silent}
        late = {rank: other for rank, other in self.others.items() if not other.waits_in(self.call)}
        late = silent | late or self.others
        lines = [f"process {rank} {other.description(self.seconds)}" for rank, other in list(late.items())[:LISTED]]
        return "; ".join(lines) + (f"; and {len(late) - LISTED} more" if len(late) > LISTED else "")


class _Other:
    """Another process: the time of its last sign, in seconds of the collective, and the sign itself."""

    def __init__(self) -> None:
        self.heard, self.asked, self._missed, self._busy = 0.0, False, False, False
        self.sign: Sign | None = None
        self._state = ""
        self._used: tuple[float, float] | None = None

    @property
    def waits(self) -> bool:
        return self.sign is not None and bool(self.sign.call)

    @property
    def is_silent(self) -> bool:
        """Whether it has not answered, and is not known to compute."""
        return self._missed and not self._busy

    def waits_in(self, call: str) -> bool:
        """Whether its last sign came from the same collective."""
        return self.sign is not None and self.sign.call == call

    def hear(self, sign: Sign, now: float) -> None:
        """Takes in an answer."""
        self.asked, self._missed, self.heard = False, False, now
        if sign != self.sign:  # workers of a cluster store theirs from time to time
            self.sign = sign
            self._uses(sign.seconds, now)

    def look(self, pid: int | None, now: float) -> None:
        """Looks at a process's state in the operating system: one that computes lives, though it may not answer."""
        self._missed = self.asked
        state = None if pid is None else state_of(pid)
        self._state = "" if pid is None else "ended" if state is None else "stopped" if state[0] in "Tt" else ""
        if not self._missed:
            return
        self._busy = False
        if state is not None and not self._state:
            self._uses(state[1], now)
            self.heard = now if self._busy else self.heard

    def _uses(self, seconds: float, now: float) -> None:
        before, self._used = self._used, (now, seconds)
        if before is not None and now > before[0]:
            self._busy = seconds - before[1] > BUSY * (now - before[0])

    def description(self, now: float) -> str:
        """The activity of the other process, in words."""
        line = f", at {self.sign.line}" if self.sign is not None and self.sign.line else ""
        if self._state == "ended":
            return "has ended"
        if self._state == "stopped":
            return f"is stopped by a signal{line}"
        if self.is_silent:
            return f"has given no sign of life for {now - self.heard:.0f} s{line and f', last seen{line[1:]}'}"
        if self.sign is not None and self.sign.call:
            return f"waits in {self.sign.call}"
        return ("computes" if self._busy else "does not use the processor") + line
