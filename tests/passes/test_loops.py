"""Passes on loops keep the results of the definitions, and leave nothing in iterations that can be outside."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from engine.compile import build_program
from engine.evaluate import evaluate
from engine.ir import DotDimensionNumbers, Instruction, Module, TupleShape
from engine.ir.builder import Builder
from engine.passes.loops import distribute
from engine.passes.loops.flat_state import flatten_loop_states
from engine.passes.pass_list import LOOP_PASSES
from engine.passes.run_passes import run_passes
from engine.passes.update_order import readers_first
from tests.engine.running import check
from tests.lower.test_sort import comparator
from tests.passes.checking import assert_same_results
from tests.program.loop_parts import below, loop, next_count
from tests.program.loops import LOOPS

WIDTH, ROWS = 6, 5


def loops_of(module: Module) -> list[Instruction]:
    return [i for computation in module.computations() for i in computation.instructions if i.opcode == "while"]


def opcodes_in_bodies(module: Module) -> Counter[str]:
    return Counter(i.opcode for each in loops_of(module) for i in each.called[0].instructions)


def row(b: Builder, data: Instruction, index: Instruction) -> Instruction:
    """data[index], for data of three dimensions."""
    sizes = (1, *data.array_shape.dimensions[1:])
    zero = b.constant(0, "s32")
    hint = data.array_shape.with_dimensions(sizes)
    part = b.inferred("dynamic-slice", (data, index, zero, zero), hint=hint, dynamic_slice_sizes=sizes)
    return b.reshape(part, sizes[1:])


def pushed(b: Builder, data: Instruction, value: Instruction, index: Instruction) -> Instruction:
    """The data with data[index] replaced."""
    zero = b.constant(0, "s32")
    new = b.reshape(value, (1, *value.array_shape.dimensions))
    return b.inferred("dynamic-update-slice", (data, new, index, zero, zero))


def recurrent(iterations: int, length: int | None = None) -> Module:
    """Builds a recurrent layer that keeps values for its gradient in lists, as TensorFlow does: input, state and
    weights.
    """
    b = Builder("recurrent")
    x = b.parameter("f32", (length or iterations, ROWS, WIDTH))
    w, u = b.parameter("f32", (WIDTH, WIDTH)), b.parameter("f32", (WIDTH, WIDTH))
    states, inputs = b.splat(0.0, (iterations, ROWS, WIDTH)), b.splat(0.0, (iterations, ROWS, WIDTH))
    weights = b.splat(0.0, (iterations, WIDTH, WIDTH))
    begin = [b.constant(0, "s32"), b.constant(0, "s32"), b.splat(0.0, (ROWS, WIDTH)), x, w, u, states, inputs, weights]

    def iteration(s: Builder, e: list[Instruction]) -> list[Instruction]:
        now = row(s, e[3], e[0])
        h = s.elementwise("tanh", s.add(s.dot(now, e[4]), s.dot(e[2], e[5])))
        lists = [pushed(s, e[6], e[2], e[1]), pushed(s, e[7], now, e[1]), pushed(s, e[8], e[5], e[1])]
        return [next_count(s, e[0]), next_count(s, e[1]), h, *e[3:6], *lists]

    forward = loop(b, begin, below(iterations), iteration)
    zero = b.splat(0.0, (WIDTH, WIDTH))
    back = [b.constant(0, "s32"), forward[1], forward[2], zero, zero, b.splat(0.0, (WIDTH,)), *forward[6:]]

    def back_iteration(s: Builder, e: list[Instruction]) -> list[Instruction]:
        last = s.subtract(e[1], s.constant(1, "s32"))
        h, now, kept = (row(s, data, last) for data in e[6:])
        g = s.multiply(e[2], s.elementwise("cosine", h))
        transposed = DotDimensionNumbers((0,), (0,))
        sums = [
            s.add(e[3], s.dot(now, g, transposed)),
            s.add(s.dot(h, g, transposed), e[4]),
            s.add(e[5], s.reduce(g, s.constant(0.0), (0,))),
        ]
        return [next_count(s, e[0]), last, s.dot(g, kept, DotDimensionNumbers((1,), (1,))), *sums, *e[6:]]

    results = loop(b, back, below(iterations), back_iteration)
    return b.module(b.tuple(forward[2], *results[1:6]))


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", LOOPS)
def test_any_loop(name: str) -> None:
    module = LOOPS[name]()
    assert_same_results(module, run_passes(module, LOOP_PASSES, verify=True), tolerance=1e-4)


@pytest.mark.parametrize("name", LOOPS)
def test_flat_states(name: str) -> None:
    module = LOOPS[name]()
    flat = flatten_loop_states(module)
    assert_same_results(module, flat, tolerance=1e-6)
    for each in loops_of(flat):
        assert isinstance(each.shape, TupleShape)
        assert not any(isinstance(element, TupleShape) for element in each.shape.elements)


@pytest.mark.parametrize("iterations", [1, 2, 7])
def test_recurrent_layer(iterations: int) -> None:
    module = recurrent(iterations)
    assert_same_results(module, run_passes(module, LOOP_PASSES, verify=True), tolerance=1e-5)


def test_only_the_recurrence_stays_in_the_loops() -> None:
    small = run_passes(recurrent(7), LOOP_PASSES)
    assert opcodes_in_bodies(small)["dot"] == 2
    assert opcodes_in_bodies(recurrent(7))["dot"] == 5
    forward, back = sorted(loops_of(small), key=lambda each: len(each.tuple_shapes))
    # The state is a count, the layer's state, the products of the input, the weights and the list of states; the input
    # itself replaces its list.
    assert len(forward.tuple_shapes) == 5
    assert {s.dimensions for s in forward.tuple_shapes} == {(), (ROWS, WIDTH), (7, ROWS, WIDTH), (WIDTH, WIDTH)}
    # The list of the weights is not needed, as all its rows are alike.
    assert (7, WIDTH, WIDTH) not in {s.dimensions for s in back.tuple_shapes}


@pytest.mark.parametrize(
    ("rows", "k", "stays"), [(ROWS, WIDTH, True), (ROWS + 1, WIDTH, False), (ROWS, WIDTH - 1, False)]
)
def test_products_of_many_rows_stay_where_their_results_are_in_the_cache(
    rows: int, k: int, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = recurrent(7)
    monkeypatch.setattr(distribute, "MANY_ROWS", rows)
    monkeypatch.setattr(distribute, "SHORT_K", k)
    assert opcodes_in_bodies(run_passes(module, LOOP_PASSES))["dot"] == 2  # the stored products fit into the cache
    monkeypatch.setattr(distribute, "FAR_BYTES", 4 * 7 * ROWS * WIDTH - 1)
    small = run_passes(module, LOOP_PASSES, verify=True)
    assert opcodes_in_bodies(small)["dot"] == 2 + stays
    assert_same_results(module, small, tolerance=1e-5)


def test_an_input_longer_than_the_loop() -> None:
    module = recurrent(4, length=9)
    small = run_passes(module, LOOP_PASSES, verify=True)
    assert_same_results(module, small, tolerance=1e-5)
    assert opcodes_in_bodies(small)["dot"] == 2


def test_rows_beyond_the_end_are_left_to_the_loop() -> None:
    """A dynamic-slice clamps its start, so the iterations do not read the rows one by one."""
    module = recurrent(9, length=4)
    small = run_passes(module, LOOP_PASSES, verify=True)
    assert_same_results(module, small, tolerance=1e-5)
    assert opcodes_in_bodies(small)["dot"] == 3


def test_a_sum_that_the_loop_looks_at_stays() -> None:
    b = Builder("watched")
    x, w = b.parameter("f32", (ROWS, WIDTH)), b.parameter("f32", (WIDTH, WIDTH))

    def iteration(s: Builder, e: list[Instruction]) -> list[Instruction]:
        h = s.elementwise("tanh", s.dot(e[1], e[2]))
        total = s.add(e[3], s.reduce(h, s.constant(0.0), (0, 1)))
        return [next_count(s, e[0]), s.multiply(h, s.broadcast(total, (ROWS, WIDTH), ())), e[2], total]

    results = loop(b, [b.constant(0, "s32"), x, w, b.constant(0.0)], below(5), iteration)
    module = b.module(b.tuple(results[1], results[3]))
    small = run_passes(module, LOOP_PASSES, verify=True)
    assert_same_results(module, small, tolerance=1e-5)
    assert opcodes_in_bodies(small)["reduce"] == 1


def test_what_never_changes_is_computed_once() -> None:
    b = Builder("invariant")
    x, w = b.parameter("f32", (ROWS, WIDTH)), b.parameter("f32", (WIDTH, WIDTH))

    def iteration(s: Builder, e: list[Instruction]) -> list[Instruction]:
        return [next_count(s, e[0]), s.dot(e[1], s.elementwise("tanh", e[2])), e[2]]

    module = b.module(b.tuple(*loop(b, [b.constant(0, "s32"), x, w], below(3), iteration)))
    small = run_passes(module, LOOP_PASSES, verify=True)
    assert_same_results(module, small, tolerance=1e-5)
    assert opcodes_in_bodies(small)["tanh"] == 0


def test_of_several_results_each_leaves_the_loop() -> None:
    """A sort of keys with their rows, as in top_k and argsort; the loop's state contains no tuple."""
    b = Builder("sorting")
    keys, rows = b.parameter("f32", (WIDTH,)), b.parameter("s32", (WIDTH,))

    def iteration(s: Builder, e: list[Instruction]) -> list[Instruction]:
        body = comparator(["f32", "s32"])
        by_key = s.inferred("sort", (s.elementwise("negate", e[1]), e[2]), (body,), dimensions=(0,), is_stable=True)
        first, order = (s.get_tuple_element(by_key, k) for k in range(2))
        return [next_count(s, e[0]), e[1], e[2], s.add(e[3], first), s.add(s.multiply(e[4], order), order)]

    begin = [b.constant(0, "s32"), keys, rows, b.splat(0.0, (WIDTH,)), b.elementwise("add", rows, rows)]
    module = b.module(b.tuple(*loop(b, begin, below(3), iteration)[3:]))
    small = run_passes(module, LOOP_PASSES, verify=True)
    assert_same_results(module, small, tolerance=1e-6)
    assert opcodes_in_bodies(small)["sort"] == 0
    assert not any(isinstance(each, TupleShape) for i in loops_of(small) for each in i.shape.elements)


