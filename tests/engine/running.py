"""Runs modules with the fast executable and compares what it gives with what the op definitions give."""

from __future__ import annotations

import numpy as np

from engine.compile import compile_module
from engine.evaluate import EvaluatedExecutable, evaluate
from engine.ir import Module, Shape, shape_of
from engine.runtime.buffers import DeviceBuffer

HALF_DIGITS = {"float16": 1e-3, "bfloat16": 8e-3}


def random_array(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Small ordinary numbers, so that sums lose little."""
    if shape.element_type == "pred":
        return rng.integers(0, 2, shape.dimensions).astype(bool)
    if shape.dtype.kind in "iu":
        low = 0 if shape.dtype.kind == "u" else -9
        return rng.integers(low, 10, shape.dimensions).astype(shape.dtype)
    return np.asarray(rng.normal(size=shape.dimensions)).astype(shape.dtype)


def arguments_for(module: Module, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [random_array(rng, p.array_shape) for p in module.entry.parameters]


def buffers(values: list[np.ndarray]) -> list[DeviceBuffer]:
    made = [DeviceBuffer(shape_of(v)) for v in values]
    for buffer, value in zip(made, values, strict=True):
        buffer.write(value)
    return made


def fast(module: Module, arguments: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """One step with all parameters as variables: the outputs, and the variables afterwards."""
    executable = compile_module(module, ["variable"] * len(arguments), {}, verify=True)
    held = buffers(arguments)
    outputs = executable.run(1, [], held)
    return outputs, [h.read() for h in held]


def slow(module: Module, arguments: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The same with the op definitions."""
    executable = EvaluatedExecutable(module, ["variable"] * len(arguments), {})
    held = buffers(arguments)
    with np.errstate(all="ignore"):
        outputs = executable.run(1, [], held)
    return outputs, [h.read() for h in held]


def check(module: Module, arguments: list[np.ndarray] | None = None, tolerance: float = 1e-5) -> None:
    """Fast and slow agree: exactly for integers, else within `tolerance` of the result's magnitude."""
    arguments = arguments_for(module) if arguments is None else arguments
    with np.errstate(all="ignore"):
        expected = evaluate(module, arguments)
    results, _ = fast(module, arguments)
    assert len(results) == len(expected)
    for result, value in zip(results, expected, strict=True):
        assert_near(result, value, tolerance)


def assert_near(result: np.ndarray, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(result, expected)
        return
    tolerance = max(tolerance, HALF_DIGITS.get(expected.dtype.name, 0.0))
    wide = expected.astype(np.float64)
    finite = np.abs(wide[np.isfinite(wide)])
    scale = float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(result.astype(np.float64), wide, rtol=tolerance, atol=tolerance * scale)


def ulps(result: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """How many numbers of their type lie between two arrays; 0 between NaNs, and between 0 and -0."""
    signed = np.dtype(f"i{expected.dtype.itemsize}")
    places = [_place(np.ascontiguousarray(x).view(signed).astype(object)) for x in (result, expected)]
    with np.errstate(all="ignore"):
        nans = [np.isnan(x.astype(np.float64)) for x in (result, expected)]
    distance = np.where(nans[0] & nans[1], 0, abs(places[0] - places[1]))
    return np.where(nans[0] ^ nans[1], np.iinfo(np.int64).max, distance)


def _place(bits: np.ndarray) -> np.ndarray:
    width = 8 if bits.size == 0 else max(8, max(int(b).bit_length() for b in bits.reshape(-1)) + 1)
    del width
    return bits
