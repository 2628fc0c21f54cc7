"""Reductions in generated codelets: every kind, over rows, columns and both, whole and in parts."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from engine.compile import compile_module
from engine.emit.codelet import emit_codelet
from engine.ir import Computation, Module, Shape, TupleShape
from engine.ir.builder import Builder
from engine.program.nest import Nest
from engine.program.work.fused_loop import FusedLoop
from engine.runtime.buffers import DeviceBuffer
from tests.emit.cases import FLOATS, INTEGERS, hard_values
from tests.engine.running import assert_near, check, slow
from tests.exploring import sample
from tests.program.machine import Machine, machine_of

KINDS = {
    "add": (*FLOATS, *INTEGERS),
    "multiply": (*FLOATS, *INTEGERS),
    "maximum": (*FLOATS, *INTEGERS, "pred"),
    "minimum": (*FLOATS, *INTEGERS, "pred"),
    "and": (*INTEGERS, "pred"),
    "or": (*INTEGERS, "pred"),
    "xor": (*INTEGERS, "pred"),
}


def reduced(opcode: str, kind: str, shape: tuple[int, ...], dimensions: tuple[int, ...]) -> Module:
    builder = Builder()
    x, initial = builder.parameter(kind, shape), builder.parameter(kind)
    builder.reduce(x, initial, dimensions, opcode)
    return builder.module()


def values(opcode: str, kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> list[np.ndarray]:
    size = int(np.prod(shape))
    if kind in FLOATS and opcode in ("add", "multiply"):
        x = rng.normal(size=size) if opcode == "add" else rng.uniform(0.7, 1.4, size)
        return [x.reshape(shape).astype(Shape(kind).dtype), np.array(1.5).astype(Shape(kind).dtype)]
    return [hard_values(rng, kind, size).reshape(shape), hard_values(rng, kind, 1).reshape(())]


def nests(machine: Machine) -> list[Nest]:
    return [s.work.nest for s in machine.program.compute_sets if isinstance(s.work, FusedLoop)]


def compare(module: Module, arrays: list[np.ndarray], tolerance: float = 1e-5) -> Machine:
    """Compares without the executor, which flushes denormals."""
    machine = machine_of(module, arrays)
    expected, _ = slow(module, arrays)
    for result, value in zip(machine.run(), expected, strict=True):
        with np.errstate(all="ignore"):
            assert_near(result, value, tolerance)
    return machine


@pytest.mark.sample(8)
@pytest.mark.parametrize("opcode", KINDS)
@pytest.mark.parametrize("dimensions", [(0,), (1,), (0, 1)], ids=["columns", "rows", "both"])
def test_every_kind_and_type(opcode: str, dimensions: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    for kind in sample(KINDS[opcode], 7):
        arrays = values(opcode, kind, (5, 37), rng)
        tolerance = {"f16": 2e-2, "bf16": 0.3}.get(kind, 1e-5)
        compare(reduced(opcode, kind, (5, 37), dimensions), arrays, tolerance)


@pytest.mark.parametrize("rows", [1, 3, 64])
@pytest.mark.parametrize("columns", [1, 7, 15, 16, 17, 63, 1000])
def test_lengths(rows: int, columns: int) -> None:
    rng = np.random.default_rng(2)
    for opcode, dimensions in sample(list(product(("add", "maximum"), ((0,), (1,), (0, 1)))), 4):
        arrays = values(opcode, "f32", (rows, columns), rng)
        compare(reduced(opcode, "f32", (rows, columns), dimensions), arrays)


@pytest.mark.parametrize("dimensions", [d for n in range(5) for d in combinations(range(4), n)], ids=str)
def test_every_mix_of_dimensions(dimensions: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    for shape in ((3, 5, 4, 18), (2, 1, 33, 1), (17, 2, 1, 3)):
        for opcode, kind in (("add", "f32"), ("minimum", "s16")):
            compare(reduced(opcode, kind, shape, dimensions), values(opcode, kind, shape, rng))


@pytest.mark.parametrize(
    ("shape", "dimensions"),
    [
        ((100000,), (0,)),
        ((65537, 3), (0,)),
        ((3, 50000), (1,)),
        ((40, 50, 60), (0, 1, 2)),
        ((40, 7, 300), (0, 2)),
        ((300, 7, 40), (0, 2)),
        ((9000, 2), (0, 1)),
        ((20000, 33), (0,)),
    ],
    ids=str,
)
def test_long_sums_are_split(shape: tuple[int, ...], dimensions: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    for opcode, kind in sample((("add", "f32"), ("add", "s32"), ("maximum", "f32"), ("xor", "u8")), 2):
        module = reduced(opcode, kind, shape, dimensions)
        arrays = values(opcode, kind, shape, rng)
        machine = compare(module, arrays)
        # An xor has a body of its own, which takes values in order.
        assert opcode == "xor" or any(n.splits_reduction for n in nests(machine))
        shuffled = machine_of(module, arrays).run(lambda n: rng.permutation(n))
        np.testing.assert_array_equal(shuffled[0], machine.outputs()[0])


def test_sum_of_a_million_is_as_exact_as_pairwise() -> None:
    x = np.random.default_rng(5).uniform(size=1_000_000).astype(np.float32)
    machine = machine_of(reduced("add", "f32", x.shape, (0,)), [x, np.float32(0).reshape(())])
    exact = np.sum(x, dtype=np.float64)
    assert abs(float(machine.run()[0]) - exact) < 1e-6 * exact


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
def test_nan_wins_wherever_it_stands(opcode: str, kind: str) -> None:
    for position in (0, 15, 16, 36):
        x = np.arange(2 * 37).reshape(2, 37).astype(Shape(kind).dtype)
        x[1, position] = np.nan
        initial = np.array(0).astype(x.dtype)
        (result,) = machine_of(reduced(opcode, kind, x.shape, (1,)), [x, initial]).run()
        assert np.isnan(result.astype(np.float64)).tolist() == [False, True]


def test_sum_of_negative_zeros_keeps_the_sign() -> None:
    x = np.full((3, 40), -0.0, np.float32)
    for dimensions in ((0,), (1,), (0, 1)):
        (result,) = machine_of(reduced("add", "f32", x.shape, dimensions), [x, np.array(-0.0, np.float32)]).run()
        assert np.signbit(result).all()


def argmax_body(kind: str) -> Computation:
    """(greatest value, its first index), as TensorFlow's arg_max is traced."""
    b = Builder("argmax")
    value, index = b.parameter(kind), b.parameter("s32")
    other, other_index = b.parameter(kind), b.parameter("s32")
    greater = b.compare(value, other, "GT")
    nan = b.compare(value, value, "NE")
    keep = b.elementwise("or", greater, nan)
    tie = b.elementwise("and", b.compare(value, other, "EQ"), b.compare(index, other_index, "LT"))
    keep_index = b.elementwise("or", keep, tie)
    return b.build(b.tuple(b.select(keep, value, other), b.select(keep_index, index, other_index)))


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", ["f32", "f16", "s32"])
@pytest.mark.parametrize(("shape", "dimension"), [((5, 37), 1), ((37, 5), 0), ((4, 9, 33), 1), ((3, 9000), 1)])
def test_argmax(kind: str, shape: tuple[int, ...], dimension: int) -> None:
    rng = np.random.default_rng(6)
    builder = Builder()
    x = builder.parameter(kind, shape)
    index = builder.iota("s32", shape, dimension)
    low = builder.constant(-np.inf if kind[0] == "f" else np.iinfo(np.int32).min, kind)
    kept = tuple(n for d, n in enumerate(shape) if d != dimension)
    result = TupleShape((Shape(kind, kept), Shape("s32", kept)))
    builder.instruction(
        *("reduce", result, (x, index, low, builder.constant(0, "s32")), (argmax_body(kind),)),
        dimensions=(dimension,),
    )
    root = builder.instructions[-1]
    module = builder.module(builder.tuple(*(builder.get_tuple_element(root, k) for k in range(2))))
    x_values = rng.integers(-20, 20, shape).astype(Shape(kind).dtype)
    machine = compare(module, [x_values])
    np.testing.assert_array_equal(machine.outputs()[1], np.argmax(x_values, dimension))


