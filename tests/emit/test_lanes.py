"""Codelets at every length and kind of access: whole vectors, masked rests, splats, strides, several units."""

from __future__ import annotations

import numpy as np
import pytest

from engine.emit.library import name_of
from engine.ir import Module, Shape
from engine.ir.builder import Builder
from engine.program.nest import Nest
from engine.program.work.fused_loop import FusedLoop
from tests.emit.cases import ALL, hard_values
from tests.engine.running import assert_near, check, slow
from tests.program.machine import Machine, machine_of

LENGTHS = (0, 1, 7, 15, 16, 17, 31, 63, 64, 1000)


def nests(machine: Machine) -> list[Nest]:
    return [s.work.nest for s in machine.program.compute_sets if isinstance(s.work, FusedLoop)]


def inner_accesses(machine: Machine) -> set[str]:
    return {a.inner for nest in nests(machine) for a in nest.accesses}


def same_bytes(module: Module, arrays: list[np.ndarray]) -> Machine:
    """Runs without the executor; results must equal the definitions' bit for bit."""
    expected, _ = slow(module, arrays)
    machine = machine_of(module, arrays)
    for result, value in zip(machine.run(), expected, strict=True):
        assert (result.dtype, result.shape) == (value.dtype, value.shape)
        assert result.tobytes() == value.tobytes()
    return machine


@pytest.mark.parametrize("kind", ALL)
def test_neighbours_of_every_type_and_length(kind: str) -> None:
    rng = np.random.default_rng(1)
    for length in LENGTHS:
        builder = Builder()
        p, x, y = (builder.parameter(k, (length,)) for k in ("pred", kind, kind))
        builder.select(p, x, y)
        machine = same_bytes(builder.module(), [hard_values(rng, k, length) for k in ("pred", kind, kind)])
        assert length < 2 or inner_accesses(machine) == {"contiguous"}


@pytest.mark.parametrize("kind", ALL)
def test_splat_and_stride_of_every_type_and_length(kind: str) -> None:
    rng = np.random.default_rng(2)
    for length in (1, 7, 16, 17, 63):
        builder = Builder()
        p = builder.parameter("pred", (5, length))
        column, turned = builder.parameter(kind, (5,)), builder.parameter(kind, (length, 5))
        spread = builder.broadcast(column, (5, length), (0,))
        builder.select(p, spread, builder.transpose(turned, (1, 0)))
        sizes = {"pred": 5 * length, "column": 5, "turned": 5 * length}
        arrays = [
            hard_values(rng, "pred", sizes["pred"]).reshape(5, length),
            hard_values(rng, kind, 5),
            hard_values(rng, kind, sizes["turned"]).reshape(length, 5),
        ]
        machine = same_bytes(builder.module(), arrays)
        assert length == 1 or inner_accesses(machine) == {"contiguous", "splat", "strided"}


@pytest.mark.parametrize("kind", ["f32", "u8", "f16", "pred", "f64"])
@pytest.mark.parametrize("length", [1, 16, 17, 63])
def test_stores_at_a_stride(kind: str, length: int) -> None:
    """Padding and concatenation write parts between elements that must not change."""
    rng = np.random.default_rng(3)
    builder = Builder()
    x, value = builder.parameter(kind, (3, length)), builder.parameter(kind)
    builder.pad(x, value, (1, 2), (3, 2, 2))
    arrays = [hard_values(rng, kind, 3 * length).reshape(3, length), hard_values(rng, kind, 1).reshape(())]
    machine = same_bytes(builder.module(), arrays)
    assert length == 1 or "strided" in inner_accesses(machine)


def test_reversed_reads_go_backwards() -> None:
    rng = np.random.default_rng(4)
    for length in LENGTHS[1:]:
        builder = Builder()
        x = builder.parameter("s32", (2, length))
        builder.add(builder.reverse(x, (1,)), x)
        same_bytes(builder.module(), [hard_values(rng, "s32", 2 * length).reshape(2, length)])


@pytest.mark.parametrize("kind", [k for k in ALL if k not in ("pred", "s8", "u8", "bf16", "f16")])
@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_counts(kind: str, dimension: int) -> None:
    builder = Builder()
    builder.iota(kind, (3, 5, 37), dimension)
    check(builder.module(), [])
    builder = Builder()
    x = builder.parameter(kind, (3, 5, 37))
    builder.add(builder.iota(kind, (3, 5, 37), dimension), x)
    check(builder.module())


