"""The work of compute sets as data: printed, compared, and with other addresses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.host.passes.pass_list import HOST_PASSES
from engine.program.printer import print_program
from engine.program.run_passes import run_passes
from engine.program.work.contraction import Contraction
from engine.program.work.offsets import Offsets
from tests.program.programs import PROGRAMS, program_of


def test_a_program_is_printed_with_its_spans_and_work() -> None:
    program = program_of("training")
    text = print_program(program)
    for number, compute_set in enumerate(program.compute_sets):
        assert f"%{number} {compute_set.name}: {compute_set.units} unit" in text
        assert all(f"{s.buffer.name} {s.buffer.shape}" in text for s in compute_set.reads + compute_set.writes)
    assert "Contraction a=" in text and "FusedLoop over [" in text


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_is_printed(name: str) -> None:
    program = run_passes(program_of(name), HOST_PASSES)
    assert print_program(program).count("\n%") == len(program.compute_sets)


def test_work_is_compared_by_its_data() -> None:
    """Work with the same buffers is equal if its other data are; tables of offsets are equal if their numbers are."""
    work = next(s.work for s in program_of("training").compute_sets if isinstance(s.work, Contraction))
    same = replace(work, row_a=Offsets(work.row_a.table.copy()))
    assert same == work and hash(same) == hash(work)
    assert replace(work, row_a=Offsets(work.row_a.table + 4)) != work
    assert work.with_addresses(lambda a: a) == work
    moved = work.with_addresses(lambda a: replace(a, offset=a.offset + 8))
    assert [a.offset for a in moved.addresses] == [a.offset + 8 for a in work.addresses]


def test_offsets_never_change() -> None:
    table = Offsets(np.array([1, 2, 4]))
    with pytest.raises(ValueError, match="read-only"):
        table.table[0] = 1
    assert repr(table) == "[1, 2, 4]" and repr(Offsets(np.arange(3) * 4)) == "[0:12:4]"
