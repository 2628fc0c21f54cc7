"""Errors of models under mixed precision against float64, beside those of Keras under the same policy.

python -m benchmarks.half_accuracy [WORKLOAD ...]

Each way takes one step of gradient descent from equal weights on one batch, without dropout. The error is the root mean
square of the errors of all logits, and of all gradients, relative to the root mean square of the values in float64.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
SCALE = 256.0
"""The loss scale under float16: no gradient of these models overflows."""


def step(name: str, way: str, policy: str) -> tuple[np.ndarray, np.ndarray]:
    """The logits of a batch before a step, and the gradients: the changes of the weights at a rate of 1."""
    import keras

    from benchmarks import models
    from benchmarks.agreement import prepared
    from benchmarks.rivals.keras_fit import dtype_policy, loss_of, scope_of
    from benchmarks.workloads import WORKLOADS

    keras.backend.clear_session()
    workload = WORKLOADS[name]
    inputs, labels = workload.data(np.random.default_rng(0), workload.batch)
    keras.config.set_floatx("float64" if policy == "float64" else "float32")
    with scope_of(way), dtype_policy(policy):
        model = prepared(getattr(models, workload.model)(*workload.arguments))
        optimizer: Any = keras.optimizers.SGD(1.0)
        if policy == "mixed_float16":
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=SCALE)
        model.compile(optimizer, loss_of(workload), jit_compile=False)
        logits = model.predict(inputs, workload.batch, verbose=0)
        before = [np.asarray(v, np.float64) for v in model.trainable_variables]
        model.fit(inputs, labels, workload.batch, shuffle=False, verbose=0)
        after = [np.asarray(v, np.float64) for v in model.trainable_variables]
    gradients = [(b - a).ravel() for b, a in zip(before, after, strict=True)]
    return np.asarray(logits, np.float64).ravel(), np.concatenate(gradients)


def error(values: np.ndarray, exact: np.ndarray) -> float:
    """The root mean square of the errors, relative to the root mean square of the exact values."""
    return float(np.sqrt(np.mean((values - exact) ** 2) / np.mean(exact**2)))


def main(names: list[str]) -> None:
    """Print a table."""
    print("| model | policy | logits, Keras | ours | gradients, Keras | ours |\n|---|---|---|---|---|---|")
    for name in names:
        exact = step(name, "keras", "float64")
        for policy in POLICIES:
            ways = [step(name, way, policy) for way in ("keras", "ipu")]
            cells = [f"{error(way[part], exact[part]):.2g}" for part in (0, 1) for way in ways]
            print(f"| {name} | `{policy}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["mlp", "lenet", "encoder, 2 layers"])
