"""Modules with loops and branches, each made to go wrong in another way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.ir import Instruction, Module, Shape, TupleShape
from engine.ir.builder import Builder
from tests.program.loop_parts import below, branch, computation, loop, next_count, parts, product, repeated, scaled
from tests.program.recurrences import (
    recurrence,
    recurrence_backwards,
    recurrence_in_a_loop,
    recurrence_of_some_rows,
    recurrence_out_of_the_array,
    seven_loops_deep,
)


def until_small(size: int = 9) -> Module:
    """Builds a loop whose data decide the iterations: none if all are small from the beginning."""
    b = Builder("until_small")
    x = b.parameter("f32", (size,))
    results = loop(
        *(b, [b.constant(0, "s32"), x]),
        lambda c, e: c.compare(c.reduce(c.elementwise("abs", e[1]), c.constant(0.0), (0,)), c.constant(1.0), "GT"),
        lambda s, e: [next_count(s, e[0]), scaled(s, e[1], 0.7)],
    )
    return b.module(b.tuple(*results))


def exchange(size: int = 70, iterations: int = 3) -> Module:
    """Builds a loop whose elements are exchanged in each iteration; one stays, and all are used before and after."""
    b = Builder("exchange")
    x, y, z, w = (b.parameter("f32", (size, size)) for _ in range(4))
    before = b.add(x, y)
    _, p, q, r, kept = loop(
        *(b, [b.constant(0, "s32"), x, y, z, w], below(iterations)),
        lambda s, e: [next_count(s, e[0]), e[2], e[3], s.elementwise("tanh", s.add(e[1], e[4])), e[4]],
    )
    return b.module(b.tuple(before, b.subtract(p, x), q, r, b.add(kept, p), x))


def same_twice(iterations: int = 3) -> Module:
    """Builds a loop in which two elements have the same initial array, and two get the same new value."""
    b = Builder("same_twice")
    x = b.parameter("f32", (40,))
    _, p, q = loop(
        *(b, [b.constant(0, "s32"), x, x], below(iterations)),
        lambda s, e: (lambda made: [next_count(s, e[0]), made, made])(
            s.subtract(s.add(e[1], e[2]), scaled(s, e[2], 0.5))
        ),
    )
    return b.module(b.tuple(p, q, x))


def nested(outer: int = 3, inner: int = 4, size: int = 66) -> Module:
    """Builds a loop in a loop, which runs as often as the outer count says; both read an element unchanged."""
    b = Builder("nested")
    x, w = b.parameter("f32", (size, size)), b.parameter("f32", (size, size))

    def body(s: Builder, e: list[Instruction]) -> list[Instruction]:
        _, _, y, _ = loop(
            *(s, [s.constant(0, "s32"), e[0], e[1], e[2]]),
            lambda c, i: c.compare(i[0], c.elementwise("minimum", i[1], c.constant(inner, "s32")), "LT"),
            lambda t, i: [next_count(t, i[0]), i[1], t.elementwise("tanh", t.dot(i[2], i[3])), i[3]],
        )
        return [next_count(s, e[0]), s.subtract(y, e[1]), e[2], s.add(e[3], s.reduce(y, s.constant(0.0), (0, 1)))]

    _, y, _, total = loop(b, [b.constant(0, "s32"), x, w, b.constant(0.0)], below(outer), body)
    return b.module(b.tuple(y, total, b.dot(y, w)))


def nested_tuples(iterations: int = 3) -> Module:
    """Builds a loop with tuples in its state: one part stays, the others change places or get new values."""
    b = Builder("nested_tuples")
    x, y, z = (b.parameter("f32", (5, 30)) for _ in range(3))
    start = b.tuple(b.constant(0, "s32"), b.tuple(x, b.tuple(y, z)), b.tuple())
    assert isinstance(start.shape, TupleShape)

    def iteration(s: Builder, e: list[Instruction]) -> Instruction:
        p, rest = parts(s, e[1])
        q, r = parts(s, rest)
        return s.tuple(next_count(s, e[0]), s.tuple(q, s.tuple(s.add(p, r), r)), e[2])

    condition, body = (
        computation("condition", start.shape, below(iterations)),
        computation("body", start.shape, iteration),
    )
    result = b.inferred("while", (start,), (body, condition))
    p, rest = parts(b, b.get_tuple_element(result, 1))
    return b.module(b.tuple(p, *parts(b, rest), y))


def tensor_array(iterations: int = 5, width: int = 40) -> Module:
    """Builds a loop that writes one row an iteration; others read the array before and after, inside and outside the
    loop.
    """
    b = Builder("tensor_array")
    x = b.parameter("f32", (iterations, width))
    made = b.elementwise("tanh", x)

    def body(s: Builder, e: list[Instruction]) -> list[Instruction]:
        zero = s.constant(0, "s32")
        row = s.inferred("dynamic-slice", (e[1], e[0], zero), dynamic_slice_sizes=(1, width))
        held = s.inferred("dynamic-slice", (e[2], e[0], zero), dynamic_slice_sizes=(1, width))
        new = s.add(s.elementwise("tanh", row), held)
        written = s.inferred("dynamic-update-slice", (e[2], new, e[0], zero))
        total = s.add(e[3], s.reduce(written, s.constant(0.0), (0, 1)))
        return [next_count(s, e[0]), e[1], written, total]

    _, _, rows, total = loop(b, [b.constant(0, "s32"), x, made, b.constant(0.0)], below(iterations), body)
    return b.module(b.tuple(rows, total, b.add(made, rows), x))


def two_rows(iterations: int = 4, width: int = 33) -> Module:
    """Builds a loop that writes two rows in each iteration, one after the other."""
    b = Builder("two_rows")
    x = b.parameter("f32", (2 * iterations, width))

    def body(s: Builder, e: list[Instruction]) -> list[Instruction]:
        zero, twice = s.constant(0, "s32"), s.add(e[0], e[0])
        first = s.inferred("dynamic-update-slice", (e[1], s.splat(1.0, (1, width)), twice, zero))
        row = s.inferred("dynamic-slice", (first, next_count(s, twice), zero), dynamic_slice_sizes=(1, width))
        doubled = s.add(row, row)
        return [next_count(s, e[0]), s.inferred("dynamic-update-slice", (first, doubled, next_count(s, twice), zero))]

    return b.module(b.tuple(*loop(b, [b.constant(0, "s32"), x], below(iterations), body)))


def old_array_forwarded(iterations: int = 4, width: int = 33) -> Module:
    """Builds a loop whose array before its update is another element's new value: it may not be updated in place."""
    b = Builder("old_array_forwarded")
    x = b.parameter("f32", (iterations, width))

    def body(s: Builder, e: list[Instruction]) -> list[Instruction]:
        row = s.convert(s.broadcast(e[0], (1, width), ()), "f32")
        return [next_count(s, e[0]), s.inferred("dynamic-update-slice", (e[1], row, e[0], s.constant(0, "s32"))), e[1]]

    return b.module(b.tuple(*loop(b, [b.constant(0, "s32"), x, x], below(iterations), body)))


