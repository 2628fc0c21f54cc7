"""scatter against its definition: combiners, order of duplicates, indices outside, ways of cutting."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from engine.codelets.language.record import block
from engine.codelets.rows.scatter import scatter, scatter_parts
from engine.codelets.rows.scatter_rows import scatter_rows, scatters_rows
from engine.emit.library import generated_codelet
from engine.ir.attributes import ScatterDimensionNumbers
from engine.ir.builder import Builder
from engine.ir.shape import Shape, shape_of
from engine.lower.indexing import combiner_for
from engine.program.nest import Combiner
from engine.program.work.indexing import ScatterWork
from tests.codelets.arrays import array_of
from tests.runtime.ranges import even_ranges

COMBINE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "assign": lambda old, new: new,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "GT": lambda old, new: np.where(old > new, old, new),
    "LT": lambda old, new: np.where(old < new, old, new),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def oracle(
    operand: np.ndarray,
    indices: np.ndarray,
    updates: np.ndarray,
    numbers: ScatterDimensionNumbers,
    opcode: str,
) -> np.ndarray:
    """HLO's definition: updates in row-major order of positions, without those that reach out of the operand."""
    result = operand.copy()
    skipped = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    window = [d for d in range(operand.ndim) if d not in skipped]
    if numbers.index_vector_dim == indices.ndim:
        indices = indices[..., None]
    vectors = np.moveaxis(indices, numbers.index_vector_dim, -1)
    position_dims = [d for d in range(updates.ndim) if d not in numbers.update_window_dims]
    for position in np.ndindex(*(updates.shape[d] for d in position_dims)):
        start, size = [0] * operand.ndim, [1] * operand.ndim
        for k, d in enumerate(numbers.scatter_dims_to_operand_dims):
            start[d] = int(vectors[position][k])
        batching = zip(numbers.scatter_indices_batching_dims, numbers.input_batching_dims, strict=True)
        for index_dim, d in batching:
            start[d] = position[index_dim - (index_dim > numbers.index_vector_dim)]
        for u, d in zip(numbers.update_window_dims, window, strict=True):
            size[d] = updates.shape[u]
        if all(0 <= s and s + n <= limit for s, n, limit in zip(start, size, operand.shape, strict=True)):
            place = tuple(slice(s, s + n) for s, n in zip(start, size, strict=True))
            chosen: list[int | slice] = [slice(None)] * updates.ndim
            for d, p in zip(position_dims, position, strict=True):
                chosen[d] = p
            result[place] = COMBINE[opcode](result[place], updates[tuple(chosen)].reshape(size))
    return result


def combiner(opcode: str, element_type: str) -> Combiner:
    """The body of one operation on an element and its update."""
    b = Builder()
    old, new = b.parameter(element_type), b.parameter(element_type)
    if opcode == "assign":
        root = new
    elif opcode in ("GT", "LT"):
        compare = b.instruction("compare", Shape("pred"), (old, new), direction=opcode)
        root = b.instruction("select", Shape(element_type), (compare, old, new))
    else:
        root = b.instruction(opcode, Shape(element_type), (old, new))
    return combiner_for(root, b.build(root), (element_type,))


def compare(
    operand: np.ndarray,
    indices: np.ndarray,
    updates: np.ndarray,
    numbers: ScatterDimensionNumbers,
    opcode: str = "add",
) -> int:
    """Asserts equal bits for several numbers of workers; returns the number of units."""
    expected = oracle(operand, indices, updates, numbers, opcode)
    kind = shape_of(operand).element_type
    combine, units = combiner(opcode, kind), 0
    for (workers, in_place), by_rows in product(((1, False), (2, False), (3, False), (2, True)), (False, True)):
        target = operand.copy() if in_place else np.full_like(operand, 1)
        old, given = array_of(target if in_place else operand), (array_of(indices), array_of(updates))
        work = ScatterWork(old, *given, array_of(target).address, numbers, combine)
        units = work.unit_count
        if not units:
            continue
        parts = scatter_parts(work)
        if by_rows and not scatters_rows(parts, kind, combine.opcode):
            continue
        if not by_rows and opcode != "assign":
            vars(parts[0])["combiner"] = generated_codelet(combine).address
        codelet = scatter_rows(opcode) if by_rows else scatter
        parameters = block(*parts).words
        for lo, hi in reversed(even_ranges(units, workers)):
            if lo < hi:
                codelet(parameters.ctypes.data, lo, hi, 0)
        np.testing.assert_array_equal(target, expected)
        assert np.all((target.tobytes() == expected.tobytes()) | np.isnan(expected).any())
    return units


def values(shape: tuple[int, ...], dtype: str = "float32", seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 200, shape).astype(dtype)


ROWS = ScatterDimensionNumbers((1,), (0,), (0,), 1)
ELEMENTS = ScatterDimensionNumbers((), (0,), (0,), 1)


@pytest.mark.sample(21)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint32", "int8", "uint64"])
@pytest.mark.parametrize("opcode", ["assign", "add", "subtract", "multiply", "minimum", "maximum", "GT", "LT"])
def test_combiners(dtype: str, opcode: str) -> None:
    indices = np.random.default_rng(2).integers(0, 6, 20)
    compare(values((6, 5), dtype), indices, values((20, 5), dtype, 3), ROWS, opcode)


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint32", "int64"])
@pytest.mark.parametrize("opcode", ["and", "or", "assign"])
def test_logical_combiners(dtype: str, opcode: str) -> None:
    indices = np.random.default_rng(2).integers(0, 6, 20)
    compare(values((6, 5), dtype), indices, values((20, 5), dtype, 3), ROWS, opcode)


