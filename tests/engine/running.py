"""Execution of modules by the fast executable, compared with the op definitions."""

from __future__ import annotations

import numpy as np

from engine.compile import build_program, compile_module
from engine.debug import DebugExecutable
from engine.evaluate import evaluate
from engine.evaluated_executable import EvaluatedExecutable
from engine.ir import Module, Shape, shape_of
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.executable import Executable
from tests.program.machine import Machine

HALF_DIGITS = {"float16": 1e-3, "bfloat16": 8e-3}


def random_array(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Small ordinary numbers, so that sums lose little."""
    if shape.element_type == "pred":
        return rng.integers(0, 2, shape.dimensions).astype(bool)
    if shape.dtype.kind in "iu":
        low = 0 if shape.dtype.kind == "u" else -9
        return rng.integers(low, 10, shape.dimensions).astype(shape.dtype)
    if shape.dtype.kind == "c":
        return np.asarray(rng.normal(size=(*shape.dimensions, 2)) @ [1, 1j]).astype(shape.dtype)
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
    """Runs a module with the op definitions."""
    executable = EvaluatedExecutable(module, ["variable"] * len(arguments), {})
    held = buffers(arguments)
    with np.errstate(all="ignore"):
        outputs = executable.run(1, [], held)
    return outputs, [h.read() for h in held]


def check(module: Module, arguments: list[np.ndarray] | None = None, tolerance: float = 1e-5) -> None:
    """Definitions and engine agree: exactly for integers, else within `tolerance` of the result's magnitude.

    The engine runs the program three times: unit by unit, last unit first, in guarded memory; as it really does; and
    on the debug executor, which must give the same bits.
    """
    arguments = arguments_for(module) if arguments is None else arguments
    with np.errstate(all="ignore"):
        expected = evaluate(module, arguments)
    program = build_program(module, ["variable"] * len(arguments), {}, verify=True)
    one_by_one = Machine(program, dict(enumerate(arguments))).run(lambda units: reversed(range(units)))
    results = Executable(program).run(1, [], buffers(arguments))
    assert len(results) == len(one_by_one) == len(expected)
    for result, careful, value in zip(results, one_by_one, expected, strict=True):
        assert_near(careful, value, tolerance)
        assert_near(result, value, tolerance)
    debugged = DebugExecutable(program).run(1, [], buffers(arguments))
    assert [each.tobytes() for each in debugged] == [each.tobytes() for each in results]


def assert_near(result: np.ndarray, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(result, expected)
        return
    tolerance = max(tolerance, HALF_DIGITS.get(expected.dtype.name, 0.0))
    widest = np.complex128 if expected.dtype.kind == "c" else np.float64
    wide = expected.astype(widest)
    finite = np.abs(wide[np.isfinite(wide)])
    scale = float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(result.astype(widest), wide, rtol=tolerance, atol=tolerance * scale)


def ulps(result: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Count of numbers of their type between two arrays; 0 between NaNs, and between 0 and -0."""
    distance = abs(_places(result) - _places(expected))
    nans = [np.isnan(x.astype(np.float64)) for x in (result, expected)]
    distance = np.where(nans[0] & nans[1], 0, distance)
    return np.where(nans[0] ^ nans[1], 2**63 - 1, distance)


def _places(x: np.ndarray) -> np.ndarray:
    """Neighbouring floats become neighbouring integers."""
    signed = np.dtype(f"i{x.dtype.itemsize}")
    bits = np.ascontiguousarray(x).view(signed)
    wide = bits.astype(object if x.dtype.itemsize == 8 else np.int64)
    return np.where(bits < 0, -(wide & np.iinfo(signed).max), wide)
