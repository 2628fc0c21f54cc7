"""The tables of docs/supported_ops.md, which are those of engine.ir.opcodes.

tests/emit/test_elementwise.py holds the element types that rows name against those that it tries.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable

from engine.ir.opcodes import OPCODES, Opcode
from engine.ir.shape import COMPLEX, FLOATS, INTEGERS, NUMPY_TYPES, PRED

WIDTH = 110
FAMILIES = {"pred": PRED, "integers": INTEGERS, "floats": FLOATS, "complex": COMPLEX}
"""One name for each of these, in the order in which they are told."""


def told(types: Iterable[str] | None) -> str:
    """Element types by families where these are complete: "pred, integers, floats"."""
    left, words = set(NUMPY_TYPES if types is None else types), []
    for name, members in FAMILIES.items():
        if left.issuperset(members):
            words.append(name)
            left -= members
    return ", ".join([*words, *sorted(left)])


def show(opcodes: Iterable[str]) -> None:
    """Prints names, indented."""
    lines = textwrap.wrap("  ".join(sorted(opcodes)), WIDTH - 2, break_on_hyphens=False)
    print(textwrap.indent("\n".join(lines), "  "))


def show_elementwise() -> None:
    """Prints the elementwise operations of HLO by the element types they take."""
    _show_groups("emitter", lambda row: told(row.operand_types))


def show_structured() -> None:
    """Prints the operations that move, contract, reduce or run computations: by kinds, and types if not of all."""
    _show_groups("lowering", lambda row: row.kind + (f" of {told(row.operand_types)}" if row.operand_types else ""))


def show_rewritten() -> None:
    """Prints the operations that passes turn into others before all else."""
    show(row.name for row in OPCODES.values() if row.execution == "pass")


def _show_groups(execution: str, group: Callable[[Opcode], str]) -> None:
    groups: dict[str, list[str]] = {}
    for row in OPCODES.values():
        if row.execution == execution and not row.internal:
            groups.setdefault(group(row), []).append(row.name)
    for name, opcodes in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"{name}:")
        show(opcodes)
