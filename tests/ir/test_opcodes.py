"""The table of opcodes: its rows agree with the definitions, and no other file holds a list of opcodes."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.emit import EMITTERS
from engine.errors import InternalError
from engine.ir import Instruction, Shape
from engine.ir.opcodes import (
    ASSOCIATIVE,
    COMMUTATIVE,
    ELEMENTWISE,
    EXACT,
    NOT_STORED,
    OPCODES,
    neutral_element,
    opcodes_that,
    require_registered,
)
from engine.ir.properties import is_commutative
from engine.ops import DEFINITIONS

ENGINE = Path(__file__).parents[2] / "engine"
BINARY = sorted(opcodes_that(lambda row: row.kind == "elementwise" and row.shape is OPCODES["add"].shape))
# Files that implement operations and so name them, and two that recognise certain formulas.
IMPLEMENTATIONS = ("engine/emit/", "engine/ops/", "engine/codelets/", "engine/ir/opcodes.py")
PATTERNS = ("engine/passes/sparse_updates.py", "engine/profile/vertices.py")
SPECIAL = (0.0, -0.0, 1.0, -2.5, 65504.0, 1e-30, np.inf, -np.inf)


def defined(opcode: str, *operands: np.ndarray) -> np.ndarray:
    kind = "f32" if operands[0].dtype.kind == "f" else "s32"
    instruction = Instruction("i", opcode, Shape(kind, operands[0].shape))
    with np.errstate(all="ignore"):
        return np.asarray(DEFINITIONS[opcode](instruction, list(operands)))


def values(opcode: str) -> np.ndarray:
    types = OPCODES[opcode].operand_types
    if types is None or "f32" in types:
        return np.array(SPECIAL, np.float32)
    return np.array([0, 1, -1, 7, 1 << 20, -(1 << 31)], np.int32)


@pytest.mark.parametrize("opcode", BINARY)
def test_rows_say_what_commutes(opcode: str) -> None:
    x, y = (grid.reshape(-1) for grid in np.meshgrid(values(opcode), values(opcode)))
    one, other = defined(opcode, x, y), defined(opcode, y, x)
    numbers = ~(np.isnan(one) & np.isnan(other)) if one.dtype.kind == "f" else np.ones(one.shape, bool)
    alike = bool(np.array_equal(one[numbers], other[numbers]))
    assert alike is (opcode in COMMUTATIVE)
    if alike and one.dtype.kind == "f":
        zeros_differ = bool(np.any(np.signbit(one) != np.signbit(other), where=numbers))
        assert OPCODES[opcode].either_zero or not zeros_differ


@pytest.mark.parametrize(("kind", "expected"), [("f16", False), ("f32", False), ("s32", True), ("pred", True)])
def test_exchanged_operands_of_extrema_may_change_the_sign_of_a_zero(kind: str, expected: bool) -> None:
    x, y = (Instruction(name, "parameter", Shape(kind)) for name in "xy")
    assert is_commutative(Instruction("i", "maximum", Shape(kind), (x, y))) is expected
    assert is_commutative(Instruction("i", "add", Shape(kind), (x, y)))


@pytest.mark.parametrize("opcode", BINARY)
def test_rows_say_what_is_associative(opcode: str) -> None:
    small = np.array([-3, -1, 0, 2, 5], np.float32 if values(opcode).dtype.kind == "f" else np.int32)
    x, y, z = (grid.reshape(-1) for grid in np.meshgrid(small, small, small))
    one, other = defined(opcode, defined(opcode, x, y), z), defined(opcode, x, defined(opcode, y, z))
    assert np.array_equal(one, other) is (opcode in ASSOCIATIVE)


@pytest.mark.parametrize("opcode", sorted(ASSOCIATIVE))
def test_neutral_elements_change_no_bit(opcode: str) -> None:
    x = values(opcode)
    neutral = np.full_like(x, neutral_element(opcode, "f32" if x.dtype.kind == "f" else "s32"))
    assert defined(opcode, x, neutral).tobytes() == x.tobytes()


@pytest.mark.parametrize("opcode", sorted(opcodes_that(lambda row: row.bounded)))
def test_bounded_functions_have_small_values(opcode: str) -> None:
    found = np.abs(defined(opcode, np.array([*SPECIAL, *np.linspace(-200, 200, 4001)], np.float32)))
    assert (found[~np.isnan(found)] <= 2).all()


@pytest.mark.parametrize("opcode", sorted(EXACT & EMITTERS.keys() - {"clamp", "select", "bitcast-convert"}))
def test_exact_operations_round_no_half(opcode: str) -> None:
    row = OPCODES[opcode]
    if row.internal or opcode == "reduce-precision":
        return
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=64).astype(np.float16) for _ in range(2 if opcode in BINARY else 1)]
    half = defined(opcode, *arrays)
    wide = defined(opcode, *(array.astype(np.float64) for array in arrays))
    np.testing.assert_array_equal(half.astype(np.float64), wide)


def test_a_registry_that_lacks_a_row_fails_and_says_which() -> None:
    with pytest.raises(InternalError, match=r"one emitter .*none for abs"):
        require_registered({"add": 1}, "emitter", {"add", "abs"})
    with pytest.raises(InternalError, match=r"of no row: sinus"):
        require_registered({"add": 1, "sinus": 1}, "emitter", {"add"})


def test_what_is_not_stored_reads_one_operand_or_none() -> None:
    assert {"parameter", "constant", "broadcast", "reshape"} <= NOT_STORED
    assert not NOT_STORED & ELEMENTWISE


def sets_of_opcodes(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Line and members of each literal set of three opcodes or more."""
    for node in ast.walk(tree):
        words: list[object] = []
        if isinstance(node, ast.Set):
            words = [e.value for e in node.elts if isinstance(e, ast.Constant)]
        elif isinstance(node, ast.Compare) and isinstance(node.comparators[0], ast.Tuple):
            words = [e.value for e in node.comparators[0].elts if isinstance(e, ast.Constant)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = list(node.value.split())
        found = [word for word in words if isinstance(word, str) and word in OPCODES]
        if len(found) > 2 and len(found) > 0.8 * len(words):
            yield node.lineno, found  # type: ignore[attr-defined]


def test_no_file_keeps_a_list_of_opcodes_beside_the_table() -> None:
    offenders = []
    gc.disable()  # trees have no cycles, and late in a run each full collection takes seconds
    for path in sorted(ENGINE.rglob("*.py")):
        name = path.relative_to(ENGINE.parent).as_posix()
        if not name.startswith(IMPLEMENTATIONS + PATTERNS):
            offenders += [f"{name}:{line}: {found}" for line, found in sets_of_opcodes(ast.parse(path.read_text()))]
    gc.enable()
    assert not offenders, "\n".join(offenders)


def test_lists_of_opcodes_are_seen() -> None:
    source = 'A = {"add", "abs", "dot"}\nB = "add abs dot".split()\nC = x in ("add", "abs", "dot")\nD = {"add", "dot"}'
    assert sorted(line for line, _ in sets_of_opcodes(ast.parse(source))) == [1, 2, 3]
