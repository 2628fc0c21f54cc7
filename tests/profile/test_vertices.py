"""Cycles of element-wise vertices: the published formula, and the table behind it."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.emit.registry import EMITTERS
from engine.lower.fusion import run_draft  # noqa: F401  (registers every emitter)
from engine.profile.vertices import is_listed, loop_of, tables, vertex_cycles, work_of
from engine.program.program import ComputeSet, Effort
from engine.target import target
from tests.profile.programs import dense_step, elementwise

MK2 = target("ipu2")


@pytest.mark.parametrize(
    ("opcode", "kind", "per_element"),
    [
        ("exponential", "f32", 3),
        ("exponential", "f16", 1),
        ("tanh", "f32", 6),
        ("tanh", "f16", 1),
        ("sqrt", "f16", 5.75),
        ("add", "f16", 0.75),
        ("add", "integer", 7),
        ("sine", "f32", 2300),
        ("power", "f16", 325),
        ("bitcast-convert", "integer", 0),
    ],
)
def test_published_slots_per_element(opcode: str, kind: str, per_element: float) -> None:
    cycles, elements = loop_of(opcode, kind)
    assert cycles / elements == per_element


@given(st.lists(st.sampled_from(["add", "exponential", "divide", "erf"]), max_size=4), st.integers(0, 500))
def test_formula_counts_turns_one_by_one(opcodes: list[str], elements: int) -> None:
    share = next(n for n in count() if 6 * n >= elements)
    slots = 29
    for opcode in opcodes:
        cycles, per_turn = loop_of(opcode, "f32")
        slots += cycles * len(range(0, share, per_turn))
    expected = 11 + 6 * slots if elements else 0
    assert vertex_cycles(tuple((o, "f32") for o in opcodes), elements, MK2) == expected


def test_half_has_its_own_prologue() -> None:
    assert vertex_cycles((("add", "f16"),), 24, MK2) == 11 + 6 * (26 + 3)


def test_every_operation_that_the_engine_emits_has_a_row() -> None:
    assert len(EMITTERS) > 20
    assert sorted(opcode for opcode in EMITTERS if not is_listed(opcode)) == []


def test_every_row_has_a_source() -> None:
    table = tables()
    rows = [table["overhead"], table["assumed"], table["matmul"], table["mapping"], *table["operations"].values()]
    assert all(len(row["source"]) > 10 for row in rows)


def test_work_is_read_from_the_nest() -> None:
    (tanh,) = elementwise("tanh", 1000, "f16").compute_sets
    assert work_of(tanh).points == 1000
    assert work_of(tanh).operations == (("tanh", "f16"),)


def test_work_of_a_nest_agrees_with_its_effort() -> None:
    for compute_set in dense_step().compute_sets:
        if not compute_set.effort.multiply_adds:
            work = work_of(compute_set)
            arithmetic = [opcode for opcode, _ in work.operations if opcode != "copy"]
            counted = {opcode: arithmetic.count(opcode) * work.points for opcode in arithmetic}
            assert counted == compute_set.effort.elements, compute_set.name


def test_work_of_any_other_codelet_is_its_effort() -> None:
    effort = Effort({"gather": 640}, element_type="f16")
    compute_set = ComputeSet("gather.1", object(), np.zeros(1, np.int64), [], 1, [], [], effort)
    assert work_of(compute_set).points == 640
    assert work_of(compute_set).operations == (("gather", "f16"),)
