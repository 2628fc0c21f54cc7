"""Threads beside collectives that are killed: the next collective raises it, and never waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import pytest

from engine.errors import ProcessError
from ipu._internal.processes.background import Background
from ipu._internal.processes.signs import Sign
from ipu._internal.processes.time_limits import SILENCE
from ipu._internal.processes.watch import Link, Watch


class Killed(BaseException):
    """What kills a thread."""


class BrokenLink(Link):
    """A link whose functions kill the thread that calls them, from a moment on."""

    def __init__(self, broken: str) -> None:
        self.broken = broken

    def _end(self, name: str) -> None:
        if self.broken == name:
            raise Killed

    def ask(self, ranks: Iterable[int]) -> None:
        self._end("ask")

    def answers(self, own: Callable[[], Sign]) -> list[tuple[int, Sign]]:
        self._end("answers")
        return []

    def end_all(self, error: ProcessError) -> None:
        self._end("end_all")


@pytest.mark.parametrize("broken", ["answers", "ask"])
def test_a_killed_watch_is_an_error_of_the_next_collective(broken: str, monkeypatch) -> None:
    monkeypatch.setenv(SILENCE, "2")
    watch = Watch(0, 2, BrokenLink(broken), {}, unlimited="")
    watch.begin("all_reduce")
    end = time.monotonic() + 30
    while watch.error is None and time.monotonic() < end:
        time.sleep(0.01)
    assert isinstance(watch.error, ProcessError) and isinstance(watch.error.__cause__, Killed)
    assert watch.error.__cause__.__traceback__ is not None
    watch.end()
    watch.close()


def test_a_call_in_the_background_that_is_killed_leaves_the_thread_alive() -> None:
    background = Background()

    def killed() -> None:
        raise Killed

    first, second = background.submit(killed), background.submit(lambda: None)
    with pytest.raises(Killed):
        first.result(30)
    second.result(30)
    background.wait()