def test_random_numbers_are_drawn_in_each_iteration() -> None:
    b = Builder("drawing")
    low, high = b.constant(0.0), b.constant(1.0)

    def iteration(s: Builder, e: list[Instruction]) -> list[Instruction]:
        drawn = s.instruction("rng", e[1].shape, (e[2], e[3]), distribution="RNG_UNIFORM")
        return [next_count(s, e[0]), s.add(e[1], drawn), e[2], e[3]]

    x = b.parameter("f32", (ROWS, WIDTH))
    module = b.module(b.tuple(loop(b, [b.constant(0, "s32"), x, low, high], below(3), iteration)[1]))
    assert opcodes_in_bodies(run_passes(module, LOOP_PASSES, verify=True))["rng"] == 1


def test_counters_that_go_alike_become_one() -> None:
    b = Builder("counters")
    x = b.parameter("f32", (ROWS, WIDTH))
    counters = [b.constant(value, "s32") for value in (0, 0, 3, 3)]

    def iteration(s: Builder, e: list[Instruction]) -> list[Instruction]:
        scale = s.convert(s.add(e[1], e[3]), "f32")
        return [*(next_count(s, c) for c in e[:4]), s.add(e[4], s.broadcast(scale, (ROWS, WIDTH), ()))]

    results = loop(b, [*counters, x], below(4), iteration)
    module = b.module(b.tuple(*results))
    small = run_passes(module, LOOP_PASSES, verify=True)
    assert_same_results(module, small, tolerance=1e-6)
    assert len(loops_of(small)[0].tuple_shapes) == 3


