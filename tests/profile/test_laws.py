"""Laws that estimates obey whatever their accuracy: larger sizes are not cheaper, data moves before it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.compile import build_program
from engine.ir import DotDimensionNumbers, Instruction, WindowDimension
from engine.ir.builder import Builder
from engine.profile.exchange import Layouts, point_order
from engine.profile.links import all_reduce_cycles
from engine.profile.loops import skipped
from engine.profile.mapping import spread
from engine.profile.matmul import Product, plan_product
from engine.profile.options import Assumptions, ProductOptions
from engine.profile.program_estimate import Estimate, estimate
from engine.profile.scaling import predict, workload_of
from engine.profile.superstep import product_of
from engine.program import copies, product_units, units
from engine.program.program import Program
from engine.target import target
from tests.exploring import examples
from tests.profile.programs import dense_step
from tests.program.loop_parts import below, branch, loop, next_count, product

MK2 = target("ipu2")
ROWS = st.integers(1, 3000)
COLUMNS = st.sampled_from([3, 10, 64, 100, 700])
Make = Callable[[Builder, Instruction], Instruction]


def built(dimensions: tuple[int, ...], make: Make, element_type: str = "f32") -> Program:
    b = Builder("law")
    x = b.parameter(element_type, dimensions)
    return build_program(b.module(b.tuple(make(b, x))), ["feed"], {})


def of(dimensions: tuple[int, ...], make: Make, element_type: str = "f32") -> Estimate:
    return estimate(built(dimensions, make, element_type), MK2)


def summed(*dimensions: int) -> Make:
    return lambda b, x: b.reduce(x, b.constant(0.0, x.array_shape.element_type), dimensions)


def centred(b: Builder, x: Instruction) -> Instruction:
    """Each row less its largest value, as in a softmax."""
    rows = x.array_shape.dimensions
    largest = b.reduce(x, b.constant(-1e4, x.array_shape.element_type), (1,), "maximum")
    return b.elementwise("exponential", b.subtract(x, b.broadcast(largest, rows, (0,))))


def scanned(b: Builder, x: Instruction) -> Instruction:
    """Cumulative sums of rows."""
    length = x.array_shape.dimensions[1]
    window = WindowDimension(1), WindowDimension(length, 1, length - 1, 0)
    return b.reduce_window(x, b.constant(0.0, x.array_shape.element_type), window)


def fed(*dimensions: int) -> int:
    """Elements of an array on a tile."""
    return spread(dimensions[0] * dimensions[1], 4, MK2).per_tile


@settings(max_examples=examples(15), deadline=None)
@given(ROWS, COLUMNS, st.sampled_from([(0,), (0, 1)]), st.integers(1, 3))
def test_sums_over_tiles_are_exchanged_and_grow(rows: int, columns: int, over: tuple[int, ...], times: int) -> None:
    """The units of this processor that share the rows do not matter: the chip adds the parts of all its tiles."""
    few, many = of((rows, columns), summed(*over)), of((rows * times, columns), summed(*over))
    terms = rows * (columns if len(over) > 1 else 1)
    assert bool(few.exchange and few.sync) or terms <= fed(rows, columns)
    assert few.cycles <= many.cycles


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(1, 200), st.sampled_from([700, 5000]))
def test_rows_on_several_tiles_receive_the_values_of_rows(rows: int, columns: int) -> None:
    """The maxima of parts of rows are compared, and sent back; or a tile has a whole row, for both."""
    found = of((rows, columns), centred)
    assert columns > fed(rows, columns), "an even share is a part of a row"
    for cost in found.costs:
        assert bool(cost.exchange and cost.sync) or cost.tiles <= rows
    assert found.cycles <= of((2 * rows, columns), centred).cycles


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(1, 200), st.sampled_from([2, 8, 64]))
def test_matrices_on_several_tiles_are_transposed_by_an_exchange(matrices: int, size: int) -> None:
    """Units of this processor may have whole matrices where the chip's tiles have parts of them."""

    def transposed(b: Builder, x: Instruction) -> Instruction:
        return b.multiply(b.transpose(x, (0, 2, 1)), b.splat(2.0, (x.array_shape.dimensions[0], size, size)))

    found = of((matrices, size, size), transposed)
    assert bool(found.exchange) == (found.costs[0].tiles > matrices)
    assert found.cycles <= of((2 * matrices, size, size), transposed).cycles


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(1, 300), st.sampled_from([2, 20, 33, 300, 4096]))
def test_scans_exchange_what_comes_before(rows: int, length: int) -> None:
    found, shorter = of((rows, length), scanned), of((rows, -(-length // 2)), scanned)
    assert bool(found.exchange) == (found.costs[0].tiles > rows)
    assert of((-(-rows // 2), length), scanned).cycles <= found.cycles
    assert shorter.cycles <= found.cycles
    assert found.cycles >= of((rows, length), lambda b, x: b.add(x, x)).compute / 2


@pytest.mark.parametrize("rows", [4, 64, 1000])
def test_terms_of_halves_that_are_neighbours_are_not_transposed(rows: int) -> None:
    """A split product of fp16 has fp32 results; the strides of its operands are those of fp16."""
    found = {}
    for kind in ("f32", "f16"):
        b = Builder("product")
        x, w = b.parameter(kind, (rows, 256)), b.parameter(kind, (256, 256))
        program = build_program(b.module(b.tuple(b.dot(x, w))), ["feed", "feed"], {})
        layouts = Layouts(program.compute_sets)
        found[kind] = product_of(program.compute_sets[0], layouts).transposed, estimate(program, MK2).cycles
    assert found["f16"][0] == found["f32"][0] == "b"
    assert found["f16"][1] <= 1.05 * found["f32"][1]


def softmax(b: Builder, x: Instruction) -> Instruction:
    exponents, rows = centred(b, x), x.array_shape.dimensions
    total = b.reduce(exponents, b.constant(0.0, x.array_shape.element_type), (1,))
    return b.divide(exponents, b.broadcast(total, rows, (0,)))


def less_means(b: Builder, x: Instruction) -> Instruction:
    """Each column less its mean, as in a batch norm."""
    rows, columns = x.array_shape.dimensions
    kind = x.array_shape.element_type
    share = b.splat(1 / rows, (columns,), kind)
    means = b.multiply(b.reduce(x, b.constant(0.0, kind), (0,)), share)
    return b.subtract(x, b.broadcast(means, (rows, columns), (1,)))


def transposed(b: Builder, x: Instruction) -> Instruction:
    made = b.transpose(x, (1, 0))
    return b.add(made, b.splat(1.0, made.array_shape.dimensions, x.array_shape.element_type))


def squared(b: Builder, x: Instruction) -> Instruction:
    return b.dot(x, x, DotDimensionNumbers((0,), (0,)))


OPERATIONS: dict[str, Make] = {
    "sum of columns": summed(0),
    "sum of rows": summed(1),
    "sum": summed(0, 1),
    "softmax": softmax,
    "means": less_means,
    "transpose": transposed,
    "reverse": lambda b, x: b.reverse(x, (1,)),
    "concatenate": lambda b, x: b.concatenate([x, x], 1),
    "tanh": lambda b, x: b.elementwise("tanh", x),
    "cumulative sum": scanned,
}
LENGTHS = st.sampled_from([2, 3, 8, 31, 33, 64, 128, 300, 700, 1024, 1500, 2048, 4096])


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(sorted(OPERATIONS)), st.tuples(LENGTHS, LENGTHS), st.integers(0, 1), st.integers(1, 100),
    st.sampled_from(["f32", "f16"]),
)  # fmt: skip
def test_larger_arrays_are_not_cheaper(name: str, sizes: tuple[int, int], axis: int, percent: int, kind: str) -> None:
    """Nor do a few more elements cost much more where a row no longer fits a tile: the chip may keep rows whole."""
    larger = list(sizes)
    larger[axis] += -(-larger[axis] * percent // 100)
    few, many = (of((rows, columns), OPERATIONS[name], kind) for rows, columns in (sizes, tuple(larger)))
    assert few.cycles <= 1.05 * many.cycles


def test_one_element_costs_no_more_than_two() -> None:
    one, two = (of((n,), lambda b, x: b.add(x, x)) for n in (1, 2))
    assert one.cycles <= two.cycles
    assert not one.exchange


@pytest.mark.parametrize("shape", [(64, 2048), (1536, 64), (64, 1024)])
def test_sums_over_rows_have_a_part_on_each_tile_with_terms(shape: tuple[int, int]) -> None:
    """A tile has neighbours in memory: parts of few rows, so that each column's sum has terms on many tiles."""
    b = Builder("columns")
    program = build_program(b.module(b.tuple(summed(0)(b, b.parameter("f32", shape)))), ["feed"], {})
    order = point_order(program.compute_sets[0])
    run = spread(shape[0] * shape[1], 4, MK2)
    assert order is not None
    with_terms = {(row * shape[1] + 5) // run.per_tile for row in range(shape[0])}
    assert order.parts(run.per_tile) == pytest.approx(len(with_terms), rel=0.1)


UNITS: dict[str, dict[tuple[ModuleType, str], int]] = {
    "many": {(units, "SMALL"): 64, (product_units, "SMALL"): 2000},
    "one": {(units, "SMALL"): 1 << 40, (product_units, "SMALL"): 1 << 40},
    "few": {(units, "MOST_UNITS"): 4, (product_units, "MOST_UNITS"): 4},
    "short sums": {(units, "LONGEST_SUM"): 64, (units, "LONGEST_LINE"): 64},
    "no blocks": {(copies, "LEAST_ELEMENTS"): 1 << 40},
}
"""Other divisions of the work among this processor's workers."""


@pytest.mark.parametrize("changed", UNITS)
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_the_units_of_this_processor_do_not_matter(changed: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Callable[[], Estimate]] = {
        f"{name} of {shape}": partial(of, shape, make, kind)
        for name, make in (*OPERATIONS.items(), ("product", squared))
        for shape in ((64, 300), (33, 4096))
    }
    made["dense"] = lambda: estimate(dense_step(32, 784, 256, kind), MK2)
    before = {name: make() for name, make in made.items()}
    for (module, name), value in UNITS[changed].items():
        monkeypatch.setattr(module, name, value)
    for name, make in made.items():
        after = make()
        assert (name, after.cycles, after.exchange) == (name, before[name].cycles, before[name].exchange)
        assert (name, after.memory.peak_fullest) == (name, before[name].memory.peak_fullest)


SIZES = st.sampled_from([1, 4, 60, 64, 300, 1024, 2500])


@settings(max_examples=examples(40), deadline=None)
@given(
    st.tuples(SIZES, SIZES, SIZES), st.integers(0, 2), st.integers(1, 100), st.sampled_from(["f32", "f16"]),
    st.sampled_from(["ipu1", "ipu2", "bow"]), st.sampled_from(["", "b"]),
)  # fmt: skip
def test_larger_products_are_not_cheaper(
    sizes: tuple[int, int, int], axis: int, percent: int, kind: str, chip: str, resident: str
) -> None:
    """Pairs of tiles share an operand: two of them may receive theirs faster than one, which is a fifth at most."""
    larger = list(sizes)
    larger[axis] += -(-larger[axis] * percent // 100)
    plans = []
    for rows, columns, k in (sizes, larger):
        asked = Product(1, rows, columns, k, kind, rows * k, columns * k, resident)
        plans.append(plan_product(asked, target(chip), ProductOptions(memory_proportion=10.0)))
        flop = 2 * rows * columns * k
        assert flop <= plans[-1].compute * plans[-1].tiles * target(chip).amp_flops_per_cycle(kind)
    assert plans[0].cycles <= 1.25 * plans[1].cycles


def layers(count: int, looped: bool) -> Program:
    """A number of equal layers with one weight."""
    b = Builder("layers")
    x, w = b.parameter("f32", (64, 128)), b.parameter("f32", (128, 128))
    y = x
    if looped:
        state = [b.constant(0, "s32"), x, w]
        y = loop(b, state, below(count), lambda s, e: [next_count(s, e[0]), product(s, e[1], e[2]), e[2]])[1]
    else:
        for _ in range(count):
            y = product(b, y, w)
    return build_program(b.module(b.tuple(y)), ["feed", "variable"], {})


@pytest.mark.parametrize("count", [2, 9])
def test_a_weight_is_at_home_in_all_equal_products(count: int) -> None:
    """A loop costs what its iterations cost one after the other, apart from the copies of its state."""
    flat, looped = (estimate(layers(count, each), MK2) for each in (False, True))
    products = [cost for cost in flat.costs if cost.operation.flop and cost.exchange]
    assert len({cost.exchange for cost in products}) == 1
    assert flat.cycles == pytest.approx(looped.cycles, rel=0.1)


def choosing(*counts: int) -> Estimate:
    """A conditional whose sides multiply in loops of so many iterations."""
    b = Builder("choosing")
    x, w = b.parameter("f32", (64, 64)), b.parameter("f32", (64, 64))
    zero = b.constant(0.0)
    choice = b.compare(b.reduce(x, zero, (0, 1)), zero, "GT")

    def side(count: int) -> Callable[[Builder, list[Instruction]], list[Instruction]]:
        def multiply(s: Builder, e: list[Instruction]) -> list[Instruction]:
            return [next_count(s, e[0]), product(s, e[1], e[2]), e[2]]

        return lambda s, e: [loop(s, [s.constant(0, "s32"), *e], below(count), multiply)[1]]

    made = branch(b, choice, [x, w], *(side(each) for each in counts))
    program = build_program(b.module(b.tuple(*made)), ["feed", "feed"], {})
    assert skipped(program, [1] * len(program.compute_sets))
    return estimate(program, MK2)


def test_a_conditional_costs_its_larger_side() -> None:
    one, other, both = choosing(9, 3), choosing(3, 9), choosing(9, 9)
    assert one.cycles == pytest.approx(other.cycles, rel=0.02)
    assert both.cycles == pytest.approx(one.cycles, rel=0.02)
    assert {cost.cycles for cost in one.costs if not cost.runs} == {0}


def trained(updates: int) -> Program:
    """Steps of gradient descent in a loop."""
    b = Builder("trained")
    x, w = b.parameter("f32", (32, 100)), b.parameter("f32", (100, 100))

    def body(s: Builder, e: list[Instruction]) -> list[Instruction]:
        return [next_count(s, e[0]), e[1], s.subtract(e[2], s.dot(s.transpose(e[1], (1, 0)), s.dot(e[1], e[2])))]

    _, _, made = loop(b, [b.constant(0, "s32"), x, w], below(updates), body)
    return build_program(b.module(b.tuple(made), aliases={1: 0}), ["feed", "variable"], {})


def accumulating(interval: int, iterations: int = 12) -> Program:
    """Micro-batches in a loop, and an update by the sum of gradients in the last of each `interval` of them."""
    b = Builder("accumulating")
    x, w, total = (b.parameter("f32", (n, 100)) for n in (32, 100, 100))

    def body(s: Builder, e: list[Instruction]) -> list[Instruction]:
        count, x, w, total = e
        number = s.elementwise("remainder", count, s.constant(interval, "s32"))
        first, last = (s.compare(number, s.constant(n, "s32"), "EQ") for n in (0, interval - 1))
        gradient = s.dot(s.transpose(x, (1, 0)), s.dot(x, w))
        kept = s.select(s.broadcast(first, (100, 100), ()), s.splat(0.0, (100, 100)), total)
        summed = s.add(gradient, kept)
        (updated,) = branch(
            *(s, last, [w, summed]),
            lambda t, e: [t.subtract(e[0], t.elementwise("tanh", e[1]))],
            lambda t, e: [e[0]],
        )
        return [next_count(s, count), x, updated, summed]

    _, _, made, sums = loop(b, [b.constant(0, "s32"), x, w, total], below(iterations), body)
    module = b.module(b.tuple(made, sums), aliases={1: 0, 2: 1})
    return build_program(module, ["feed", "variable", "variable"], {})


def test_accumulation_costs_its_micro_batches_and_one_update_for_each_sum() -> None:
    """Twelve micro-batches with 6, 3 and 1 updates, each of which replicas sum once."""
    six, three, one = (
        estimate(accumulating(n), MK2, replicas=4, assumptions=Assumptions(state_interval=n)) for n in (2, 4, 12)
    )
    each = (three.cycles - one.cycles) / 2
    assert each > max(cost.compute for cost in one.costs if cost.runs == 1)
    assert six.cycles - three.cycles == pytest.approx(3 * each, abs=2)
    assert (six.updates, three.updates, one.updates) == (6, 3, 1)
    assert sum(one.gradient_sums) == 40_000


def test_replicas_sum_gradients_in_each_update_of_a_loop() -> None:
    one, many = (estimate(trained(n), MK2, replicas=4) for n in (2, 10))
    assert (one.updates, many.updates) == (2, 10)
    assert many.gradient_sums == one.gradient_sums and sum(one.gradient_sums) == 40_000
    assert [5 * each for each in one.between_ipus] == list(many.between_ipus)
    alone = replace(many, replicas=1, between_ipus=(0, 0))
    (prediction,) = predict(workload_of(alone, 40_000), MK2, [4])
    exchanged, synced = all_reduce_cycles(many.gradient_sums, MK2, 4)
    assert prediction.gradient_seconds * MK2.clock_hz == pytest.approx(10 * (exchanged + synced), abs=20)
    assert estimate(dense_step(), MK2).updates == 1
