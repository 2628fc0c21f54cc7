"""Cycles of element-wise vertices: the published formula, and the table behind it."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.codelets.language.encoded import CodeletWork
from engine.compile import build_program
from engine.emit.registry import EMITTERS
from engine.ir import Shape, TupleShape, WindowDimension
from engine.ir.builder import Builder
from engine.lower.fusion import run_draft  # noqa: F401  (registers every emitter)
from engine.profile.exchange import Layouts
from engine.profile.program_estimate import estimate
from engine.profile.vertices import is_listed, loop_of, pooling_cycles, tables, vertex_cycles, work_of
from engine.program.program import ComputeSet, Program, WorkEstimate
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
def test_formula_counts_iterations_one_by_one(opcodes: list[str], elements: int) -> None:
    share = next(n for n in count() if 6 * n >= elements)
    slots = 29
    for opcode in opcodes:
        cycles, per_iteration = loop_of(opcode, "f32")
        slots += cycles * len(range(0, share, per_iteration))
    expected = 11 + 6 * slots if elements else 0
    assert vertex_cycles(tuple((o, "f32") for o in opcodes), elements, MK2) == expected


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [("negate", 20 + 6 * (17 + 10)), ("exponential", 20 + 6 * (33 + 30)), ("sqrt", 20 + 6 * (17 + 50))],
)
def test_unary_vertices_have_prologues_of_their_own(opcode: str, expected: int) -> None:
    program = elementwise(opcode, 10 * 6 * 1472)
    assert work_of(program.compute_sets[0]).form == "unary"
    assert estimate(program, MK2).compute == expected


def test_an_operation_with_a_scalar() -> None:
    b = Builder("scaled")
    x, s = b.parameter("f32", (60_000,)), b.parameter("f32", ())
    made = b.multiply(x, b.broadcast(s, (60_000,), ()))
    (scaled,) = build_program(b.module(b.tuple(made)), ["feed", "feed"], {}).compute_sets
    assert work_of(scaled).form == "scalar"
    assert vertex_cycles((("multiply", "f32"),), 60, MK2, "scalar") == 11 + 6 * (20 + 15)


def drawn(end: str) -> Program:
    """Builds uniform numbers as TensorFlow makes them from bits, with one of several ends."""
    b = Builder("drawn")
    shape = (100_000,)
    state = b.parameter("u64", (3,))
    made = b.instruction(
        "rng-bit-generator", TupleShape((state.shape, Shape("u32", shape))), (state,), rng_algorithm="RNG_PHILOX"
    )
    bits = b.get_tuple_element(made, 1)
    mantissa = b.elementwise("shift-right-logical", bits, b.splat(9, shape, "u32"))
    word = b.elementwise("or", mantissa, b.splat(0x3F800000, shape, "u32"))
    uniform = b.subtract(b.instruction("bitcast-convert", Shape("f32", shape), (word,)), b.splat(1.0, shape))
    x = b.parameter("f32", shape)
    if end == "uniform":
        last = b.add(x, uniform)
    elif end == "normal":
        last = b.add(x, b.elementwise("log", uniform))
    else:
        kept, other = b.compare(uniform, b.splat(0.9, shape), "LT"), 0.0 if end == "dropout" else 1.0
        last = b.select(kept, b.multiply(x, b.splat(1 / 0.9, shape)) if not other else x, b.splat(other, shape))
    return build_program(b.module(b.tuple(last)), ["variable", "feed"], {})


@pytest.mark.parametrize(
    ("end", "operations"),
    [
        ("uniform", (("add", "f32"),)),
        ("normal", (("normal", "f32"), ("add", "f32"))),
        ("coin", (("bernoulli", "f32"), ("select", "f32"))),
        ("dropout", (("dropout", "f32"),)),
    ],
)
def test_what_makes_numbers_of_random_bits_is_one_vertex(end: str, operations: tuple) -> None:
    program = drawn(end)
    last = program.compute_sets[-1]
    assert work_of(last, Layouts(program.compute_sets).library).operations == operations
    assert len(work_of(last).operations) > len(operations)
    found = estimate(program, MK2)
    assert found.costs[-1].compute == vertex_cycles(operations, -(-100_000 // 1472 // 2) * 2, MK2)
    bits = next(cost for cost in found.costs if cost.name.endswith(".bits"))
    # Vertices of other distributions generate bits of their own.
    assert bits.compute == 11 + 6 * (24 + (4 * 6 if end == "uniform" else 0))


def test_poolings_count_vectors_and_rows() -> None:
    assert pooling_cycles("f32", 6 * 100, 50, MK2) == 11 + 6 * (29 + 2 * 30 + 50 * 3)
    b = Builder("pooling")
    x = b.parameter("f32", (4, 32, 32, 64))
    window = (WindowDimension(1), WindowDimension(2, 2), WindowDimension(2, 2), WindowDimension(1))
    pooled = b.reduce_window(x, b.constant(0.0), window)
    program = build_program(b.module(b.tuple(pooled)), ["feed"], {})
    assert program.compute_sets[-1].work_estimate.windows == 4
    per_tile = -(-4 * 16 * 16 * 64 * 4 // 1472 // 2) * 2
    assert estimate(program, MK2).compute == pooling_cycles("f32", per_tile, 16 * 64, MK2)


def test_streams_and_padding_take_no_vertices() -> None:
    b = Builder("padded")
    x = b.parameter("f32", (4, 32, 32, 16))
    window = (WindowDimension(1), WindowDimension(3, 1, 1, 1), WindowDimension(3, 1, 1, 1), WindowDimension(1))
    found = estimate(build_program(b.module(b.tuple(b.reduce_window(x, b.constant(0.0), window))), ["feed"], {}), MK2)
    assert [cost.cycles for cost in found.costs if "padding" in cost.name] == [0]


def test_transposes_run_in_blocks() -> None:
    b = Builder("transpose")
    x = b.parameter("f32", (640, 320))
    (turned,) = build_program(b.module(b.tuple(b.transpose(x, (1, 0)))), ["feed"], {}).compute_sets
    assert work_of(turned).operations == (("transpose", "f32"),)


def test_sorts_are_bitonic() -> None:
    b = Builder("sort")
    x = b.parameter("f32", (4096,))
    lhs = Builder("less")
    first, second = lhs.parameter("f32"), lhs.parameter("f32")
    comparator = lhs.build(lhs.compare(first, second, "LT"))
    made = b.inferred("sort", (x,), called=(comparator,), dimensions=(0,), is_stable=False)
    found = estimate(build_program(b.module(b.tuple(made)), ["feed"], {}), MK2)
    (cost,) = [c for c in found.costs if c.method == "bitonic sort"]
    # 13 bits give 91 rounds; rounds within the 32 elements of a tile need no exchange.
    assert cost.sync == MK2.superstep_sync * (91 - (15 + 5 * 8))
    assert found.assumed == ()


@pytest.mark.parametrize(("kind", "opcode"), [("f32", "multiply"), ("f16", "multiply"), ("s32", "divide")])
def test_a_quotient_of_floats_by_a_constant_is_a_product(kind: str, opcode: str) -> None:
    b = Builder("scaled")
    x = b.parameter(kind, (60_000,))
    program = build_program(b.module(b.tuple(b.divide(x, b.splat(3, (60_000,), kind)))), ["feed"], {})
    assert [name for name, _ in work_of(program.compute_sets[0]).operations][-1] == opcode


@pytest.mark.parametrize(("given", "made"), [("f16", "f32"), ("f32", "f16")])
@pytest.mark.parametrize("share", [16, 100, 700])
def test_a_grid_of_casts(given: str, made: str, share: int) -> None:
    """poplibs' casts between fp16 and fp32 take 2 cycles for 4 elements."""
    b = Builder("cast")
    x = b.parameter(given, (1472 * 6 * share,))
    cast = b.instruction("convert", Shape(made, x.array_shape.dimensions), (x,))
    program = build_program(b.module(b.tuple(cast)), ["feed"], {})
    expected = 20 + 6 * (17 + 2 * share / 4)
    assert estimate(program, MK2).compute == pytest.approx(expected, abs=12)


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


def test_work_of_a_nest_agrees_with_its_estimate() -> None:
    for compute_set in dense_step().compute_sets:
        if not compute_set.work_estimate.multiply_adds:
            work = work_of(compute_set)
            if any(opcode == "tanh-gradient" for opcode, _ in work.operations):
                assert compute_set.work_estimate.elements["subtract"] == work.points  # a vertex for three operations
                continue
            arithmetic = [opcode for opcode, _ in work.operations if opcode != "copy"]
            counted = {opcode: arithmetic.count(opcode) * work.points for opcode in arithmetic}
            assert counted == compute_set.work_estimate.elements, compute_set.name


def test_work_of_any_other_codelet_is_its_estimate() -> None:
    work_estimate = WorkEstimate({"gather": 640}, element_type="f16")
    compute_set = ComputeSet("gather.1", CodeletWork(None, None), 1, [], [], work_estimate)
    assert work_of(compute_set).points == 640
    assert work_of(compute_set).operations == (("gather", "f16"),)