@pytest.mark.sample(10)
@pytest.mark.parametrize("seed", range(30))
def test_random_bodies(seed: int) -> None:
    """Lists, sums and rows put together at random."""
    rng = np.random.default_rng(seed)
    iterations = int(rng.integers(1, 6))
    b = Builder("random")
    data, w = b.parameter("f32", (iterations, ROWS, WIDTH)), b.parameter("f32", (WIDTH, WIDTH))
    descending = bool(rng.integers(2))
    start = b.constant(iterations - 1 if descending else 0, "s32")
    count, total = b.constant(0, "s32"), b.splat(0.5, (WIDTH, WIDTH))
    begin = [
        count,
        start,
        b.splat(1.0, (ROWS, WIDTH)),
        data,
        w,
        b.splat(0.0, data.array_shape.dimensions),
        total,
        total,
    ]

    def iteration(s: Builder, e: list[Instruction]) -> list[Instruction]:
        index = e[int(rng.integers(2))]
        values = [row(s, e[3], index), e[2]]
        for _ in range(int(rng.integers(2, 7))):
            one, other = (values[int(rng.integers(len(values)))] for _ in range(2))
            step = int(rng.integers(4))
            if step == 0:
                made = s.elementwise("tanh", s.dot(one, e[4]))
            elif step == 1:
                made = s.multiply(one, other)
            elif step == 2:
                made = s.add(one, s.broadcast(s.reduce(other, s.constant(0.0), (0,)), (ROWS, WIDTH), (1,)))
            else:
                made = s.elementwise("cosine", s.reshape(s.transpose(s.transpose(one, (1, 0)), (1, 0)), (ROWS, WIDTH)))
            values.append(made)
        pick = [values[int(rng.integers(len(values)))] for _ in range(6)]
        contracted = DotDimensionNumbers((0,), (0,))
        sums = [s.add(e[6], s.dot(pick[0], pick[1], contracted)), s.add(s.dot(pick[2], pick[3], contracted), e[7])]
        step = s.constant(-1 if descending else 1, "s32")
        where = e[int(rng.integers(2))]
        return [
            next_count(s, e[0]),
            s.add(e[1], step),
            s.elementwise("tanh", pick[4]),
            *e[3:5],
            pushed(s, e[5], pick[5], where),
            *sums,
        ]

    results = loop(b, begin, below(iterations), iteration)
    module = b.module(b.tuple(results[2], *results[5:]))
    assert_same_results(module, run_passes(module, LOOP_PASSES, verify=True), seed, tolerance=1e-3)


