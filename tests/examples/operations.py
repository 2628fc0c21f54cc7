"""The tables of docs/supported_ops.md, which are those of engine.ir.opcodes.

tests/emit/test_elementwise.py holds the element types that rows name against those that it tries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.ir.opcodes import OPCODES, Opcode
from engine.ir.shape import COMPLEX, FLOATS, INTEGERS, NUMPY_TYPES, PRED

FAMILIES = {"pred": PRED, "integers": INTEGERS, "floats": FLOATS, "complex": COMPLEX}
"""Names for these sets of types, in the order in which the page lists them."""


def told(types: Iterable[str] | None) -> str:
    """Element types by families where these are complete: "pred, integers, floats"."""
    left, words = set(NUMPY_TYPES if types is None else types), []
    for name, members in FAMILIES.items():
        if left.issuperset(members):
            words.append(name)
            left -= members
    return ", ".join([*words, *sorted(left)])


def names(opcodes: Iterable[str]) -> str:
    """Names of operations, as code."""
    return ", ".join(f"`{name}`" for name in sorted(opcodes))


def elementwise_table() -> str:
    """The elementwise operations of HLO by the element types they take."""
    return _table("Element types", "emitter", lambda row: told(row.operand_types))


def structured_table() -> str:
    """The operations that move, contract, reduce or run computations: by kind, and by types if they do not take all."""

    def kind(row: Opcode) -> str:
        return row.kind + (f" of {told(row.operand_types)}" if row.operand_types else "")

    return _table("Kind", "lowering", kind)


def rewritten_list() -> str:
    """The operations that passes replace before all others."""
    return names(row.name for row in OPCODES.values() if row.execution == "pass") + "."


def _table(heading: str, execution: str, group: Callable[[Opcode], str]) -> str:
    groups: dict[str, list[str]] = {}
    for row in OPCODES.values():
        if row.execution == execution and not row.internal:
            groups.setdefault(group(row), []).append(row.name)
    largest_first = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return "\n".join([f"| {heading} | Operations |", "|---|---|", *(f"| {k} | {names(v)} |" for k, v in largest_first)])
