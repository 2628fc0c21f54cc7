"""Real programs, each time with one statement less or one sync less: nothing wrong goes unnoticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.debug import DebugExecutable
from engine.errors import DebugError
from engine.host.select import select_convolutions
from engine.program.program import ComputeSet, Program, Span
from engine.runtime.executor import Column, RowKind
from tests.debug.helpers import run_named
from tests.program import programs
from tests.program.programs import PROGRAMS

SOME = ("training", "convolution", "embedding", "moves", "large 1")
EVERY_NAME = [name if name in SOME else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS]
NO_INFLUENCE = {("small 1", "fusion.5", "parameter.4")}
"""Variants without any influence: a select never takes the value."""


def program_of(name: str) -> Program:
    """The program with its convolutions' algorithms: choosing them writes spans anew."""
    return select_convolutions(programs.program_of(name))


def is_found(name: str, program: Program) -> bool:
    try:
        run_named(name, DebugExecutable(program), steps=1)
    except DebugError:
        return True
    return False


def stated(compute_set: ComputeSet, what: str) -> list[Span]:
    return list(getattr(compute_set, what))


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", EVERY_NAME)
@pytest.mark.parametrize("what", ["reads", "writes"])
def test_no_buffer_can_be_left_out(name: str, what: str) -> None:
    tried = 0
    for number, original in enumerate(program_of(name).compute_sets):
        for place in range(len(stated(original, what))):
            program = program_of(name)
            changed = program.compute_sets[number]
            spans = stated(changed, what)
            buffer = spans[place].buffer
            if buffer.kind == "constant" or (name, changed.name, buffer.name) in NO_INFLUENCE:
                continue
            setattr(changed, what, [span for span in spans if span.buffer is not buffer])
            assert is_found(name, program), f"{changed.name} without {buffer.name}"
            tried += 1
    assert tried


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["training", "large 1", "moves"])
@pytest.mark.parametrize("what", ["reads", "writes"])
def test_no_slice_can_be_smaller(name: str, what: str) -> None:
    tried = 0
    for number, original in enumerate(program_of(name).compute_sets):
        for place, span in enumerate(stated(original, what)):
            if span.partition is None or span.partition.grain == 1 or original.units == 1:
                continue
            program = program_of(name)
            changed = program.compute_sets[number]
            spans = stated(changed, what)
            smaller = replace(span.partition, grain=span.partition.grain - 1)
            buffer = spans[place].buffer
            others = [each for each in spans if each.buffer is not buffer]
            setattr(changed, what, [*others, Span(buffer, smaller)])
            assert is_found(name, program), f"{changed.name} with a smaller piece of {buffer.name}"
            tried += 1
    assert tried


class WithoutRow(DebugExecutable):
    """An executable whose step table lacks one row."""

    missing = 0

    def _table(self, all_outputs: bool, workers: int) -> np.ndarray:
        return np.ascontiguousarray(np.delete(super()._table(all_outputs, workers), self.missing, 0))


@pytest.mark.parametrize("name", ["training", "products", "large 3"])
def test_no_sync_can_be_left_out(name: str) -> None:
    table = DebugExecutable(program_of(name))
    run_named(name, table, steps=1)
    syncs = np.flatnonzero(table._table(True, 4)[:, Column.KIND] == RowKind.SYNC)
    assert syncs.size >= 2
    for row in syncs.tolist():
        executable = WithoutRow(program_of(name))
        executable.missing = row
        with pytest.raises(DebugError, match="Expected a sync between compute set"):
            run_named(name, executable, steps=1)