def test_of_elements_that_end_alike_one_is_enough() -> None:
    """The last output of a recurrent layer is its last state; nothing in the loop reads the output."""
    b = Builder()
    h, c = b.parameter("f32", (ROWS, WIDTH)), b.parameter("f32", (ROWS, WIDTH))
    begin = [b.constant(0, "s32"), h, b.splat(0.0, (1, ROWS, WIDTH)), c, b.splat(0.0, (9, ROWS, WIDTH))]

    def iteration(s: Builder, e: list[Instruction]) -> list[Instruction]:
        new = s.elementwise("tanh", s.add(e[1], e[3]))
        return [next_count(s, e[0]), new, s.reshape(new, (1, ROWS, WIDTH)), new, pushed(s, e[4], e[1], e[0])]

    results = loop(b, begin, below(9), iteration)
    module = b.module(b.tuple(*results[1:]))
    optimized = run_passes(flatten_loop_states(module), LOOP_PASSES, verify=True)
    (only,) = loops_of(optimized)
    # Iterations read both one and three; two equals one of them.
    assert len(only.tuple_shapes) == 4
    assert_same_results(module, optimized)
    # A loop may have no iterations, and then ends with its initial values.
    begin[0] = b.parameter("s32")
    module = b.module(b.tuple(*loop(b, begin, below(9), iteration)[1:]))
    optimized = run_passes(flatten_loop_states(module), LOOP_PASSES, verify=True)
    (only,) = loops_of(optimized)
    assert len(only.tuple_shapes) == 5
    for start in (0, 3, 20):
        arguments = [*np.ones((2, ROWS, WIDTH), np.float32), np.array(start, np.int32)]
        pairs = zip(evaluate(module, arguments), evaluate(optimized, arguments), strict=True)
        assert all(np.array_equal(one, other) for one, other in pairs)


