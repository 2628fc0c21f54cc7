"""Comparison of a module before and after a pass, and queries on a module."""

from __future__ import annotations

from collections import Counter

import numpy as np

from engine.evaluate import evaluate
from engine.ir import Instruction, Module, Shape
from engine.ir.verifier import verify
from engine.passes.pass_list import SIMPLIFICATION
from engine.passes.run_passes import run_passes

SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, np.inf, -np.inf, np.nan, 3e38, 1e-40]


def simplified(module: Module) -> Module:
    """The module after the simplifying passes; the verifier checks the result of each."""
    return run_passes(module, SIMPLIFICATION, verify=True)


def random_array(shape: Shape, rng: np.random.Generator, *, special: bool = True) -> np.ndarray:
    """Numbers of all kinds: about a third of them zeros, infinities, NaNs and denormals."""
    if shape.element_type == "pred":
        return rng.integers(0, 2, shape.dimensions).astype(bool)
    if shape.dtype.kind in "iu":
        limits = np.iinfo(shape.dtype)
        numbers = np.array([*range(5), limits.min, limits.max], shape.dtype)
        return numbers[rng.integers(0, len(numbers), shape.dimensions)]
    ordinary = rng.normal(size=shape.dimensions)
    if not special:
        return np.asarray(ordinary).astype(shape.dtype)
    odd = rng.choice(SPECIAL, shape.dimensions)
    with np.errstate(all="ignore"):
        return np.where(rng.random(shape.dimensions) < 0.7, ordinary, odd).astype(shape.dtype)


def arguments_for(module: Module, seed: int = 0, *, special: bool = True) -> list[np.ndarray]:
    """One random array for each parameter."""
    rng = np.random.default_rng(seed)
    return [random_array(p.array_shape, rng, special=special) for p in module.entry.parameters]


def assert_same_bits(one: np.ndarray, other: np.ndarray) -> None:
    """Equal in every bit, but for the sign and payload of a NaN."""
    assert one.dtype == other.dtype and one.shape == other.shape
    if one.dtype.kind not in "iub":
        with np.errstate(all="ignore"):
            wide = [x.astype(np.float64) for x in (one, other)]
        np.testing.assert_array_equal(np.signbit(wide[0][wide[0] == 0]), np.signbit(wide[1][wide[0] == 0]))
        one, other = wide
    np.testing.assert_array_equal(one, other)


def assert_same_results(before: Module, after: Module, seed: int = 0, *, tolerance: float | None = None) -> None:
    """Asserts that both modules are well formed and give the same results: bit for bit unless a tolerance is given."""
    verify(after)
    assert [p.shape for p in after.entry.parameters] == [p.shape for p in before.entry.parameters]
    assert after.aliases == before.aliases
    arguments = arguments_for(before, seed, special=tolerance is None)
    expected, received = evaluate(before, arguments), evaluate(after, arguments)
    assert len(expected) == len(received)
    for one, other in zip(expected, received, strict=True):
        if tolerance is None or one.dtype.kind in "iub":
            assert_same_bits(one, other)
        else:
            np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=tolerance, atol=tolerance)


def opcodes(module: Module) -> Counter[str]:
    """Count of each opcode in the entry, parameters aside."""
    return Counter(i.opcode for i in module.entry.instructions if i.opcode != "parameter")


def alive(module: Module) -> list[str]:
    """The opcodes of all instructions that the root needs, operands first, without parameters and constants."""
    found: list[str] = []
    seen: set[Instruction] = set()
    stack = [(module.entry.root, False)]
    while stack:
        instruction, finished = stack.pop()
        if finished:
            found.append(instruction.opcode)
        elif instruction not in seen:
            seen.add(instruction)
            stack.append((instruction, True))
            stack += [(operand, False) for operand in reversed(instruction.operands)]
    return [opcode for opcode in found if opcode not in ("parameter", "constant")]