def old_array_behind_moves(iterations: int = 4) -> Module:
    """Builds a loop that reads the old array reshaped, transposed, by an inner loop, and through a tuple."""
    b = Builder("old_array_behind_moves")
    x = b.parameter("f32", (iterations, 6))

    def body(s: Builder, e: list[Instruction]) -> list[Instruction]:
        zero = s.constant(0, "s32")
        row = s.convert(s.broadcast(e[0], (1, 6), ()), "f32")
        flat, turned = s.reshape(e[1], (6 * iterations,)), s.transpose(e[1], (1, 0))
        new = s.inferred("dynamic-update-slice", (e[1], row, e[0], zero))
        _, old, total = loop(
            *(s, [zero, s.get_tuple_element(s.tuple(e[1], new), 0), e[4]], below(2)),
            lambda t, i: [next_count(t, i[0]), i[1], t.add(i[2], t.reduce(i[1], t.constant(0.0), (0, 1)))],
        )
        return [
            next_count(s, e[0]),
            new,
            s.add(flat, flat),
            turned,
            s.add(total, s.reduce(old, s.constant(0.0), (0, 1))),
        ]

    start = [b.constant(0, "s32"), x, b.reshape(x, (6 * iterations,)), b.transpose(x, (1, 0)), b.constant(0.0)]
    return b.module(b.tuple(*loop(b, start, below(iterations), body)))


def condition_that_updates(iterations: int = 3) -> Module:
    """The condition writes into an array of its own, made from one that the loop never changes."""
    b = Builder("condition_that_updates")
    x = b.elementwise("negate", b.parameter("f32", (4, 3)))

    def condition(c: Builder, e: list[Instruction]) -> Instruction:
        zero = c.constant(0, "s32")
        row = c.convert(c.broadcast(e[0], (1, 3), ()), "f32")
        total = c.reduce(c.inferred("dynamic-update-slice", (e[1], row, e[0], zero)), c.constant(0.0), (0, 1))
        few = c.compare(e[0], c.constant(iterations, "s32"), "LT")
        return c.elementwise("and", few, c.compare(total, c.constant(1e6), "LT"))

    def body(s: Builder, e: list[Instruction]) -> list[Instruction]:
        return [next_count(s, e[0]), e[1], s.add(e[2], s.reduce(e[1], s.constant(0.0), (0, 1)))]

    return b.module(b.tuple(*loop(b, [b.constant(0, "s32"), x, b.constant(0.0)], condition, body)))


