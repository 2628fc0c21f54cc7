"""Runs one instruction, or a whole computation, with the op definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.evaluate import evaluate
from engine.ir import Computation, Module, Shape, shape_of
from engine.ir.builder import Builder
from engine.ir.verifier import verify


def run(
    opcode: str,
    *operands: np.ndarray,
    called: Sequence[Computation] = (),
    result: Shape | None = None,
    **attributes: Any,
) -> np.ndarray:
    """The result of one verified instruction; `result` gives the shape where the operands do not determine it."""
    builder = Builder()
    parameters = [builder.parameter_of(shape_of(o)) for o in operands]
    builder.inferred(opcode, parameters, called, result, **attributes)
    return run_module(builder.module(), *operands)[0]


def run_module(module: Module, *arguments: np.ndarray) -> tuple[np.ndarray, ...]:
    """All results of a module that the verifier accepts."""
    verify(module)
    return evaluate(module, list(arguments))


def same(result: np.ndarray, expected: Any) -> None:
    """Asserts equal dtypes, shapes, NaN and signs of zeros."""
    expected = np.asarray(expected)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(result, expected)
    if expected.dtype.kind == "f":
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(result)[numbers], np.signbit(expected)[numbers])
