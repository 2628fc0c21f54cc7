"""Rules for modules from files, beyond the shape rules: no program may read or write outside its memory.

Shape rules trust the compiler that built a module in its custom calls, and in the opcodes and sizes of a module.
"""

from __future__ import annotations

from collections.abc import Callable
from string import Formatter
from typing import get_args

from engine.errors import InternalError, ResourceLimit
from engine.files.trust import check_vertex
from engine.ir import Instruction, Module, Shape, TupleShape
from engine.ir.device_operations import FIRST_OF_EQUAL, INFEED, QUEUES, TOKEN, VERTEX, queue_of, target_of
from engine.ir.factorizations import FACTORIZATIONS, factorization_shapes
from engine.ir.interpolation import INTERPOLATION, interpolation_shape
from engine.ir.opcodes import CONTROL_FLOW, opcodes_that, registering
from engine.ir.shape import INTEGERS
from engine.ir.shape_rules import array_operands, require
from engine.ir.value_checks import VALUE_CHECK, CheckKind, ValueCheck
from engine.ir.verifier import verify
from engine.resource_limits import above, current_limits

Check = Callable[[Instruction], None]
CHECKS: dict[str, Check] = {VERTEX: check_vertex}
check_call = registering(CHECKS)
"""A decorator of the check of some targets of custom calls; it may raise InternalError."""
IN_FILES = opcodes_that(lambda row: row.execution != "none" and not row.internal)
MOST_APPLIED = 256
"""Most instructions of a computation that a sort, a reduction or the like applies to elements."""


def check_module(module: Module) -> None:
    """Raises InternalError for the first broken rule, ResourceLimit for a large array; callers add the file's name."""
    space = current_limits().most_bytes
    for instruction in module.instructions():
        require(
            instruction.opcode in IN_FILES,
            f"Expected operations that the engine has. Received: {instruction.opcode!r:.80}.",
        )
        size = sum(shape.bytes for shape in instruction.tuple_shapes)
        if size > space:
            raise above("bytes", f"{space} bytes of an instruction's result", f"{str(instruction.shape):.80}")
        require("literal" not in instruction.attributes or instruction.opcode == "constant", "Expected no literal.")
    verify(module)
    for instruction in module.instructions():
        if instruction.opcode not in CONTROL_FLOW:
            _check_applied(instruction)
        if instruction.opcode == "custom-call":
            _check_call(instruction)


def _check_applied(instruction: Instruction) -> None:
    """Raises ResourceLimit for a long computation that an operation applies, as it becomes one piece of machine
    code.
    """
    for each in instruction.called:
        if len(each.instructions) > MOST_APPLIED:
            expected = f"{MOST_APPLIED} instructions in what {instruction.opcode} applies"
            raise ResourceLimit(f"Expected at most {expected}. Received: {len(each.instructions)}. Divide the program.")


def _check_call(instruction: Instruction) -> None:
    check = CHECKS.get(target_of(instruction) or "")
    if check is None:
        raise InternalError(
            f"Expected a queue, value check, vertex, factorization, interpolation or first of equal ids. "
            f"Received: {instruction.get('custom_call_target')!r:.80}."
        )
    check(instruction)


@check_call(VALUE_CHECK)
def _value_check(instruction: Instruction) -> None:
    operands = array_operands(instruction)
    require(len(operands) == 2 and operands[1] == instruction.shape == TOKEN, "Expected an array and a token s32[].")
    try:
        check = ValueCheck.of(instruction)
        fields = {field for _, field, _, _ in Formatter().parse(check.message) if field is not None}
    except (KeyError, TypeError, ValueError):
        require(False, f"Expected a value check. Received: {instruction.get('backend_config')!r:.80}.")
        return
    limits = [*check.lows, *check.bounds]
    require(check.kind in get_args(CheckKind), f"Expected a kind of check. Received: {check.kind!r:.80}.")
    require(
        len(check.lows) == len(check.bounds) > 0 and all(type(k) is int and -(2**63) <= k < 2**63 for k in limits),
        "Expected as many lows as bounds, 64-bit integers.",
    )
    require(fields <= {"value", "position", "low", "bound"}, f"Expected fields of a check. Received: {fields}.")


@check_call(*FACTORIZATIONS)
def _factorization(instruction: Instruction) -> None:
    shapes = factorization_shapes(instruction)
    require(instruction.shape == TupleShape(shapes), f"Expected {shapes}. Received: {instruction.shape}.")


@check_call(INTERPOLATION)
def _interpolation(instruction: Instruction) -> None:
    made = interpolation_shape(instruction)
    require(instruction.shape == made, f"Expected {made}. Received: {instruction.shape}.")


@check_call(FIRST_OF_EQUAL)
def _first_of_equal(instruction: Instruction) -> None:
    operands = array_operands(instruction)
    fits = len(operands) == 1 and operands[0].rank == 1 and operands[0].element_type in INTEGERS
    require(fits and instruction.shape == Shape("s32", operands[0].dimensions), "Expected ids [n] and s32 [n].")


@check_call(*QUEUES)
def _queue(instruction: Instruction) -> None:
    require(bool(queue_of(instruction)), "Expected a queue with a name.")
    operands, shape = array_operands(instruction), instruction.shape
    flat = isinstance(shape, Shape) or all(isinstance(each, Shape) for each in shape.elements)
    require(flat and bool(operands), f"Expected arrays, the last one a token. Received: {shape}.")
    tokens = [operands[-1:], list(instruction.tuple_shapes[-1:])]
    require(tokens == [[TOKEN], [TOKEN]], "Expected a token s32[] in and out.")
    if instruction["custom_call_target"] == INFEED:
        require(len(operands) == 1 and len(instruction.tuple_shapes) > 1, "Expected an infeed of a token.")
    else:
        require(len(operands) > 1 and len(instruction.tuple_shapes) == 1, "Expected an outfeed that gives a token.")
