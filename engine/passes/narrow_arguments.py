"""Branches of a conditional that take 16-bit floats unconverted, and widen them where their instructions need it.

A step with loss scaling widens its gradients, checks that all of them are finite, and updates its weights if so:
the gradients are in memory until that decision.
"""

from __future__ import annotations

from engine.ir import Computation, Instruction
from engine.passes.loops.rebuilding import computation_of, element_of, parameter_of, substituted, tuple_of
from engine.passes.rewriting import changed, on_each

HALF_TYPES = frozenset({"f16", "bf16"})
WIDE = frozenset({"f32", "f64"})


@on_each("conditional")
def narrow_arguments(instruction: Instruction) -> Instruction | None:
    """Moves conversions of 16-bit floats to wide types into the branches that take the wide array."""
    choice, *arguments = instruction.operands
    given: dict[Instruction, Instruction] = {}
    branches = []
    for branch, argument in zip(instruction.called, arguments, strict=True):
        widened = _widened(argument)
        if widened and _reads_elements_alone(branch):
            elements = [e.operands[0] if number in widened else e for number, e in enumerate(argument.operands)]
            given.setdefault(argument, tuple_of(argument.name, elements))
            branches.append(_widening(branch, given[argument], widened))
        elif argument in given:
            return None
        else:
            branches.append(branch)
    if not given:
        return None
    operands = (choice, *(given.get(argument, argument) for argument in arguments))
    return changed(instruction, operands=operands, called=tuple(branches))


def _widened(argument: Instruction) -> list[int]:
    """The indices of a tuple's elements that are widened 16-bit floats."""
    if argument.opcode != "tuple":
        return []
    return [number for number, element in enumerate(argument.operands) if _widens(element)]


def _widens(instruction: Instruction) -> bool:
    if instruction.opcode != "convert" or instruction.array_shape.element_type not in WIDE:
        return False
    return instruction.operands[0].array_shape.element_type in HALF_TYPES


def _reads_elements_alone(branch: Computation) -> bool:
    """Whether no instruction of a branch reads its argument as a whole."""
    (parameter,) = branch.parameters
    users = branch.users()[parameter]
    return branch.root is not parameter and all(user.opcode == "get-tuple-element" for user in users)


def _widening(branch: Computation, argument: Instruction, widened: list[int]) -> Computation:
    """The branch with 16-bit floats in place of the `widened` elements of its argument."""
    (old,) = branch.parameters
    parameter = parameter_of(old.name, [element.shape for element in argument.operands])
    replacements = {old: parameter}
    for user in branch.users()[old]:
        number = user["tuple_index"]
        if number in widened:
            name = f"{user.name}.wide"
            replacements[user] = Instruction(name, "convert", user.shape, (element_of(parameter, number),))
    return computation_of(branch.name, parameter, substituted([branch.root], replacements)[branch.root])
