"""A random program: named inputs, and steps that are lines of TensorFlow source; it can be run, printed and cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from tests.fuzz import helpers

NAMES: dict[str, Any] = {"tf": tf, **{name: getattr(helpers, name) for name in helpers.__all__}}


@dataclass(frozen=True)
class Step:
    """One line `name = expression`, and how far a result may be off that was computed from the same operands.

    In units of the type's epsilon an element may be off by `ulps` times its magnitude, `terms` times the value of
    `magnitude` (the expression with all that is summed made positive, whose `terms` roundings bound the error of any
    order of summation), and `scale`.
    """

    name: str
    expression: str
    operands: tuple[str, ...]
    ulps: float = 0.0
    terms: float = 0.0
    magnitude: str = ""
    scale: float = 0.0


@dataclass(frozen=True)
class Program:
    """`inputs` by name; `results` are names of steps (or inputs); `differentiated` inputs get a gradient each."""

    seed: int
    inputs: dict[str, np.ndarray]
    steps: tuple[Step, ...]
    results: tuple[str, ...]
    differentiated: tuple[str, ...] = ()

    def function(self, *values: tf.Tensor) -> list[tf.Tensor]:
        """The results for the inputs' values, and after them the gradients of the sum of all that are floats."""
        env = dict(zip(self.inputs, values, strict=True))
        if not self.differentiated:
            return self._results(env)
        with tf.GradientTape() as tape:
            watched = [env[name] for name in self.differentiated]
            tape.watch(watched)
            results = self._results(env)
            loss = helpers.scalar_loss(results)
        gradients = tape.gradient(loss, watched, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [*results, *map(tf.convert_to_tensor, gradients)]

    def _results(self, env: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        for step in self.steps:
            env[step.name] = run_line(step.expression, env)
        return [tf.identity(env[name]) for name in self.results]

    def source(self) -> str:
        """A script's text, apart from the values of the inputs."""
        lines = [f"# seed {self.seed}"]
        lines += [f"# {name}: {x.dtype}{list(x.shape)}" for name, x in self.inputs.items()]
        lines += [f"{step.name} = {step.expression}" for step in self.steps]
        lines.append(f"# results: {', '.join(self.results)}")
        if self.differentiated:
            lines.append(f"# gradients of scalar_loss(results) for: {', '.join(self.differentiated)}")
        return "\n".join(lines)

    def cut(self, kept: Sequence[Step], values: dict[str, np.ndarray], results: Sequence[str]) -> Program:
        """The program of some of the steps: what others have computed becomes an input, with its value."""
        made = {step.name for step in kept}
        needed = dict.fromkeys(name for step in kept for name in step.operands)
        needed.update(dict.fromkeys(results))
        inputs = {name: values[name] for name in needed if name not in made}
        differentiated = tuple(name for name in self.differentiated if name in inputs)
        return replace(self, inputs=inputs, steps=tuple(kept), results=tuple(results), differentiated=differentiated)


def run_line(expression: str, env: dict[str, tf.Tensor]) -> Any:
    # Comprehensions and lambdas only see globals, so values are passed as such.
    return eval(expression, {**NAMES, **env})
