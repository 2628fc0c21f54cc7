"""Loops of recurrent layers: arrays cut along rows, lists that are filled and read row by row, constant weights."""

from __future__ import annotations

from engine.ir import DotDimensionNumbers, Instruction, Module
from engine.ir.builder import Builder
from tests.program.loop_parts import below, loop, next_count, product, scaled

ROWS, WIDTH = 18, 40
"""Rows that the units do not divide, and enough work for several workers."""


def pushed(s: Builder, array: Instruction, row: Instruction, at: Instruction) -> Instruction:
    """The list with row number `at` replaced."""
    zero = s.constant(0, "s32")
    new = s.reshape(row, (1, *row.array_shape.dimensions))
    return s.inferred("dynamic-update-slice", (array, new, at, zero, zero))


def popped(s: Builder, array: Instruction, at: Instruction) -> Instruction:
    zero, sizes = s.constant(0, "s32"), array.array_shape.dimensions[1:]
    row = s.inferred("dynamic-slice", (array, at, zero, zero), dynamic_slice_sizes=(1, *sizes))
    return s.reshape(row, sizes)


def transposed_product(s: Builder, x: Instruction, w: Instruction) -> Instruction:
    return scaled(s, s.dot(x, w, DotDimensionNumbers((1,), (1,))), WIDTH**-0.5)


def recurrence(iterations: int = 5, start: int = 0, step: int = 1, length: int = 5) -> Module:
    """A layer and its gradient; only rows start, start + step ... of the list are written, clamped to the array."""
    b = Builder("recurrence")
    x = b.parameter("f32", (length, ROWS, WIDTH))
    w, bias = b.parameter("f32", (WIDTH, WIDTH)), b.parameter("f32", (2, WIDTH))

    def iteration(s: Builder, e: list[Instruction]) -> list[Instruction]:
        count, h, rows, inputs, weight, biases, at = e
        second = s.reshape(s.slice(biases, (1, 2), (0, WIDTH)), (WIDTH,))
        new = s.add(s.add(product(s, h, weight), popped(s, inputs, at)), s.broadcast(second, (ROWS, WIDTH), (1,)))
        new = s.elementwise("tanh", new)
        later = s.add(at, s.constant(step, "s32"))
        return [next_count(s, count), new, pushed(s, rows, new, at), inputs, weight, biases, later]

    zero = b.constant(0, "s32")
    initial = [zero, b.splat(0.0, (ROWS, WIDTH)), b.splat(0.25, (length, ROWS, WIDTH)), x, w, bias]
    _, h, rows, *_ = loop(b, [*initial, b.constant(start, "s32")], below(iterations), iteration)

    def back(s: Builder, e: list[Instruction]) -> list[Instruction]:
        count, gradient, gradients, outputs, weight, at, total = e
        here = s.subtract(at, s.constant(1, "s32"))
        out = popped(s, outputs, here)
        new = s.subtract(gradient, s.multiply(s.multiply(out, out), gradient))
        total = s.add(total, s.reduce(new, s.constant(0.0), (0,)))
        lists = pushed(s, gradients, new, here)
        return [next_count(s, count), transposed_product(s, new, weight), lists, outputs, weight, here, total]

    initial = [zero, h, b.splat(0.0, (length, ROWS, WIDTH)), rows, w, b.constant(length, "s32"), b.splat(0.0, (WIDTH,))]
    _, gradient, gradients, *_, total = loop(b, initial, below(length), back)
    return b.module(b.tuple(rows, h, gradient, gradients, total))


def recurrence_of_some_rows() -> Module:
    """Builds a loop that writes every other row: the others keep their initial values."""
    return recurrence(iterations=3, step=2)


def recurrence_out_of_the_array() -> Module:
    """Builds loops that start before the array and end behind it, where the last row is written again."""
    return recurrence(iterations=7, start=-1)


def recurrence_backwards() -> Module:
    return recurrence(start=4, step=-1)


def recurrence_in_a_loop(iterations: int = 3, length: int = 4) -> Module:
    """Builds an outer list, and an inner list whose rows are written again in every outer iteration."""
    b = Builder("recurrence_in_a_loop")
    x, w = b.parameter("f32", (ROWS, WIDTH)), b.parameter("f32", (WIDTH, WIDTH))

    def outer(s: Builder, e: list[Instruction]) -> list[Instruction]:
        def inner(t: Builder, i: list[Instruction]) -> list[Instruction]:
            new = t.elementwise("tanh", transposed_product(t, i[1], i[3]))
            return [next_count(t, i[0]), new, pushed(t, i[2], new, i[0]), i[3]]

        initial = [s.constant(0, "s32"), e[1], s.splat(0.0, (length, ROWS, WIDTH)), e[3]]
        _, h, rows, _ = loop(s, initial, below(length), inner)
        total = s.reduce(rows, s.constant(0.0), (0,))
        return [next_count(s, e[0]), s.add(h, e[1]), pushed(s, e[2], total, e[0]), e[3]]

    initial = [b.constant(0, "s32"), x, b.splat(0.5, (iterations, ROWS, WIDTH)), w]
    _, h, rows, _ = loop(b, initial, below(iterations), outer)
    return b.module(b.tuple(h, rows, b.dot(x, w)))


def seven_loops_deep() -> Module:
    """Builds more nested loops than a worker has counters; each writes a row by its own count."""
    b = Builder("seven_loops_deep")

    def level(s: Builder, e: list[Instruction], depth: int) -> list[Instruction]:
        x, rows = e[1], e[2]
        if depth:
            _, x, rows = loop(
                *(s, [s.constant(0, "s32"), x, rows], below(2)),
                lambda t, i: level(t, i, depth - 1),
            )
        x = s.elementwise("tanh", s.add(x, popped(s, rows, e[0])))
        return [next_count(s, e[0]), x, pushed(s, rows, x, e[0])]

    initial = [b.constant(0, "s32"), b.parameter("f32", (3, 5)), b.parameter("f32", (2, 3, 5))]
    return b.module(b.tuple(*loop(b, initial, below(2), lambda s, e: level(s, e, 6))))