def test_results_of_one_codelet_in_several_types() -> None:
    rng = np.random.default_rng(5)
    builder = Builder()
    x = builder.parameter("f32", (3, 21))
    negative = builder.elementwise("negate", x)
    results = [
        negative,
        builder.convert(negative, "f16"),
        builder.compare(x, negative, "LT"),
        builder.convert(negative, "s64"),
    ]
    machine = same_bytes(builder.module(builder.tuple(*results)), [hard_values(rng, "f32", 63).reshape(3, 21)])
    (nest,) = nests(machine)
    assert len(nest.stores) == 4


def test_constants_keep_their_bits() -> None:
    specials = [np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4e38, 0.1]
    builder = Builder()
    x = builder.parameter("f32", (16,))
    predicate = builder.compare(x, x, "EQ")
    results = [builder.select(predicate, builder.splat(v, (16,)), x) for v in specials]
    machine = machine_of(builder.module(builder.tuple(*results)), [np.ones(16, np.float32)])
    for result, value in zip(machine.run(), specials, strict=True):
        expected = np.full(16, value, np.float32)
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_halves_are_rounded_after_each_operation(kind: str) -> None:
    rng = np.random.default_rng(6)
    builder = Builder()
    x, y, z = (builder.parameter(kind, (1000,)) for _ in range(3))
    builder.subtract(builder.add(builder.multiply(x, y), z), builder.divide(x, z))
    arrays = [rng.normal(size=1000).astype(Shape(kind).dtype) for _ in range(3)]
    same_bytes(builder.module(), arrays)


def test_products_are_not_fused_with_sums() -> None:
    rng = np.random.default_rng(7)
    builder = Builder()
    x, y, z = (builder.parameter("f32", (1000,)) for _ in range(3))
    builder.add(builder.multiply(x, y), z)
    same_bytes(builder.module(), [rng.normal(size=1000).astype(np.float32) for _ in range(3)])


@pytest.mark.parametrize("extent", [4097, 20000, 65537])
def test_units_meet_without_gap_or_overlap(extent: int) -> None:
    rng = np.random.default_rng(8)
    builder = Builder()
    x = builder.parameter("s32", (extent,))
    builder.add(x, builder.iota("s32", (extent,), 0))
    arrays = [hard_values(rng, "s32", extent)]
    machine = machine_of(builder.module(), arrays)
    assert machine.program.compute_sets[0].units > 1
    expected, _ = slow(builder.module(), arrays)
    for order in (None, lambda n: reversed(range(n)), lambda n: rng.permutation(n)):
        assert_near(machine_of(builder.module(), arrays).run(order)[0], expected[0])


def test_equal_nests_share_a_name_and_others_do_not() -> None:
    def nest(opcode: str, length: int, value: float) -> Nest:
        builder = Builder()
        x = builder.parameter("f32", (length,))
        builder.elementwise(opcode, x, builder.splat(value, (length,)))
        return nests(machine_of(builder.module(), [np.zeros(length, np.float32)]))[0]

    base = nest("subtract", 40, 3.0)
    assert name_of(base) == name_of(nest("subtract", 999, 3.0))
    others = [nest("divide", 40, 3.0), nest("subtract", 40, 4.0)]
    assert len({name_of(base), *(name_of(n) for n in others)}) == 3


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_many_vectors_of_rounded_operations(kind: str) -> None:
    """Eight and four vectors at a time, single vectors and a masked rest; each row of three has a column beside it."""
    rng = np.random.default_rng(4)
    for length in (15, 63, 64, 127, 128, 193, 333):
        builder = Builder()
        x, y, column = (builder.parameter(kind, shape) for shape in ((3, length), (3, length), (3,)))
        spread = builder.broadcast(column, (3, length), (0,))
        builder.multiply(builder.add(builder.multiply(builder.subtract(x, spread), y), x), y)
        arrays = [rng.normal(size=shape).astype(Shape(kind).dtype) for shape in ((3, length), (3, length), (3,))]
        same_bytes(builder.module(), arrays)
