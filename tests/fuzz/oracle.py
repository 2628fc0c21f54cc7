"""Compare the engine with XLA: step by step if all values are known, else within the effects of rounding.

A program that returns all its values is compared step by step: XLA computes every step again from the engine's own
operands. So errors do not add up, and discontinuities (a comparison, a cast, a sort) have equal inputs on both sides.

For a program that returns only its last values, XLA computes these several times. Each time it shifts every step's
result at random by the error that the step may make: rounding explains the spread of the results. Elements for which
a shifted run takes another branch or another index may have any value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.fuzz.distances import EPSILON, distance, is_float, widened
from tests.fuzz.errors import allowed, with_errors
from tests.fuzz.helpers import scalar_loss
from tests.fuzz.program import Program, run_line
from tests.fuzz.runs import Different, compiled, on_engine

RUNS, MORE_RUNS = 4, 40


def check(program: Program) -> None:
    """Raises Different, RefusedByXLA, or whatever error the engine raises."""
    complete = {step.name for step in program.steps} <= {*program.results} and not program.differentiated
    (check_steps if complete else check_results)(program)


def check_steps(program: Program) -> None:
    """Compares every step on its own, computed by XLA from the engine's operands."""
    names = [*program.inputs, *program.results]

    def each(*values: tf.Tensor) -> Any:
        env = dict(zip(names, values, strict=True))
        results = [tf.identity(run_line(step.expression, env)) for step in program.steps]
        magnitudes = [tf.identity(run_line(step.magnitude, env)) for step in program.steps if step.terms]
        return [*results, *magnitudes]

    results = on_engine(program)
    by_name = dict(zip(program.results, results, strict=True))
    expected = compiled(each)(*program.inputs.values(), *results)
    magnitudes = iter(expected[len(program.steps) :])
    wrong = {}
    for step, value in zip(program.steps, expected, strict=False):
        magnitude = next(magnitudes) if step.terms else None
        tolerance = allowed(step, value, magnitude) if is_float(value) else np.zeros(value.shape)
        message = compare(by_name[step.name], value, tolerance)
        if message:
            wrong[step.name] = f"{step.name} = {step.expression}: {message}"
    if wrong:
        raise Different("\n".join(wrong.values()), tuple(wrong))


def check_results(program: Program) -> None:
    """Checks the results alone, within the effects of errors of single steps."""
    phases = np.random.default_rng(program.seed).normal(size=(MORE_RUNS + 1, len(program.steps)))
    phases[0] = 0
    shifted = compiled(lambda *values: _shifted_results(program, *values))
    inputs = list(program.inputs.values())
    expected = shifted(phases[0], *inputs)
    results = on_engine(program)
    spread = [np.zeros(x.shape) for x in expected]
    names = (*program.results, *(f"gradient for {name}" for name in program.differentiated))
    wrong: dict[str, str] = {}
    for number, phase in enumerate(phases[1:], 1):
        spread = [
            np.maximum(s, distance(x, e)) for s, x, e in zip(spread, shifted(phase, *inputs), expected, strict=True)
        ]
        if number < RUNS:
            continue
        triples = zip(names, results, expected, spread, strict=True)
        messages = {n: compare(x, e, _tolerance(program, n, e, s)) for n, x, e, s in triples}
        wrong = {name: message for name, message in messages.items() if message}
        if not wrong:
            return
    raise Different("\n".join(f"{n}: {message}" for n, message in wrong.items()), tuple(wrong))


def _shifted_results(program: Program, phases: tf.Tensor, *values: tf.Tensor) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        env = dict(zip(program.inputs, values, strict=True))
        watched = [env[name] for name in program.differentiated]
        tape.watch(watched)
        for number, step in enumerate(program.steps):
            env[step.name] = with_errors(step, env, phases[number])
        results = [tf.identity(env[name]) for name in program.results]
        loss = scalar_loss(results)
    gradients = tape.gradient(loss, watched, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return [*results, *map(tf.convert_to_tensor, gradients)]


def _tolerance(program: Program, name: str, expected: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Four times the spread, because a few runs do not reach its ends.

    A gradient sums over the paths to its input, and a shift can affect each of them. So it may also differ by one
    epsilon of the largest element for each step.
    """
    if not is_float(expected):
        return spread
    scale = np.abs(widened(expected))
    epsilon = EPSILON[expected.dtype.name]
    finite = scale[np.isfinite(scale)]
    extra = 16 * len(program.steps) * epsilon * finite.max() if name.startswith("gradient") and finite.size else 0
    return np.where(np.isfinite(spread), 4 * spread + np.where(np.isfinite(scale), scale, 0) * epsilon, np.inf) + extra


def compare(result: np.ndarray, expected: np.ndarray, tolerance: np.ndarray) -> str:
    """Describes a difference beyond the tolerance; empty if there is none."""
    if (result.dtype, result.shape) != (expected.dtype, expected.shape):
        return f"{result.dtype}{list(result.shape)} in place of {expected.dtype}{list(expected.shape)}"
    far = distance(result, expected)
    bad = (far > tolerance) | (np.isinf(far) & ~np.isinf(tolerance))
    if not bad.any():
        return ""
    where = np.unravel_index(int(np.argmax(np.where(bad, far, -1))), bad.shape)
    at = list(map(int, where))
    return (
        f"{int(bad.sum())} of {bad.size} elements, worst at {at}: {result[where]!r} in place of {expected[where]!r}, "
        f"allowed {tolerance[where]:.3g}"
    )