def flag(iterations: int = 3) -> Module:
    """Builds a loop whose predicate is in its state, and also steers a branch after its new value is known."""
    b = Builder("flag")
    x = b.parameter("f32", (50,))

    def body(s: Builder, e: list[Instruction]) -> list[Instruction]:
        count = next_count(s, e[0])
        go = s.compare(count, s.constant(iterations, "s32"), "LT")
        (y,) = branch(
            *(s, e[1], [e[2]]),
            lambda t, i: [repeated(t, i[0], 2)],
            lambda t, i: [scaled(t, i[0], 9.0)],
        )
        (z,) = branch(s, go, [y], lambda t, i: [repeated(t, i[0], 1, 0.9)], lambda t, i: [scaled(t, i[0], -1.0)])
        return [count, go, z, e[1]]

    go = b.constant(True, "pred")
    return b.module(
        b.tuple(*loop(b, [b.constant(0, "s32"), go, x, go], lambda c, e: c.elementwise("copy", e[1]), body))
    )


def flag_is_the_condition(iterations: int = 3) -> Module:
    """Builds a loop whose condition is a flag of its state: it computes nothing at all."""
    b = Builder("flag_is_the_condition")
    x = b.parameter("f32", (64, 80))

    def body(s: Builder, e: list[Instruction]) -> list[Instruction]:
        count = next_count(s, e[0])
        return [count, s.compare(count, s.constant(iterations, "s32"), "LT"), scaled(s, e[2], 0.5)]

    results = loop(b, [b.constant(0, "s32"), b.constant(True, "pred"), x], lambda _, e: e[1], body)
    return b.module(b.tuple(*results))


def memory_again(iterations: int = 3, size: int = 90) -> Module:
    """Builds large results around and in a loop that only reads some: their memory must not be used again there."""
    b = Builder("memory_again")
    x, y = b.parameter("f32", (size, size)), b.parameter("f32", (size, size))
    only_read, old = product(b, x, y), product(b, y, x)
    _, z, held = loop(
        *(b, [b.constant(0, "s32"), old, only_read]),
        lambda c, e: c.elementwise(
            "and",
            c.compare(e[0], c.constant(iterations, "s32"), "LT"),
            c.compare(c.reduce(product(c, e[1], e[2]), c.constant(-np.inf), (0, 1), "maximum"), c.constant(1e30), "LT"),
        ),
        lambda s, e: [
            next_count(s, e[0]),
            s.elementwise("tanh", product(s, s.elementwise("tanh", product(s, e[1], e[2])), product(s, e[2], e[1]))),
            e[2],
        ],
    )
    after = product(b, z, x)
    return b.module(b.tuple(b.add(after, held), product(b, after, old)))


def shared_body(iterations: int = 3) -> Module:
    """Builds two loops with the same body and condition."""
    b = Builder("shared_body")
    x, y = b.parameter("f32", (6, 7)), b.parameter("f32", (6, 7))
    start = b.tuple(b.constant(0, "s32"), x, y)
    assert isinstance(start.shape, TupleShape)
    condition = computation("condition", start.shape, below(iterations))

    def iteration(s: Builder, e: list[Instruction]) -> Instruction:
        row = s.splat(3.0, (1, 7))
        written = s.inferred("dynamic-update-slice", (e[1], row, e[0], s.constant(0, "s32")))
        return s.tuple(next_count(s, e[0]), s.elementwise("tanh", s.add(written, e[2])), e[2])

    body = computation("body", start.shape, iteration)
    _, first, _ = parts(b, b.inferred("while", (start,), (body, condition)))
    _, second, _ = parts(b, b.inferred("while", (b.tuple(b.constant(1, "s32"), first, x),), (body, condition)))
    return b.module(b.tuple(first, second, b.add(first, second)))


def loop_in_a_branch() -> Module:
    """Builds a branch with a loop and one without; both share an array that is used afterwards."""
    b = Builder("loop_in_a_branch")
    choice, x, y = b.parameter("pred"), b.parameter("f32", (70, 70)), b.parameter("f32", (70, 70))
    p, q = branch(
        *(b, choice, [x, y]),
        lambda s, e: [repeated(s, s.dot(e[0], e[1]), 3), e[0]],
        lambda s, e: [s.dot(e[1], e[0]), s.add(e[0], e[1])],
    )
    return b.module(b.tuple(b.add(p, x), q, p))


def numbered_branches() -> Module:
    """Builds branches chosen by an index, which stay branches."""
    b = Builder("numbered_branches")
    index, x = b.parameter("s32"), b.parameter("f32", (50,))
    results = branch(
        *(b, index, [x]),
        lambda s, e: [repeated(s, e[0], 2), s.constant(5, "s32")],
        lambda s, e: [scaled(s, e[0], 3.0), s.constant(6, "s32")],
        lambda s, e: [e[0], s.constant(7, "s32")],
    )
    return b.module(b.tuple(*results, x))


