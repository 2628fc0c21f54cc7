"""Small training steps with marks, and their results in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.ir import Module
from engine.ir.builder import Builder
from engine.partition.accumulation import Accumulation
from engine.partition.marks import GRADIENT, mark_config

ROLES = ["feed", "feed", "feed", "variable", "variable", "variable", "variable", "variable", "variable", "constant"]
X, TARGET, SCALE, WEIGHTS, ITERATION, TOTAL, MEAN, SEED, ITERATIONS, RATE = range(10)
ONCE, METRICS, RANDOM = {ITERATION}, {TOTAL}, {SEED}
SHARPNESS = 0.25


def mark(b: Builder, gradient, name: str = "weights", accumulator: str | None = None):
    return b.instruction(
        "custom-call",
        gradient.shape,
        (gradient,),
        custom_call_target=GRADIENT,
        backend_config=mark_config(name, accumulator),
        custom_call_has_side_effect=False,
    )


def linear_step(batch: int, inputs: int, outputs: int, accumulator: str | None = None) -> Module:
    """Least squares with a scale for each batch, a moving mean of the inputs, noise from a seed and a count.

    Results: the mean of the inputs, weights, iteration, total, moving mean, seed, turns, the rate used.
    """
    b = Builder("step")
    x, target = b.parameter("f32", (batch, inputs)), b.parameter("f32", (batch, outputs))
    scale = b.parameter("f32")
    weights, iteration = b.parameter("f32", (inputs, outputs)), b.parameter("s64")
    total, moving = b.parameter("f32"), b.parameter("f32", (inputs,))
    seed, iterations, rate = b.parameter("s32"), b.parameter("s64"), b.parameter("f32")
    zero = b.constant(0.0)
    mean = b.divide(b.reduce(x, zero, (0,)), b.splat(batch, (inputs,)))
    drawn = b.convert(b.elementwise("remainder", seed, b.constant(7, "s32")), "f32")
    noise = b.broadcast(b.add(drawn, b.convert(iterations, "f32")), (inputs, outputs), ())
    error = b.subtract(b.dot(x, weights), target)
    gradient = b.add(b.dot(b.transpose(x, (1, 0)), error), b.add(noise, b.broadcast(mean, (inputs, outputs), (0,))))
    gradient = b.multiply(gradient, b.broadcast(scale, (inputs, outputs), ()))
    loss = b.reduce(b.multiply(error, error), zero, (0, 1))
    marked = mark(b, gradient, accumulator=accumulator)
    step = b.multiply(rate, b.convert(b.add(iteration, b.constant(1, "s64")), "f32"))
    update = b.elementwise("tanh", b.multiply(marked, b.splat(SHARPNESS, (inputs, outputs))))
    new_weights = b.subtract(weights, b.multiply(b.broadcast(step, (inputs, outputs), ()), update))
    new_moving = b.add(b.multiply(moving, b.splat(0.75, (inputs,))), b.multiply(mean, b.splat(0.25, (inputs,))))
    one = b.constant(1, "s64")
    results = b.tuple(
        mean,
        new_weights,
        b.add(iteration, one),
        b.add(total, loss),
        new_moving,
        b.add(seed, b.constant(3, "s32")),
        b.add(iterations, one),
        step,
    )
    aliases = {WEIGHTS: 1, ITERATION: 2, TOTAL: 3, MEAN: 4, SEED: 5, ITERATIONS: 6}
    return b.module(results, aliases)


@dataclass
class State:
    """The variables of `linear_step`; moving means and iterations are those of all replicas."""

    weights: np.ndarray
    iteration: int
    total: float
    moving: np.ndarray
    seed: int
    iterations: np.ndarray


def numpy_update(
    state: State, x: np.ndarray, target: np.ndarray, scale: np.ndarray, rate: float, accumulation: Accumulation
) -> tuple[State, np.ndarray]:
    """The state after an update from arrays [micro-batches, ...], by replicas, and the mean of the last inputs."""
    gradients: list[list[np.ndarray]] = [[] for _ in range(accumulation.replicas)]
    total, moving, seed, iterations = state.total, state.moving.copy(), state.seed, state.iterations.copy()
    for i in range(accumulation.micro_batches):
        replica = i % accumulation.replicas
        mean = x[i].mean(0)
        error = x[i] @ state.weights - target[i]
        gradients[replica].append((x[i].T @ error + seed % 7 + iterations[replica] + mean[:, None]) * scale[i])
        total += (error**2).sum()
        moving[replica] = moving[replica] * 0.75 + mean * 0.25
        seed += 3
        iterations[replica] += 1
    divisor = 1 if accumulation.reduction == "sum" else accumulation.steps
    summed = sum(sum(of_one) / divisor for of_one in gradients)
    step = rate * (state.iteration + 1)
    weights = state.weights - step * np.tanh(summed * SHARPNESS)
    return State(weights, state.iteration + 1, total, moving, seed, iterations), mean
