"""The events of programs, where the configuration of an older program asks for them: compilations and executions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ipu._internal.config.enumerations import ExecutionProfileType
from ipu._internal.config.system import current_system

COMPILE_BEGIN, COMPILE_END, LOAD_ENGINE, EXECUTE = "COMPILE_BEGIN", "COMPILE_END", "LOAD_ENGINE", "EXECUTE"


@dataclass(frozen=True)
class Event:
    """One event of a TracedProgram, with the profiling options that held for its compilation."""

    type: str
    program: Any
    options: Any
    timestamp: float
    """Seconds since 1970."""
    seconds: float = 0.0
    """Duration of the compilation or the execution."""
    steps: int = 0
    """Number of executed steps."""
    has_report: bool = False
    """Whether an execution is one to be reported."""


_events: list[Event] = []


def taken_events() -> list[Event]:
    """The events since the last call, in order."""
    events = _events.copy()
    del _events[: len(events)]
    return events


class ProgramEvents:
    """Records the events of one program."""

    def __init__(self, program: Any, options: Any) -> None:
        self._program = program
        self._options = options
        self._executions = 0

    def _record(self, type: str, **fields: Any) -> None:
        _events.append(Event(type, self._program, self._options, time.time(), **fields))

    @contextmanager
    def compilation(self) -> Iterator[None]:
        """Records begin and end of a compilation, which runs while the context is open."""
        self._record(COMPILE_BEGIN)
        start = time.perf_counter()
        yield
        self._record(COMPILE_END, seconds=time.perf_counter() - start)
        self._record(LOAD_ENGINE)

    def recorded(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """An executable's `run` that records its executions."""

        def call(steps: int, *arguments: Any) -> Any:
            start = time.perf_counter()
            results = run(steps, *arguments)
            every = self._options.report_every_nth_execution
            is_reported = self._executions % every == 0 if every else self._executions == 0
            is_reported &= self._options.execution_trace_type is not ExecutionProfileType.NO_PROFILE
            self._executions += 1
            self._record(EXECUTE, seconds=time.perf_counter() - start, steps=steps, has_report=is_reported)
            return results

        return call


def events_of(program: Any) -> ProgramEvents | None:
    """Recorder of a program's events; None where the configuration does not ask for events."""
    options = getattr(current_system().config, "profiling", None)
    return ProgramEvents(program, options) if options is not None and options.enable_ipu_trace_events else None