def branch_that_returns_its_arguments() -> Module:
    """Builds a conditional that computes nothing in one branch, and exchanges the arguments."""
    b = Builder("branch_that_returns_its_arguments")
    choice, x, y = b.parameter("pred"), b.parameter("f32", (30,)), b.parameter("f32", (30,))
    p, q = branch(b, choice, [x, y], lambda s, e: [e[1], e[0]], lambda s, e: [repeated(s, e[0], 2), e[1]])
    return b.module(b.tuple(p, q, b.add(p, y)))


def branches_in_a_loop(iterations: int = 5) -> Module:
    """Builds a loop in which every other iteration takes another branch; the branch's result becomes the state."""
    b = Builder("branches_in_a_loop")
    x, w = b.parameter("f32", (66, 66)), b.parameter("f32", (66, 66))

    def body(s: Builder, e: list[Instruction]) -> list[Instruction]:
        odd = s.compare(s.elementwise("and", e[0], s.constant(1, "s32")), s.constant(1, "s32"), "EQ")
        (y,) = branch(
            *(s, odd, [e[1], e[2]]),
            lambda t, i: [repeated(t, t.dot(i[0], i[1]), 2)],
            lambda t, i: [t.subtract(t.elementwise("tanh", i[0]), i[1])],
        )
        return [next_count(s, e[0]), y, e[2]]

    return b.module(b.tuple(*loop(b, [b.constant(0, "s32"), x, w], below(iterations), body)))


def updated_variables(iterations: int = 3) -> Module:
    """Builds a loop that reads a variable that is updated, and whose state becomes another variable's new value."""
    b = Builder("updated_variables")
    x, w = b.parameter("f32", (80, 80)), b.parameter("f32", (80, 80))
    _, y, _ = loop(
        *(b, [b.constant(0, "s32"), x, w], below(iterations)),
        lambda s, e: [next_count(s, e[0]), s.elementwise("tanh", product(s, e[1], e[2])), e[2]],
    )
    return b.module(b.tuple(y, b.subtract(w, scaled(b, y, 0.1)), b.reduce(w, b.constant(0.0), (0, 1))), {0: 0, 1: 1})


def cache_update() -> Module:
    """A variable of which a few rows are replaced, and read before and after."""
    b = Builder("cache_update")
    cache, row, at = b.parameter("f32", (20, 30)), b.parameter("f32", (2, 30)), b.parameter("s32")
    total = b.reduce(cache, b.constant(0.0), (0, 1))
    updated = b.inferred("dynamic-update-slice", (cache, row, at, b.constant(0, "s32")))
    return b.module(b.tuple(updated, b.add(total, b.reduce(updated, b.constant(0.0), (0, 1)))), {0: 0})


def unused_and_empty(iterations: int = 2) -> Module:
    """Builds elements of no size, scalars and 16-bit floats, and a result without readers."""
    b = Builder("unused_and_empty")
    x, h, f = b.parameter("f32", (0, 4)), b.parameter("f16", (9,)), b.parameter("pred", (5,))
    _, p, q, r, _ = loop(
        *(b, [b.constant(0, "s32"), x, h, f, b.constant(1.5, "f64")], below(iterations)),
        lambda s, e: [
            next_count(s, e[0]),
            s.add(e[1], e[1]),
            s.add(e[2], e[2]),
            s.elementwise("not", e[3]),
            s.add(e[4], e[4]),
        ],
    )
    return b.module(b.tuple(p, q, r))


LOOPS: dict[str, Callable[[], Module]] = {
    made.__name__: made
    for made in (
        until_small, exchange, same_twice, nested, nested_tuples, tensor_array, two_rows, old_array_forwarded,
        old_array_behind_moves, condition_that_updates, flag, flag_is_the_condition, memory_again, shared_body,
        loop_in_a_branch, numbered_branches, branch_that_returns_its_arguments, branches_in_a_loop,
        updated_variables, cache_update, unused_and_empty, recurrence, recurrence_of_some_rows,
        recurrence_out_of_the_array, recurrence_backwards, recurrence_in_a_loop, seven_loops_deep,
    )
}  # fmt: skip


def choices(module: Module, arguments: list[np.ndarray]) -> list[list[np.ndarray]]:
    """The arguments, with every value that a scalar choice among them can sensibly take."""
    for number, parameter in enumerate(module.entry.parameters):
        shape = parameter.array_shape
        if shape in (Shape("pred"), Shape("s32")):
            values = range(-1, 4) if shape.element_type == "s32" else (0, 1)
            return [[np.array(v, shape.dtype) if k == number else a for k, a in enumerate(arguments)] for v in values]
    return [arguments]
