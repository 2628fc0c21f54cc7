"""Tests of 16-bit floats for infinities and NaN, as loss scaling makes them: at any place, for any size."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from engine.compile import compile_module
from engine.ir import Module, Shape
from engine.ir.builder import Builder
from tests.engine.running import buffers

TYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def module_of(element_type: str, elements: int, widens: bool) -> Module:
    """A module that tests whether all elements of an array are finite, perhaps after widening."""
    b, body = Builder(), Builder("both")
    x = b.parameter(element_type, (elements,))
    finite = b.elementwise("is-finite", b.convert(x, "f32") if widens else x)
    both = body.build(body.elementwise("and", body.parameter("pred"), body.parameter("pred")))
    operands = finite, b.constant(True, "pred")
    return b.module(b.instruction("reduce", Shape("pred"), operands, (both,), dimensions=(0,)))


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(("element_type", "elements"), [("f16", 20_005), ("f16", 70_001), ("bf16", 70_001)])
def test_finds_what_is_not_finite(
    element_type: str, elements: int, workers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", workers)
    kind = TYPES[element_type]
    executable = compile_module(module_of(element_type, elements, element_type == "f16"), ["variable"], {}, verify=True)
    largest = ml_dtypes.finfo(kind).max
    values = np.random.default_rng(0).normal(size=elements).astype(kind)
    values[:3] = largest, -largest, -0.0
    (held,) = buffers([values])
    assert executable.run(1, [], [held])[0]
    for number, place in enumerate((0, 1, 4094, 4097, elements // 2, elements - 2, elements - 1)):
        wrong = values.copy()
        wrong[place] = (np.inf, -np.inf, np.nan)[number % 3]
        held.write(wrong)
        assert not executable.run(1, [], [held])[0], place
