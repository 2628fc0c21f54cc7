"""Threads beside collectives are killed: the next collective raises the error, and never waits."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from engine.errors import ProcessError
from ipu._internal.processes.signs import Sign
from ipu._internal.processes.time_limits import SILENCE
from ipu._internal.processes.transport import Background
from ipu._internal.processes.watch import CollectiveWatch, Link

ROOT = Path(__file__).parent.parent.parent


class Killed(BaseException):
    """An error that kills a thread."""


class BrokenLink(Link):
    """A link whose functions kill the calling thread, from a certain moment on."""

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
    watch = CollectiveWatch(0, 2, BrokenLink(broken), {}, unlimited="")
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


class Breaking(SimpleQueue[Any]):
    """A queue that kills a thread that waits for its next element."""

    def get(self, *arguments: Any) -> Any:
        if threading.current_thread().name == "collectives" and self.empty():
            raise Killed
        return super().get(*arguments)


def test_a_background_that_is_killed_while_it_waits_ends_all_further_calls() -> None:
    background = Background()
    background._calls = Breaking()
    background.submit(lambda: None)
    assert background._thread is not None
    background._thread.join(30)
    for _ in range(3):
        with pytest.raises(Killed) as raised:
            background.submit(lambda: None).result(30)
        assert raised.value.__traceback__ is not None
    background.wait()


THREADS = {
    "engine/file_runtime.py": "strategy/test_killed_threads.py",
    "engine/report/render.py": "",  # starts a browser's library early; the first page waits for the library itself
    "engine/runtime/outfeed_collector.py": "strategy/test_killed_threads.py",
    "engine/single_thread.py": "machine_code/test_killed_executors.py",
    "ipu/_internal/processes/collective_ops.py": "processes/test_collective_ops.py",
    "ipu/_internal/processes/launcher.py": "processes/test_output.py",
    "ipu/_internal/processes/mpi_start.py": "",  # MPI's own start, with a time limit
    "ipu/_internal/processes/session_link.py": "processes/test_killed_watch.py",
    "ipu/_internal/processes/watch.py": "processes/test_killed_watch.py",
    "ipu/_internal/queues/dataset_elements.py": "strategy/test_killed_threads.py",
    "ipu/_internal/queues/feeder.py": "strategy/test_killed_threads.py",
    "keras_ext/callback_thread.py": "strategy/test_killed_threads.py",
    "keras_ext/epochs/read_ahead.py": "keras/test_killed_reading.py",
}
"""The files that start threads, each with the test that kills them."""
OTHERS = {
    "engine/compile_progress.py",  # a timer that writes a notice, for which nothing waits
    "engine/resource_limits.py",  # an alarm that waits in C
}
"""The files that start threads otherwise."""


def test_every_thread_is_killed_by_a_test() -> None:
    folders = ("engine", "ipu", "keras_ext")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    starting = {str(path.relative_to(ROOT)) for path in files if re.search(r"\bThread\(\s*target", path.read_text())}
    others = re.compile(r"\b(ThreadPoolExecutor|ProcessPoolExecutor|start_new_thread|threading\.Timer)\(")
    assert starting == THREADS.keys()
    assert {str(path.relative_to(ROOT)) for path in files if others.search(path.read_text())} == OTHERS
    for test in filter(None, THREADS.values()):
        assert re.search("kill|fail", (ROOT / "tests" / test).read_text(), re.IGNORECASE), test
