"""Branches take 16-bit floats unconverted, with the results of the definitions."""

from __future__ import annotations

import numpy as np
import pytest

from engine.evaluate import evaluate
from engine.ir import Computation, Instruction, Module, TupleShape
from engine.ir.builder import Builder
from engine.ir.verifier import verify
from engine.passes.narrow_arguments import narrow_arguments


def argument_of(tuple_shape: TupleShape) -> Instruction:
    return Instruction("given", "parameter", tuple_shape, (), {"parameter_number": 0})


def element(argument: Instruction, number: int) -> Instruction:
    assert isinstance(argument.shape, TupleShape)
    shape = argument.shape.elements[number]
    return Instruction(f"element.{number}", "get-tuple-element", shape, (argument,), {"tuple_index": number})


def branch(name: str, shape: TupleShape, adds: bool, whole: bool = False) -> Computation:
    """A branch that returns the second element, or the sum of both; with `whole` its argument."""
    argument = argument_of(shape)
    if whole:
        return Computation(name, [argument], argument)
    first, second = element(argument, 0), element(argument, 1)
    root = Instruction("sum", "add", first.shape, (first, second)) if adds else second
    last = Instruction("root", "tuple", TupleShape((root.shape, second.shape)), (root, second))
    made = [argument, *([first] if adds else []), second, *([root] if adds else []), last]
    return Computation(name, made, last)


def conditional(kind: str, wide: str = "f32", whole: bool = False) -> Module:
    """A conditional of (pred, halves, wide): both branches get the halves, widened."""
    b = Builder()
    choice, half, other = b.parameter("pred", ()), b.parameter(kind, (3, 5)), b.parameter(wide, (3, 5))
    operand = b.tuple(b.convert(half, wide), other)
    assert isinstance(operand.shape, TupleShape)
    called = branch("yes", operand.shape, True), branch("no", operand.shape, False, whole)
    chosen = Instruction("chosen", "conditional", operand.shape, (choice, operand, operand), {}, called)
    b.instructions.append(chosen)
    return b.module(chosen)


def wide_arguments(module: Module) -> int:
    (chosen,) = (i for i in module.entry.instructions if i.opcode == "conditional")
    return sum(o.opcode == "convert" for o in chosen.operands[1].operands)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_halves_are_widened_in_the_branches(kind: str) -> None:
    module = conditional(kind)
    made = narrow_arguments(module)
    verify(made)
    assert (wide_arguments(module), wide_arguments(made)) == (1, 0)
    random = np.random.default_rng(0)
    for choice in (True, False):
        half = random.normal(size=(3, 5)).astype(module.entry.parameters[1].array_shape.dtype)
        arguments = [np.asarray(choice), half, random.normal(size=(3, 5)).astype(np.float32)]
        for one, other in zip(evaluate(made, arguments), evaluate(module, arguments), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("module", [conditional("f32", "f64"), conditional("f16", whole=True)])
def test_what_stays(module: Module) -> None:
    """Arguments of other types stay, and so do branches that return their whole argument."""
    assert narrow_arguments(module) is module
