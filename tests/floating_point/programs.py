"""Runs modules with a floating-point behaviour on the engine, and their definitions with the same seed."""

from __future__ import annotations

import numpy as np

from engine.compile import compile_module, prepare
from engine.evaluated_executable import EvaluatedExecutable
from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from engine.ir.floating_point import EXCEPTIONS, FloatingPoint
from engine.ops.generators import seed_rounding
from tests.engine.running import buffers

STOCHASTIC = FloatingPoint("on")
NAN = FloatingPoint(nan_on_overflow=True)
BOTH = FloatingPoint("on", nan_on_overflow=True)
ALL_EXCEPTIONS = FloatingPoint(exceptions=frozenset(EXCEPTIONS))
BEHAVIOURS = (STOCHASTIC, NAN, BOTH)


def run(
    module: Module, arguments: list[np.ndarray], floating_point: FloatingPoint, steps: int = 1, seed: int = 1
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The outputs of the last step and the variables after it; all parameters are variables."""
    executable = compile_module(module, ["variable"] * len(arguments), {}, verify=True, floating_point=floating_point)
    seed_rounding(seed)
    held = buffers(arguments)
    outputs = executable.run(steps, [], held)
    return outputs, [buffer.read() for buffer in held]


def define(
    module: Module, arguments: list[np.ndarray], floating_point: FloatingPoint, steps: int = 1, seed: int = 1
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Runs a module by the NumPy definitions, as the engine lowers it."""
    prepared = prepare(module, verify=True, floating_point=floating_point)
    executable = EvaluatedExecutable(prepared, ["variable"] * len(arguments), {})
    seed_rounding(seed)
    held = buffers(arguments)
    outputs = executable.run(steps, [], held)
    return outputs, [buffer.read() for buffer in held]


def assert_same_bits(received: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """Asserts equal bits, except that any two NaN are equal."""
    assert len(received) == len(expected)
    for one, other in zip(received, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        nan = np.isnan(other.astype(np.float64))
        np.testing.assert_array_equal(np.isnan(one.astype(np.float64)), nan)
        words = np.dtype(f"u{one.dtype.itemsize}")
        np.testing.assert_array_equal(one.view(words)[~nan], other.view(words)[~nan])


def check_bits(
    module: Module, arguments: list[np.ndarray], floating_point: FloatingPoint, steps: int = 1
) -> list[np.ndarray]:
    """Asserts that engine and definitions give the same bits; returns the outputs and variables."""
    received, expected = (f(module, arguments, floating_point, steps) for f in (run, define))
    for one, other in zip(received, expected, strict=True):
        assert_same_bits(one, other)
    return [*received[0], *received[1]]


def loop(b: Builder, iterations: int, state: list[Instruction], body: object) -> list[Instruction]:
    """Builds a loop of `iterations` iterations of `body(builder, state) -> state`; returns the state afterwards."""
    count = b.constant(0, "s32")
    initial = b.tuple(count, *state)
    inside = Builder("body")
    parameter = inside.parameter_of(initial.shape)
    parts = [inside.get_tuple_element(parameter, k) for k in range(1 + len(state))]
    following = inside.add(parts[0], inside.constant(1, "s32"))
    after = body(inside, parts[1:])  # type: ignore[operator]
    inside.tuple(following, *after)
    condition = Builder("condition")
    asked = condition.get_tuple_element(condition.parameter_of(initial.shape), 0)
    condition.compare(asked, condition.constant(iterations, "s32"), "LT")
    called = (inside.build(), condition.build())
    result = b.instruction("while", initial.shape, (initial,), called)
    return [b.get_tuple_element(result, k) for k in range(1, 1 + len(state))]
