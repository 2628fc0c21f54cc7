"""Compute sets describe their units truly: each unit writes and reads only where its spans say."""

from __future__ import annotations

import numpy as np
import pytest

from engine.program.program import Buffer, ComputeSet, Span
from tests.program.machine import GARBAGE, Machine
from tests.program.programs import PROGRAMS, program_of, values_of


def elements_of(span: Span, lo: int, hi: int) -> np.ndarray:
    """Mask of the elements of the buffer that the units lo <= unit < hi may touch."""
    count = span.buffer.shape.elements
    if span.partition is None:
        return np.ones(count, bool)
    inner, extent, grain = span.partition.inner, span.partition.extent, span.partition.grain
    position = np.arange(count) // inner % extent
    return (position >= lo * grain) & (position < hi * grain)


def claims(compute_set: ComputeSet, unit: int) -> dict[Buffer, np.ndarray]:
    """The bytes of each buffer that a unit may touch."""
    found: dict[Buffer, np.ndarray] = {}
    for span in (*compute_set.reads, *compute_set.writes):
        if span.buffer.kind == "constant":
            continue
        mask = np.repeat(elements_of(span, unit, unit + 1), span.buffer.shape.dtype.itemsize)
        found[span.buffer] = found.get(span.buffer, np.zeros(mask.size, bool)) | mask
    return found


def check_unit(machine: Machine, compute_set: ComputeSet, unit: int) -> None:
    claimed = claims(compute_set, unit)
    views = {b: machine.memory[b][: mask.size] for b, mask in claimed.items()}
    before = {b: view.copy() for b, view in views.items()}
    machine.run_units(compute_set, unit, unit + 1)
    after = {b: view.copy() for b, view in views.items()}
    for buffer, mask in claimed.items():
        changed = np.flatnonzero(before[buffer] != after[buffer])
        assert mask[changed].all(), f"{compute_set.name} unit {unit} writes elsewhere in {buffer.name}"
        views[buffer][:] = np.where(mask, before[buffer], GARBAGE)
    machine.run_units(compute_set, unit, unit + 1)
    for buffer, mask in claimed.items():
        same = views[buffer] == np.where(mask, after[buffer], GARBAGE)
        assert same.all(), f"{compute_set.name} unit {unit} depends on more of {buffer.name}, or writes it"
        views[buffer][:] = before[buffer]


@pytest.mark.parametrize("name", PROGRAMS)
def test_units_touch_only_what_they_say(name: str) -> None:
    module, _ = PROGRAMS[name]()
    machine = Machine(program_of(name), dict(enumerate(values_of(module.entry.parameters))))
    rng = np.random.default_rng(0)
    for compute_set in machine.program.compute_sets:
        some = rng.permutation(compute_set.units)[:5]
        for unit in sorted({0, compute_set.units - 1, *some.tolist()} if compute_set.units > 1 else set()):
            check_unit(machine, compute_set, unit)
        machine.run_units(compute_set, 0, compute_set.units)


@pytest.mark.parametrize("name", PROGRAMS)
def test_units_together_write_everything_once(name: str) -> None:
    """Partitioned writes cover their buffer: units together write every element, each once."""
    for compute_set in program_of(name).compute_sets:
        for span in compute_set.writes:
            if span.partition is not None:
                owners = sum(elements_of(span, u, u + 1).astype(int) for u in range(compute_set.units))
                assert np.all(owners == 1), compute_set.name


def test_most_of_the_work_is_cut_into_units() -> None:
    sets = program_of("large 1").compute_sets
    assert sum(s.units > 1 for s in sets) >= 8
    partitioned = [span for s in sets if s.units > 1 for span in s.writes if span.partition is not None]
    assert len(partitioned) >= 8
