"""Data that tiles receive: footprints compared with counting, and the tiles that must receive at all."""

from __future__ import annotations

from itertools import islice, product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.compile import build_program
from engine.ir.builder import Builder
from engine.profile.exchange import Layouts, exchange_cycles, footprint, received_bytes
from engine.profile.mapping import spread
from engine.profile.superstep import superstep
from engine.target import target
from tests.profile.programs import dense_step, elementwise
from tests.profile.programs import product as matrix_product
from tests.program.loop_parts import below, loop, next_count

MK2 = target("ipu2")


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=4), st.integers(1, 200))
def test_footprint_bounds_what_neighbouring_points_touch(loops: list[tuple[int, bool]], points: int) -> None:
    extents, moves = [e for e, _ in loops], [m for _, m in loops]
    walked = islice(product(*(range(e) for e in extents)), points)
    touched = len({tuple(i for i, moving in zip(at, moves, strict=True) if moving) for at in walked})
    most = prod(e for e, moving in loops if moving)
    assert touched <= footprint(points, extents, moves) <= max(1, min(points, most))


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))
def test_footprint_of_whole_rows_is_exact(rows: int, columns: int, taken: int) -> None:
    assert footprint(min(taken, rows) * columns, [rows, columns], [True, True]) == min(taken, rows) * columns
    assert footprint(min(taken, rows) * columns, [rows, columns], [True, False]) == min(taken, rows)


def test_an_elementwise_operation_works_on_the_tiles_of_its_input() -> None:
    program = elementwise("tanh", 100_000)
    (tanh,) = program.compute_sets
    assert received_bytes(tanh, spread(100_000, 4, MK2), Layouts(program.compute_sets)) == 0


def test_gradients_are_exchanged_to_the_tiles_of_their_variable() -> None:
    program = dense_step()
    layouts = Layouts(program.compute_sets)
    for compute_set in program.compute_sets:
        cost = superstep(compute_set, layouts, MK2)
        if compute_set.op_name.startswith("sgd/") and any(w.buffer.shape.rank == 2 for w in compute_set.writes):
            assert cost.exchange > MK2.exchange_start_cycles
            break
    else:
        raise AssertionError("no update of the weights found")


def test_weights_are_at_home_in_their_first_product() -> None:
    costs = []
    for role in ("feed", "variable"):
        program = matrix_product(16, 512, 512, role=role)
        costs.append(superstep(program.compute_sets[0], Layouts(program.compute_sets), MK2).exchange)
    assert costs[1] < costs[0]


def test_cycles_of_an_exchange() -> None:
    assert [exchange_cycles(n, MK2) for n in (0, 1, 4, 5, 4000)] == [0, 101, 101, 102, 1100]


def test_a_weights_copy_in_half_is_on_the_tiles_of_the_weight() -> None:
    costs = []
    for role in ("feed", "variable"):
        b = Builder("mixed")
        x, w = b.parameter("f16", (16, 512)), b.parameter("f32", (512, 512))
        y = b.dot(x, b.convert(w, "f16"))
        program = build_program(b.module(b.tuple(y, b.convert(b.add(y, y), "f32"))), ["feed", role], {})
        layouts = Layouts(program.compute_sets)
        (made,) = [each for each in program.compute_sets if each.work_estimate.multiply_adds]
        costs.append(superstep(made, layouts, MK2).exchange)
    assert costs[1] < costs[0]


def test_a_loops_state_that_stands_for_weights_is_on_their_tiles() -> None:
    costs = []
    for role in ("feed", "variable"):
        b = Builder("training")
        x, w = b.parameter("f32", (16, 512)), b.parameter("f32", (512, 512))
        _, _, trained = loop(
            *(b, [b.constant(0, "s32"), x, w], below(3)),
            lambda s, e: [
                next_count(s, e[0]),
                e[1],
                s.add(e[2], s.broadcast(s.reduce(s.dot(e[1], e[2]), s.constant(0.0, "f32"), (0,)), (512, 512), (1,))),
            ],
        )
        module = b.module(b.tuple(trained), aliases={1: 0} if role == "variable" else {})
        program = build_program(module, ["feed", role], {})
        layouts = Layouts(program.compute_sets)
        (made,) = [each for each in program.compute_sets if each.work_estimate.multiply_adds]
        costs.append(superstep(made, layouts, MK2).exchange)
    assert costs[1] < costs[0]


@pytest.mark.parametrize(("rows", "arranged"), [(1, False), (2, True)])
def test_a_matrix_times_a_vector_is_read_in_the_programs_order(rows: int, arranged: bool) -> None:
    program = matrix_product(rows, 512, 512, role="variable")
    layouts = Layouts(program.compute_sets)
    assert bool(layouts.arranged) is arranged
    (variable,) = program.variables.values()
    assert any(layouts.is_home(variable, each) for each in program.compute_sets)