def extremum_body(kind: str, direction: str) -> Computation:
    """(greatest or least value, its first index), as Keras' argmax and argmin are traced."""
    b = Builder("extremum")
    value, index = b.parameter(kind), b.parameter("s32")
    other, other_index = b.parameter(kind), b.parameter("s32")
    keep, first = b.compare(value, other, direction), b.elementwise("minimum", index, other_index)
    position = b.select(b.compare(value, other, "EQ"), first, b.select(keep, index, other_index))
    return b.build(b.tuple(b.select(keep, value, other), position))


@pytest.mark.parametrize("direction", ["GE", "LE"])
@pytest.mark.parametrize("kind", ["f32", "f16", "s32", "u8"])
@pytest.mark.parametrize("columns", [1, 15, 16, 33, 300])
def test_extremum_in_lanes(direction: str, kind: str, columns: int) -> None:
    """Ties, zeros of both signs, and NaN in places where the order matters; biased values are stored, too."""
    rng, dtype = np.random.default_rng(7), Shape(kind).dtype
    x = rng.integers(0, 9, (64, columns)).astype(dtype)
    bias = rng.integers(0, 3, columns).astype(dtype)
    if kind[0] == "f":
        x, bias = x - 6, -bias
        x[rng.random(x.shape) < 0.1] = -0.0
        for row in range(8, 64):
            x[row, rng.integers(0, columns, 1 + row % 3)] = np.nan
        x[60:] = np.nan
        x[61, 0] = x[62, -1] = -np.inf
    b = Builder()
    values = b.add(b.parameter(kind, x.shape), b.broadcast(b.parameter(kind, (columns,)), x.shape, (1,)))
    worst = {"f": np.inf, "s": 1 << 30, "u": 255}[kind[0]]
    worst = worst if direction == "LE" else 0 if kind[0] == "u" else -worst
    operands = values, b.iota("s32", x.shape, 1), b.constant(worst, kind), b.constant(0, "s32")
    result = TupleShape((Shape(kind, (64,)), Shape("s32", (64,))))
    found = b.instruction("reduce", result, operands, (extremum_body(kind, direction),), dimensions=(1,))
    module = b.module(b.tuple(values, *(b.get_tuple_element(found, k) for k in range(2))))
    machine = machine_of(module, [x, bias])
    for mine, exact in zip(machine.run(), slow(module, [x, bias])[0], strict=True):
        assert np.array_equal(mine, exact, equal_nan=mine.dtype.kind == "f")
        assert np.array_equal(np.signbit(mine)[mine == 0], np.signbit(exact)[mine == 0])
    assert "<16 x " in emit_codelet(nests(machine)[0], "name", 16)


