"""Runs programs of other tests on the debug executor, as they are or with an error put into them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from engine.codelets.language.encoded import CodeletWork
from engine.codelets.language.record import Record
from engine.debug import DebugExecutable
from engine.ir import Module
from engine.program.program import Address, Buffer, ComputeSet, Program, Span
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.executable import Executable
from engine.runtime.feeds import RowFeed
from tests.program.programs import PROGRAMS, program_of, values_of

STEPS = 2
Results = tuple[list[np.ndarray], list[np.ndarray]]


def run_named(name: str, executable: Executable, steps: int = STEPS) -> Results:
    """The outputs of some steps of one of PROGRAMS, and its variables afterwards."""
    module, roles = PROGRAMS[name]()
    return run_module(module, roles, executable, steps)


def run_module(module: Module, roles: list[str], executable: Executable, steps: int = STEPS) -> Results:
    """Runs a module; feeds bring the same rows in each step."""
    feeds, variables = [], []
    for value, role, parameter in zip(values_of(module.entry.parameters), roles, module.entry.parameters, strict=True):
        if role == "feed":
            feeds.append(RowFeed(np.concatenate([value] * steps) if value.ndim else np.stack([value] * steps)))
        elif role == "variable":
            variables.append(DeviceBuffer(parameter.array_shape))
            variables[-1].write(value)
    outputs = executable.run(steps, feeds, variables, "all")
    return outputs, [variable.read() for variable in variables]


def run_changed(name: str, change: Callable[[Program], None], tiles: int = 4) -> Results:
    """Runs one of PROGRAMS after a change."""
    program = program_of(name)
    change(program)
    return run_named(name, DebugExecutable(program, tiles=tiles))


def same_bits(received: Results, expected: Results) -> bool:
    pairs = zip([*received[0], *received[1]], [*expected[0], *expected[1]], strict=True)
    return all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


def with_spans(spans: list[Span], buffer: Buffer, **changes: int) -> list[Span]:
    """The spans, with the partition changed in those of one buffer."""
    return [
        replace(s, partition=replace(s.partition, **changes)) if s.buffer is buffer and s.partition is not None else s
        for s in spans
    ]


class Unnamed(Record):
    """The head of a parameter block that has no fields, only words."""


def set_of(codelet: object, buffers: list[Buffer], numbers: list[Any], units: int, **rest: Any) -> ComputeSet:
    """A compute set whose parameters are first addresses, then numbers; `reads` and `writes` are spans."""
    scratch = rest.pop("scratch", 0)
    arguments = {"reads": [], "writes": [], **rest}
    name = str(arguments.pop("name", "made by hand"))
    work = CodeletWork(codelet, Unnamed(), (*map(Address, buffers), *numbers), scratch)
    return ComputeSet(name, work, units, **arguments)  # type: ignore[arg-type]
