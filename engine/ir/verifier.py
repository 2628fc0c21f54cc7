"""Checks the consistency of a module: order, shapes, element types, parameters, called computations, aliases."""

from __future__ import annotations

from engine.errors import InternalError
from engine.ir.module import Computation, Instruction, Module
from engine.ir.opcodes import CONTRACTIONS, OPCODES
from engine.ir.printer import print_instruction
from engine.ir.shape import COMPLEX, Shape
from engine.ir.shape_rules import equal, require


def verify(module: Module) -> None:
    """Raises InternalError, with the printed instruction, for the first broken rule.

    The shapes of opcodes without a shape rule (parameter, custom-call) are trusted.
    """
    verified: set[Computation] = set()
    for computation in module.computations():
        _verify_calls(computation, verified)
        _verify_computation(computation)
        verified.add(computation)
    _verify_aliases(module)


def _verify_calls(computation: Computation, verified: set[Computation]) -> None:
    """Fails for recursion: computations come callees first, so a call of an unverified one is part of a cycle."""
    for instruction in computation.instructions:
        for callee in instruction.called:
            if callee not in verified:
                _fail(computation, instruction, f"Expected no recursion. Received: a call of %{callee.name}.")


def _verify_computation(computation: Computation) -> None:
    seen: set[Instruction] = set()
    names: set[str] = set()
    for instruction in computation.instructions:
        for operand in instruction.operands:
            if operand not in seen:
                _fail(computation, instruction, f"Expected operand %{operand.name} before its user.")
        if instruction in seen or instruction.name in names:
            _fail(computation, instruction, "Expected each instruction and each name once.")
        seen.add(instruction)
        names.add(instruction.name)
        _verify_shape(computation, instruction)
    if computation.root not in seen:
        _fail(computation, computation.root, "Expected the root among the computation's instructions.")
    _verify_parameters(computation)


def _verify_shape(computation: Computation, instruction: Instruction) -> None:
    row = OPCODES.get(instruction.opcode)
    if row is None or row.shape is None:
        return
    try:
        equal(instruction.shape, row.shape(instruction), "the shape")
        _check_element_types(instruction, row.operand_types)
    except InternalError as error:
        _fail(computation, instruction, str(error))
    except (KeyError, IndexError, ValueError) as error:
        _fail(computation, instruction, f"Expected operands and attributes of the op. Received: {error!r}.")


def _check_element_types(instruction: Instruction, legal: frozenset[str] | None) -> None:
    """Raises InternalError for an operation on a type for which it is not defined."""
    operands = [o.shape for o in instruction.operands] or [instruction.shape]
    types = {shape.element_type for shape in operands if isinstance(shape, Shape)}
    if legal is not None:
        wrong = ", ".join(sorted(types - legal))
        require(not wrong, f"Expected {', '.join(sorted(legal))} in {instruction.opcode}. Received: {wrong}.")
    if instruction.opcode == "compare" and COMPLEX & types:
        direction = instruction.get("direction")
        require(direction in ("EQ", "NE"), f"Expected EQ or NE of complex numbers. Received: {direction}.")
    if instruction.opcode == "convert" or instruction.opcode in CONTRACTIONS:
        result = instruction.array_shape.element_type
        narrows = COMPLEX & types and result not in COMPLEX
        given = ", ".join(shape.element_type for shape in operands if isinstance(shape, Shape))
        require(not narrows, f"Expected a complex result of {given}. Received: {result}; take `real`.")


def _verify_parameters(computation: Computation) -> None:
    for number, parameter in enumerate(computation.parameters):
        if parameter["parameter_number"] != number:
            _fail(computation, parameter, f"Expected parameter number {number}, each once and none left out.")
        if parameter.operands or parameter.called:
            _fail(computation, parameter, "Expected a parameter without operands.")


def _verify_aliases(module: Module) -> None:
    parameters, results = module.entry.parameters, module.results
    for number, index in module.aliases.items():
        if not 0 <= number < len(parameters) or not 0 <= index < len(results):
            raise InternalError(
                f"Expected an alias within {len(parameters)} parameters and {len(results)} results of "
                f"{module.name}. Received: parameter {number} for result {index}."
            )
        if parameters[number].shape != results[index].shape:
            _fail(
                module.entry,
                results[index],
                f"Expected {parameters[number].shape}, the shape of parameter {number}.",
            )
    if len(set(module.aliases.values())) != len(module.aliases):
        raise InternalError(f"Expected one parameter for each aliased result. Received: {module.aliases}.")


def _fail(computation: Computation, instruction: Instruction, reason: str) -> None:
    raise InternalError(f"{reason} In %{computation.name}: {print_instruction(instruction)}") from None
