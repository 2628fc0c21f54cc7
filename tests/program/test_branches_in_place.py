"""Branches of a conditional update or keep variables in place."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.ir import Computation, Instruction, Module, TupleShape
from engine.ir.builder import Builder
from engine.ir.shape import Shape
from tests.engine.running import arguments_for, assert_near, fast, slow

LARGE, SMALL = (60, 40), (3, 5)
# Results of a branch for (x, y, step), where x and y are variables.
KEPT, ADDED, SWAPPED, MIXED, REVERSED = "kept", "added", "swapped", "mixed", "reversed"
MAKERS = (KEPT, ADDED, SWAPPED, MIXED, REVERSED)


def branch(name: str, shapes: tuple[Shape, ...], makes: str) -> Computation:
    argument = Instruction("given", "parameter", TupleShape(shapes), (), {"parameter_number": 0})
    made = [argument]

    def add(opcode: str, *operands: Instruction, **attributes: object) -> Instruction:
        shape = shapes[attributes.get("tuple_index", 0)]  # type: ignore[call-overload]
        made.append(Instruction(f"{opcode}.{len(made)}", opcode, shape, operands, dict(attributes)))
        return made[-1]

    x, y, step = (add("get-tuple-element", argument, tuple_index=number) for number in range(3))
    results = {
        KEPT: lambda: (x, y),
        ADDED: lambda: (add("add", x, step), add("subtract", y, step)),
        SWAPPED: lambda: (y, x),
        MIXED: lambda: (add("add", x, y), add("multiply", x, y)),
        REVERSED: lambda: (add("reverse", x, dimensions=(0,)), add("add", x, step)),
    }[makes]()
    made.append(Instruction("root", "tuple", TupleShape(shapes[:2]), results))
    return Computation(name, made, made[-1])


def conditional(shape: tuple[int, ...], yes: str, no: str, reads: str = "") -> Module:
    """A conditional of (choice, x, y, step) that updates x and y; `reads` names other readers of old or new values."""
    b = Builder()
    choice, x, y, step = b.parameter("pred", ()), *(b.parameter("f32", shape) for _ in range(3))
    before = b.multiply(x, step) if reads == "before" else None
    operand = b.tuple(x, y, step)
    assert isinstance(operand.shape, TupleShape)
    shapes = tuple(s for s in operand.shape.elements if isinstance(s, Shape))
    called = branch("yes", shapes, yes), branch("no", shapes, no)
    attributes = {"stays_a_branch": True}
    chosen = Instruction(
        "chosen", "conditional", TupleShape(shapes[:2]), (choice, operand, operand), attributes, called
    )
    b.instructions.append(chosen)
    parts = [
        Instruction(f"part.{number}", "get-tuple-element", shapes[number], (chosen,), {"tuple_index": number})
        for number in range(2)
    ]
    b.instructions += parts
    after = b.add(parts[0], x) if reads == "after" else None
    others = [each for each in (before, after) if each is not None]
    return b.module(b.tuple(*parts, *others), {1: 0, 2: 1})


@pytest.mark.sample(14)
@pytest.mark.parametrize("shape", [LARGE, SMALL])
@pytest.mark.parametrize("yes", MAKERS)
@pytest.mark.parametrize("no", MAKERS)
def test_as_the_definitions_say(shape: tuple[int, ...], yes: str, no: str) -> None:
    for reads in ("", "before", "after"):
        module = conditional(shape, yes, no, reads)
        for choice in (True, False):
            values = [np.asarray(choice), *arguments_for(module)[1:]]
            for _ in range(2):
                (outputs, held), (expected, later) = fast(module, values), slow(module, values)
                for one, other in zip([*outputs, *held], [*expected, *later], strict=True):
                    assert_near(one, other)
                values = later


def copies(module: Module) -> int:
    program = build_program(module, ["variable"] * len(module.entry.parameters), {})
    return sum(each.name.endswith(".update") for each in program.compute_sets)


@pytest.mark.parametrize(("yes", "no"), [(ADDED, KEPT), (KEPT, ADDED), (ADDED, ADDED)])
def test_nothing_is_copied(yes: str, no: str) -> None:
    assert copies(conditional(LARGE, yes, no)) == 0
    assert copies(conditional(LARGE, yes, no, "before")) == 0


@pytest.mark.parametrize(("yes", "no"), [(REVERSED, KEPT), (KEPT, REVERSED), (SWAPPED, ADDED)])
def test_old_values_that_are_needed_are_kept(yes: str, no: str) -> None:
    assert copies(conditional(LARGE, yes, no)) > 0