def test_readers_of_a_state_come_before_its_new_value() -> None:
    b = Builder()
    begin = [b.constant(0, "s32"), b.parameter("f32", (ROWS, WIDTH)), b.splat(0.0, (9, ROWS, WIDTH))]

    def iteration(s: Builder, e: list[Instruction]) -> list[Instruction]:
        new = s.elementwise("tanh", e[1])
        return [next_count(s, e[0]), s.elementwise("negate", new), pushed(s, e[2], s.multiply(e[1], e[1]), e[0])]

    module = b.module(b.tuple(*loop(b, begin, below(9), iteration)[1:]))
    body = loops_of(module)[0].called[0]
    order = [i.opcode for i in readers_first(body)]
    assert sorted(order) == sorted(i.opcode for i in body.instructions)
    assert order.index("multiply") < order.index("negate") < len(order) - 1
    seen: set[Instruction] = set()
    for instruction in readers_first(body):
        assert seen.issuperset(instruction.operands)
        seen.add(instruction)
    program = build_program(module, ["variable"], {})
    assert not any(each.name.endswith(".update") for each in program.compute_sets)
    check(module)


@pytest.mark.parametrize(("initial", "in_place"), [(0.0, True), (-0.0, False), (1.0, False)])
def test_a_sum_into_one_row_of_a_list_leaves_the_other_rows(initial: float, in_place: bool) -> None:
    """TensorFlow's gradient of reading a list, also where iterations read the same row; bits of zeros stay."""
    b = Builder("rows")
    x, order = b.parameter("f32", (ROWS, WIDTH)), b.parameter("s32", (4,))
    begin = [b.constant(0, "s32"), x, order, b.splat(initial, (3, ROWS, WIDTH))]

    def iteration(s: Builder, e: list[Instruction]) -> list[Instruction]:
        index = s.reshape(s.inferred("dynamic-slice", (e[2], e[0]), dynamic_slice_sizes=(1,)), ())
        value = s.elementwise("tanh", s.multiply(e[1], e[1]))
        row_alone = pushed(s, s.splat(0.0, (3, ROWS, WIDTH)), s.elementwise("negate", value), index)
        return [next_count(s, e[0]), value, e[2], s.add(e[3], row_alone)]

    results = loop(b, begin, below(4), iteration)
    module = b.module(b.tuple(results[1], results[3]))
    small = run_passes(module, LOOP_PASSES, verify=True)
    shapes = {
        i.array_shape.dimensions for each in loops_of(small) for i in each.called[0].instructions if i.opcode == "add"
    }
    assert ((3, ROWS, WIDTH) not in shapes) == in_place
    values = np.linspace(0, 2, ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
    for rows in ([0, 2, 2, 9], [1, 1, 1, 1]):
        arguments = [values, np.array(rows, np.int32)]
        for one, other in zip(evaluate(module, arguments), evaluate(small, arguments), strict=True):
            assert one.tobytes() == other.tobytes()
    check(module)