@pytest.mark.parametrize("opcode", list(KINDS))
def test_whole_arrays_side_by_side(opcode: str) -> None:
    """Arrays in several units, in which vectors have accumulators side by side, with rests of any size."""
    rng = np.random.default_rng(0)
    for kind, size in product(KINDS[opcode], (40_000, 70_001, 70_063)):
        compare(reduced(opcode, kind, (size,), (0,)), values(opcode, kind, (size,), rng))


@pytest.mark.parametrize("at", [0, 63, 64, 40_000, 70_060, 70_062])
def test_special_values_in_whole_arrays(at: int) -> None:
    """A NaN or an infinity reaches the result from any vector."""
    x = np.ones(70_063, np.float32)
    for special, opcode in product((np.nan, np.inf, -np.inf), ("add", "maximum", "minimum")):
        x[at] = special
        (result,) = machine_of(reduced(opcode, "f32", x.shape, (0,)), [x, np.float32(0.5)]).run()
        assert np.array_equal(result, getattr(np, opcode).reduce(np.append(x, np.float32(0.5))), equal_nan=True)


def test_reduction_of_a_computed_value_with_its_elements_stored() -> None:
    builder = Builder()
    x, bias = builder.parameter("f32", (33, 50)), builder.parameter("f32", (50,))
    shifted = builder.add(x, builder.broadcast(bias, (33, 50), (1,)))
    power = builder.elementwise("exponential", shifted)
    total = builder.reduce(power, builder.constant(0.0), (1,))
    peak = builder.reduce(shifted, builder.constant(-np.inf), (1,), "maximum")
    check(builder.module(builder.tuple(power, total, peak)))