@pytest.mark.parametrize("opcode", ["minimum", "maximum", "GT", "LT", "add"])
def test_special_values(opcode: str) -> None:
    special = np.array([np.nan, np.inf, -np.inf, 1.0, -1.0, 3.4e38], np.float32)
    rng = np.random.default_rng(3)
    indices = rng.integers(0, 40, 90)
    with np.errstate(all="ignore"):
        compare(rng.choice(special, (40, 3)), indices, rng.choice(special, (90, 3)), ROWS, opcode)


def test_assign_takes_every_type() -> None:
    for dtype in ("float16", "complex64", "complex128", "uint8"):
        with np.errstate(invalid="ignore"):  # negative numbers as uint8
            target, updates = values((6, 5)).astype(dtype), values((3, 5)).astype(dtype)
        compare(target, np.array([4, 1, 4]), updates, ROWS, "assign")


def test_embedding_gradient_is_cut_along_the_width() -> None:
    indices = np.random.default_rng(4).integers(0, 50, 300).astype(np.int32)
    units = compare(np.zeros((50, 64), np.float32), indices, values((300, 64)), ROWS)
    assert units == 4


@pytest.mark.parametrize("width", [1, 5, 16, 45, 128])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_rows_by_two_indices(width: int, dtype: str) -> None:
    rng = np.random.default_rng(width)
    indices = np.stack([rng.integers(-1, 4, 90), rng.integers(-1, 8, 90)], axis=1).astype(dtype)
    for numbers in (ScatterDimensionNumbers((1,), (0, 1), (0, 1), 1), ScatterDimensionNumbers((1,), (0, 1), (1, 0), 1)):
        compare(values((3, 7, width)), indices, values((90, width), seed=2), numbers)


def test_scalar_updates_are_cut_along_the_operand() -> None:
    indices = np.random.default_rng(5).integers(-5, 3005, 2000)
    assert compare(values((3000,)), indices, values((2000,)), ELEMENTS) > 1


def test_narrow_rows_are_cut_along_the_vocabulary() -> None:
    indices = np.random.default_rng(6).integers(0, 1000, 500)
    assert compare(values((1000, 3)), indices, values((500, 3)), ROWS) > 1


def test_windows_that_slide_along_the_cut() -> None:
    numbers = ScatterDimensionNumbers((1,), (), (0,), 1)
    indices = np.random.default_rng(7).integers(-40, 2040, 200)
    assert compare(values((2000,)), indices, values((200, 37)), numbers) > 1


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_indices_outside_are_left_out(dtype: str) -> None:
    limits = np.iinfo(dtype)
    indices = np.array([limits.min, limits.max, 0, 5, 6, 7, limits.max // 2 + 1], dtype)
    compare(values((7, 3)), indices, values((7, 3)), ROWS)


def test_batching_dimensions() -> None:
    indices = np.random.default_rng(8).integers(0, 6, (4, 3))
    numbers = ScatterDimensionNumbers((2,), (1,), (1,), 2, (0,), (0,))
    compare(values((4, 6, 5)), indices, values((4, 3, 5)), numbers)
    compare(values((400, 6, 2)), np.tile(indices, (100, 1)), values((400, 3, 2)), numbers)


def test_nothing_to_scatter() -> None:
    compare(values((5, 3)), np.zeros(0, np.int64), values((0, 3)), ROWS)
    compare(values((5, 0)), np.zeros(2, np.int64), values((2, 0)), ROWS)
    compare(
        np.array(3.0, np.float32),
        np.zeros(0, np.int32),
        np.array(4.0, np.float32),
        ScatterDimensionNumbers((), (), (), 0),
    )


def random_case(rng: np.random.Generator, largest: int) -> tuple[tuple[int, ...], ...]:
    """Operand shape, index shape, update shape, and the dimension numbers."""
    rank = int(rng.integers(1, 5))
    shape = tuple(int(n) for n in rng.integers(1, largest, rank))
    mapped = tuple(int(d) for d in rng.permutation(rank)[: rng.integers(0, rank + 1)])
    inserted = tuple(sorted(int(d) for d in rng.permutation(rank)[: rng.integers(0, rank + 1)]))
    positions = [int(n) for n in rng.integers(1, 5, rng.integers(0, 3))]
    index_vector_dim = int(rng.integers(0, len(positions) + 1))
    index_shape = positions.copy()
    index_shape.insert(index_vector_dim, len(mapped))
    window = [int(rng.integers(1, n + 1)) for d, n in enumerate(shape) if d not in inserted]
    update_rank = len(positions) + len(window)
    window_dims = sorted(int(d) for d in rng.permutation(update_rank)[: len(window)])
    update_shape = [0] * update_rank
    for d, n in zip(window_dims, window, strict=True):
        update_shape[d] = n
    rest = iter(positions)
    update_shape = [n if d in window_dims else next(rest) for d, n in enumerate(update_shape)]
    numbers = ScatterDimensionNumbers(tuple(window_dims), inserted, mapped, index_vector_dim)
    return shape, tuple(index_shape), tuple(update_shape), numbers


@pytest.mark.parametrize("largest", [6, 14])
def test_random_scatters(largest: int) -> None:
    rng = np.random.default_rng(largest)
    for trial in range(150):
        shape, index_shape, update_shape, numbers = random_case(rng, largest)
        indices = rng.integers(-1, largest, index_shape)
        opcode = ("add", "assign", "maximum")[trial % 3]
        compare(values(shape, seed=trial), indices, values(update_shape, seed=trial + 1), numbers, opcode)
