"""Calls of outlined functions: `call` instructions whose body is compiled once and shared by all its calls."""

from __future__ import annotations

from engine.ir.module import Computation, Instruction, Module

CALL = "OUTLINED_CALL"
"""The frontend attribute of a call of an outlined function: the call's number in the program, the same for the call of
its gradient, whose first operands are the same."""
GRADIENT = "OUTLINED_GRADIENT"
"""The frontend attribute of the call of an outlined function's gradient: "true"."""


def call_of_body(like: Instruction, body: Computation, number: str, is_gradient: bool) -> Instruction:
    """A call of an outlined body in place of a custom call with the same operands and result."""
    marks = {CALL: number, **({GRADIENT: "true"} if is_gradient else {})}
    attributes = {"frontend_attributes": {**like.get("frontend_attributes", {}), **marks}}
    return Instruction(like.name, "call", like.shape, like.operands, attributes, (body,), like.op_name)


def outlined_call(instruction: Instruction) -> str | None:
    """The number of a call of an outlined function; None for any other instruction."""
    return instruction.get("frontend_attributes", {}).get(CALL) if instruction.opcode == "call" else None


def has_outlined_calls(module: Module) -> bool:
    """Whether a computation of the module calls an outlined function."""
    return any(outlined_call(i) for i in module.instructions())


def is_gradient(instruction: Instruction) -> bool:
    """Whether an outlined call is a call of a gradient."""
    return GRADIENT in instruction.get("frontend_attributes", {})


def are_distinct(computation: Computation) -> bool:
    """Whether each function's call has its own number, so that the call of its gradient is identified."""
    calls = [(outlined_call(i), is_gradient(i)) for i in computation.instructions if outlined_call(i)]
    return len(calls) == len(set(calls))