@pytest.mark.parametrize(
    "shape", [(4, 64), (7, 5, 65), (2, 128), (17, 127), (33, 130), (3, 1024), (5, 2500), (3, 7, 200), (7, 3, 4, 129)]
)
@pytest.mark.parametrize("kind", ["f32", "f16", "s32"])
def test_long_rows_whose_elements_are_stored(kind: str, shape: tuple[int, ...]) -> None:
    b, rng = Builder(), np.random.default_rng(sum(shape))
    x, y, initial = b.parameter(kind, shape), b.parameter(kind, shape[-1:]), b.parameter(kind)
    product = b.multiply(x, b.broadcast(y, shape, (len(shape) - 1,)))
    rows = tuple(range(len(shape) - 1))
    sums = [b.reduce(product, initial, rows), b.reduce(x, initial, rows[-1:], "maximum")]
    module = b.module(b.tuple(product, *sums))
    arrays = [rng.integers(-9, 9, size=each).astype(Shape(kind).dtype) for each in (shape, shape[-1:], ())]
    machine = compare(module, arrays)
    assert any(nest.stores and nest.reductions for nest in nests(machine))
    check(module, arrays)


def test_reductions_of_different_types_in_one_codelet() -> None:
    builder = Builder()
    x = builder.parameter("f32", (7, 300))
    positive = builder.compare(x, builder.splat(0.0, (7, 300)), "GT")
    count = builder.reduce(builder.convert(positive, "s32"), builder.constant(0, "s32"), (1,))
    total = builder.reduce(builder.convert(x, "f64"), builder.constant(2.0, "f64"), (1,))
    some = builder.reduce(positive, builder.constant(False, "pred"), (1,), "or")
    check(builder.module(builder.tuple(count, total, some)))


@pytest.mark.parametrize(
    ("shape", "dimensions"), [((0, 5), (0,)), ((5, 0), (1,)), ((0, 5), (1,)), ((0,), (0,)), ((3, 0, 2), (0, 2))]
)
def test_nothing_to_reduce_gives_the_initial_value(shape: tuple[int, ...], dimensions: tuple[int, ...]) -> None:
    for opcode in ("add", "maximum"):
        check(reduced(opcode, "f32", shape, dimensions))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("tested", ["bf16", "f16", "f32"])
def test_every_half_is_finite_or_not(kind: str, tested: str) -> None:
    """Converted values are tested, too: a bfloat16 may be too large for float16."""
    b = Builder()
    x = b.parameter(kind, (1 << 16,))
    every = b.elementwise("is-finite", x if tested == kind else b.convert(x, tested))
    module = b.module(b.tuple(every, b.reduce(every, b.constant(True, "pred"), (0,), "and")))
    halves = np.arange(1 << 16, dtype=np.uint16).view(Shape(kind).dtype)
    found, all_of_them = machine_of(module, [halves]).run()
    with np.errstate(all="ignore"):
        assert np.array_equal(found, np.isfinite(halves.astype(Shape(tested).dtype).astype(np.float32)))
    assert not all_of_them


@pytest.mark.parametrize("size", [5, 16, 1000, 20_000])
def test_one_that_is_not_finite(size: int) -> None:
    b = Builder()
    x = b.parameter("f16", (size,))
    b.reduce(b.elementwise("is-finite", x), b.constant(True, "pred"), (0,), "and")
    module, values = b.module(), np.full(size, -65504, np.float16)
    assert machine_of(module, [values]).run()[0]
    for at in sample(list(range(size)), 5):
        for bad in (np.inf, -np.inf, np.nan):
            changed = values.copy()
            changed[at] = bad
            assert not machine_of(module, [changed]).run()[0]


def test_values_are_tested_as_they_were_before_a_store_in_place() -> None:
    b = Builder()
    x = b.parameter("f16", (100,))
    zeros = b.multiply(b.elementwise("minimum", x, b.splat(1.0, (100,), "f16")), b.splat(0.0, (100,), "f16"))
    every = b.reduce(b.elementwise("is-finite", x), b.constant(True, "pred"), (0,), "and")
    module = b.module(b.tuple(zeros, every), {0: 0})
    values = np.ones(100, np.float16)
    values[[3, 98]] = np.inf
    for given in (values, np.ones(100, np.float16)):
        executable = compile_module(module, ["variable"], {})
        variable = DeviceBuffer(Shape("f16", (100,)))
        variable.write(given)
        (found,) = executable.run(1, [], [variable])
        assert bool(found.all()) == bool(np.isfinite(given).all())
        assert not variable.read().any()
