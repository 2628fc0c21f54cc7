"""NaN stay NaN when rounded to bfloat16: those of arrays with any bits, and those that operations make or pass on."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from engine.emit.short_nans import PASSING, short_nans
from engine.ir import Module
from engine.ir.builder import Builder
from engine.program.nest import Nest
from engine.program.work.fused_loop import FusedLoop
from tests.emit.cases import EXACT_BINARY
from tests.exploring import sample
from tests.program.machine import machine_of

BF16 = np.dtype(ml_dtypes.bfloat16)
EVERY = np.arange(1 << 16, dtype=np.uint16)
NANS = EVERY[(EVERY & 0x7FFF) > 0x7F80].view(BF16)


def nest_of(module: Module, arrays: list[np.ndarray]) -> Nest:
    """The only nest of a module."""
    sets = machine_of(module, arrays).program.compute_sets
    (nest,) = (each.work.nest for each in sets if isinstance(each.work, FusedLoop))
    return nest


def operands_of(opcode: str) -> list[np.ndarray]:
    """Arrays of bfloat16: NaN in each operand beside infinities, zeros and numbers in others, and in all at once."""
    count = 3 if opcode == "clamp" else 2 if opcode in EXACT_BINARY or opcode == "select" else 1
    others = np.resize(np.array([np.inf, -np.inf, 0, -0.0, 1.5, -1.5, 700, np.nan], BF16), NANS.size)
    columns = [[NANS if turn in (at, count) else others for at in range(count)] for turn in range(count + 1)]
    return [np.concatenate(each) for each in zip(*columns, strict=True)]


@pytest.mark.parametrize("opcode", sample(sorted(PASSING - {"convert"}), 12))
def test_lower_halves_of_nan_are_zero(opcode: str) -> None:
    """Every operation runs in float32 on numbers that were bfloat16."""
    arrays, builder = operands_of(opcode), Builder()
    chosen = [np.arange(arrays[0].size) % 2 == 0] * (opcode == "select")
    parameters = [builder.parameter("pred", each.shape) for each in chosen]
    parameters += [builder.convert(builder.parameter("bf16", each.shape), "f32") for each in arrays]
    result = builder.elementwise(opcode, *parameters)
    with np.errstate(all="ignore"):
        (wide,) = machine_of(builder.module(), [*chosen, *arrays]).run()
    bits = wide.view(np.uint32)[np.isnan(wide)]
    assert bits.size > 0 and not (bits & 0xFFFF).any()
    builder.convert(result, "bf16")
    module = builder.module()
    nest = nest_of(module, [*chosen, *arrays])
    assert len(nest.nodes) - 1 in short_nans(nest)
    (rounded,) = machine_of(module, [*chosen, *arrays]).run()
    np.testing.assert_array_equal(np.isnan(rounded.astype(np.float32)), np.isnan(wide))


@pytest.mark.parametrize("opcode", ["convert", "add", "negate", "maximum"])
def test_nan_of_float32_with_any_bits(opcode: str) -> None:
    """A carry from the lower half would make a zero or an infinity of many of them."""
    random = np.random.default_rng(0)
    bits = random.integers(0x7F800001, 0x80000000, 999) | (random.integers(0, 2, 999) << 31)
    bits[:4] = 0xFFFFFFFF, 0x7FFFFFFF, 0x7F800001, 0x7FFF8000
    array, builder = bits.astype(np.uint32).view(np.float32), Builder()
    x = builder.parameter("f32", array.shape)
    if opcode != "convert":
        x = builder.elementwise(opcode, *[x] * (2 if opcode in EXACT_BINARY else 1))
    builder.convert(x, "bf16")
    (result,) = machine_of(builder.module(), [array]).run()
    assert np.isnan(result.astype(np.float32)).all()
