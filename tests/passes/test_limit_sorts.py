"""The pass that limits sorts keeps results, and leaves only the work that is needed."""

from __future__ import annotations

from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from engine.passes.dead_code import dead_code
from engine.passes.limit_sorts import limit_sorts
from tests.engine.running import check
from tests.passes.checking import assert_same_results


def sort(b: Builder, operands: list[Instruction], dimension: int) -> Instruction:
    inner = Builder("descending")
    pairs = [[inner.parameter(o.array_shape.element_type) for _ in range(2)] for o in operands]
    body = inner.build(inner.compare(*pairs[0], "GT"))
    return b.inferred("sort", operands, (body,), dimensions=(dimension,), is_stable=True)


def limits(module: Module) -> list[int | None]:
    return [i.get("limit") for i in module.entry.instructions if i.opcode == "sort"]


def first(b: Builder, operand: Instruction, count: int, start: int = 0) -> Instruction:
    """Elements `start` to `count` of every second row."""
    return b.slice(operand, (0, operand.array_shape.dimensions[0], 2), (start, count, 1))


def after(module: Module) -> Module:
    result = dead_code(limit_sorts(module))
    assert_same_results(module, result)
    check(module)
    return result


def test_a_sort_is_as_long_as_its_longest_slice() -> None:
    b = Builder()
    x, y = b.parameter("s32", (4, 60)), b.parameter("f32", (4, 60))
    made = sort(b, [x, y], 1)
    keys, values = (b.get_tuple_element(made, k) for k in range(2))
    module = b.module(b.tuple(first(b, keys, 5), first(b, values, 9, 2), first(b, values, 3)))
    assert limits(after(module)) == [9]


def test_a_sort_of_one_operand() -> None:
    b = Builder()
    made = sort(b, [b.parameter("s32", (3, 40))], 1)
    assert limits(after(b.module(first(b, made, 7)))) == [7]


def test_slices_vanish_where_the_limit_does_all() -> None:
    b = Builder()
    made = sort(b, [b.parameter("s32", (40,))], 0)
    module = after(b.module(b.slice(made, (0, 6, 1))))
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "sort"]


def test_whatever_else_reads_a_result_needs_all_of_it() -> None:
    b = Builder()
    made = sort(b, [b.parameter("s32", (4, 30)), b.parameter("s32", (4, 30))], 1)
    keys, values = (b.get_tuple_element(made, k) for k in range(2))
    readers = [
        b.tuple(first(b, keys, 4), values),
        b.tuple(first(b, keys, 4), b.elementwise("negate", values)),
        b.tuple(first(b, keys, 4), first(b, values, 30)),
    ]
    for reader in readers:
        assert limits(after(b.module(reader))) == [None]


def test_slices_along_another_dimension_limit_nothing() -> None:
    b = Builder()
    made = sort(b, [b.parameter("s32", (30, 4))], 0)
    module = b.module(b.slice(made, (0, 30, 1), (1, 3, 1)))
    assert limits(after(module)) == [None]


def test_two_sorts_are_told_apart() -> None:
    b = Builder()
    x, y = b.parameter("s32", (4, 30)), b.parameter("s32", (4, 30))
    one = sort(b, [x], 1)
    other = sort(b, [b.add(y, first_rows(b, one))], 1)
    module = b.module(b.tuple(first(b, one, 3), first(b, other, 11)))
    assert limits(after(module)) == [3, 11]


def first_rows(b: Builder, sorted_rows: Instruction) -> Instruction:
    """The largest element of each row, in all places of the row."""
    largest = b.slice(sorted_rows, (0, 4, 1), (0, 1, 1))
    return b.broadcast(b.reshape(largest, (4,)), (4, 30), (0,))


def test_modules_without_sorts_stay_as_they_are() -> None:
    b = Builder()
    module = b.module(b.slice(b.parameter("f32", (9,)), (0, 4, 1)))
    assert limit_sorts(module) is module
