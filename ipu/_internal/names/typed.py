"""Dotted names of the statement being executed, read from its byte code."""

from __future__ import annotations

import dis
from collections.abc import Sequence
from opcode import opmap
from types import FrameType

ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
VARIABLES = frozenset({"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FAST_CHECK"})
OPCODES = frozenset(opmap[name] for name in (*ATTRIBUTES, "IMPORT_FROM", "IMPORT_NAME") if name in opmap)


def typed_name(frame: FrameType) -> tuple[str | None, bool]:
    """The whole dotted name that `frame` is evaluating or importing, and whether it imports it.

    The name is None where the byte code has none, as in `getattr(module, name)`. It includes attributes not evaluated
    yet: at `a.b` of `a.b.c` it is "a.b.c".
    """
    if frame.f_code.co_code[frame.f_lasti] not in OPCODES:
        return None, False
    steps = list(dis.get_instructions(frame.f_code))
    now = next((number for number, step in enumerate(steps) if step.offset == frame.f_lasti), None)
    if now is None:
        return None, False
    if steps[now].opname in ATTRIBUTES:
        return _expression(steps, now), False
    if steps[now].opname == "IMPORT_NAME":
        after = steps[now + 1]
        return ".".join(
            [steps[now].argval, *([after.argval] if _is_from(after) and steps[now - 1].argval else [])]
        ), True
    module = next(step.argval for step in reversed(steps[:now]) if step.opname == "IMPORT_NAME")
    return f"{module}.{steps[now].argval}", True


def _is_from(step: dis.Instruction) -> bool:
    return step.opname == "IMPORT_FROM"


def _expression(steps: Sequence[dis.Instruction], now: int) -> str | None:
    first, last = now, now
    while steps[first].opname in ATTRIBUTES:
        first -= 1
    while steps[last + 1].opname in ATTRIBUTES:
        last += 1
    if steps[first].opname not in VARIABLES:
        return None
    return ".".join(step.argval for step in steps[first : last + 1])
