"""Parts of programs with loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.ir import Computation, Instruction, TupleShape
from engine.ir.builder import Builder

Condition = Callable[[Builder, list[Instruction]], Instruction]
Body = Callable[[Builder, list[Instruction]], Sequence[Instruction]]


def parts(builder: Builder, value: Instruction) -> list[Instruction]:
    """All elements of a tuple."""
    assert isinstance(value.shape, TupleShape)
    return [builder.get_tuple_element(value, k) for k in range(len(value.shape.elements))]


def computation(name: str, state: TupleShape, make: Callable[[Builder, list[Instruction]], Instruction]) -> Computation:
    b = Builder(name)
    return b.build(make(b, parts(b, b.parameter_of(state))))


def loop(b: Builder, initial: Sequence[Instruction], condition: Condition, body: Body) -> list[Instruction]:
    """A `while` loop whose state has these elements; returns its results."""
    start = b.tuple(*initial)
    assert isinstance(start.shape, TupleShape)
    test = computation("condition", start.shape, condition)
    iteration = computation("body", start.shape, lambda s, elements: s.tuple(*body(s, elements)))
    return parts(b, b.inferred("while", (start,), (iteration, test)))


def below(limit: int) -> Condition:
    """Element 0, an s32 count, is less than `limit`."""
    return lambda c, elements: c.compare(elements[0], c.constant(limit, "s32"), "LT")


def next_count(s: Builder, count: Instruction) -> Instruction:
    return s.add(count, s.constant(1, "s32"))


def branch(b: Builder, choice: Instruction, arguments: Sequence[Instruction], *makers: Body) -> list[Instruction]:
    """A `conditional` whose branches take the same arguments."""
    packed = b.tuple(*arguments)
    assert isinstance(packed.shape, TupleShape)
    branches = [
        computation(f"branch.{k}", packed.shape, lambda s, elements, make=make: s.tuple(*make(s, elements)))
        for k, make in enumerate(makers)
    ]
    return parts(b, b.conditional(choice, branches, [packed] * len(branches)))


def scaled(s: Builder, x: Instruction, factor: float) -> Instruction:
    return s.multiply(x, s.splat(factor, x.array_shape.dimensions))


def product(s: Builder, x: Instruction, y: Instruction) -> Instruction:
    """A matrix product of numbers that stay small."""
    return scaled(s, s.dot(x, y), x.array_shape.dimensions[-1] ** -0.5)


def repeated(s: Builder, x: Instruction, iterations: int, factor: float = 0.5) -> Instruction:
    """Computes tanh(x * factor) repeatedly, in a loop: a branch with a loop stays a branch."""
    _, made = loop(
        *(s, [s.constant(0, "s32"), x], below(iterations)),
        lambda t, e: [next_count(t, e[0]), t.elementwise("tanh", scaled(t, e[1], factor))],
    )
    return made
