"""The tables of docs/supported_ops.md: opcodes from the registries, element types from what tests try.

An emitter whose types no test names is an error here, so that the page never promises more than tests hold.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

import engine.lower.program  # noqa: F401  (registers every lowering)
from engine.emit.registry import COMPLEX_EMITTERS, EMITTERS
from engine.files.checks import NOT_IN_FILES
from engine.lower.context import LOWERINGS
from engine.ops import DEFINITIONS
from tests.emit.cases import ALL, EXACT_BINARY, EXACT_UNARY, FLOATS, INTEGERS, NUMBERS, ROUNDED, SIGNED, UNSIGNED

WIDTH = 110
COMPLEX = ("c64", "c128")
OTHER: dict[str, tuple[str, ...]] = {
    "bitcast-convert": NUMBERS,
    "clamp": NUMBERS,
    "compare": ALL,
    "complex": ("f32", "f64"),
    "convert": ALL,
    "imag": (),
    "power": NUMBERS,
    "real": (),
    "reduce-precision": FLOATS,
    "select": ALL,
}
# One name for each of these, in the order in which they are told.
FAMILIES = {"pred": ("pred",), "integers": INTEGERS, "signed integers": SIGNED, "unsigned integers": UNSIGNED}
FAMILIES |= {"floats": FLOATS, "complex": COMPLEX}
TAKE_REAL_PARTS = {"complex"}
"""Emitters for complex results whose operands are real."""

STRUCTURED = {
    "every element type": (
        "broadcast concatenate conditional constant dynamic-slice dynamic-update-slice fusion gather "
        "get-tuple-element optimization-barrier pad reduce reduce-window reshape reverse scatter select-and-scatter "
        "slice sort transpose tuple while"
    ),
    "integers, floats, complex": "convolution dot iota",
    "f32, f64, complex": "cholesky fft triangular-solve",
    "unsigned integers": "rng-bit-generator",
    "u64": "rng-get-and-update-state",
    "pred, integers, floats": "rng",
    "every element type, as an infeed or an outfeed": "custom-call",
}


def element_types(opcode: str) -> tuple[str, ...]:
    """What the emitter of an elementwise operation takes. Raises KeyError if no test says so."""
    given = {**EXACT_UNARY, **EXACT_BINARY, **dict.fromkeys(ROUNDED, FLOATS), **OTHER}[opcode]
    if opcode in COMPLEX_EMITTERS and opcode not in TAKE_REAL_PARTS:
        given = (*given, *COMPLEX)
    return tuple(given)


def told(types: Iterable[str]) -> str:
    """Element types by families where these are complete: "pred, integers, floats"."""
    left, words = set(types), []
    for name, members in FAMILIES.items():
        if left.issuperset(members):
            words.append(name)
            left -= set(members)
    return ", ".join([*words, *sorted(left)])


def show(opcodes: Iterable[str]) -> None:
    """Prints names, indented."""
    lines = textwrap.wrap("  ".join(sorted(opcodes)), WIDTH - 2, break_on_hyphens=False)
    print(textwrap.indent("\n".join(lines), "  "))


def show_elementwise() -> None:
    """Prints the elementwise operations of HLO by the element types they take."""
    groups: dict[str, list[str]] = {}
    for opcode in (EMITTERS.keys() & DEFINITIONS.keys()) - NOT_IN_FILES:
        groups.setdefault(told(element_types(opcode)), []).append(opcode)
    _show_groups(groups)


def show_structured() -> None:
    """Prints the operations that move, contract, reduce or steer. Raises KeyError if one is in no group."""
    of = {opcode: types for types, opcodes in STRUCTURED.items() for opcode in opcodes.split()}
    groups: dict[str, list[str]] = {}
    for opcode in (LOWERINGS.keys() - EMITTERS.keys()) & DEFINITIONS.keys():
        groups.setdefault(of[opcode], []).append(opcode)
    _show_groups(groups)


def show_definitions_only() -> None:
    """Prints what has a definition, but neither a codelet nor a pass that rewrites it."""
    rewritten = {"call", "batch-norm-grad", "batch-norm-inference", "batch-norm-training"}
    show(DEFINITIONS.keys() - EMITTERS.keys() - LOWERINGS.keys() - rewritten)


def _show_groups(groups: dict[str, list[str]]) -> None:
    for types, opcodes in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"{types}:")
        show(opcodes)
