"""Random Keras 3 models in training: python -m tests.fuzz.models --count 100 [--seed S]

After three steps all weights and slots are compared with those of the same model in float64 on Keras alone. The engine
may be further from these than Keras in the model's own types is, but not by much; counts and scales equal Keras'.
"""

from __future__ import annotations

import argparse
import copy
import faulthandler
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402

from engine.errors import UnsupportedOperation  # noqa: E402
from ipu.ipu_strategy import IPUStrategy  # noqa: E402
from tests.fuzz.keras_models import RandomModel  # noqa: E402

HANGS_SECONDS = 1800
FACTOR = 8
"""Largest multiple of Keras' distance from float64 that the engine's may be: both round at random."""
FLOOR = {"float32": 2e-4, "mixed_float16": 2e-2, "mixed_bfloat16": 6e-2}
"""Negligible errors, relative to an array's largest number and to the change that a step may make."""
STEP = 0.02
VANISHING = 1e-12
"""Relative size in float64 below which slots belong to gradients that are zero except for rounding."""


def check(random: RandomModel) -> str:
    """Returns "same", "refused", or a text with the difference."""
    truth = _trained(random, "float64", None)
    keras_alone = _trained(random, random.policy, None)
    if _scale(truth) != _scale(keras_alone) or not _finite(truth):
        truth = keras_alone
    try:
        received = _trained(random, random.policy, IPUStrategy())
    except UnsupportedOperation as error:
        return f"refused: {error}"
    if list(received) != list(keras_alone):
        return f"other variables: {sorted({*received} ^ {*keras_alone})}"
    if not (found := differences(random.policy, received, keras_alone, truth)):
        return "same"
    if random.policy != "float32" and _is_rounding(random, found, received, keras_alone):
        return "same"
    # XLA selects zeros where TensorFlow's kernels multiply by zero, so NaN spreads otherwise.
    by_xla = _trained(random, random.policy, None, jit_compile=True)
    if not _finite(by_xla):
        truth = by_xla
    found = differences(random.policy, received, by_xla, truth)
    if found and random.policy == "float32" and _is_cancellation(random, found, received, truth):
        return "same"
    return "\n".join(found) or "same"


def _is_rounding(
    random: RandomModel, found: list[str], received: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> bool:
    """Whether the variables differ from Keras' no more than when inputs are rounded to 16 bits.

    This accepts overflows that a run in float64 cannot have, and gradients near zero of which an optimizer only takes
    signs.
    """
    size = 2.0**-11 if random.policy == "mixed_float16" else 2.0**-8
    left, signs = {line.partition(":")[0] for line in found}, np.random.default_rng(random.seed + 3)
    for _ in range(0 if random.tokens else 4):
        nudged = copy.copy(random)
        nudged.x = (random.x * (1 + signs.choice([-1, 1], size=random.x.shape) * size)).astype(np.float32)
        beyond = differences(random.policy, received, _trained(nudged, random.policy, None), expected)
        left &= {line.partition(":")[0] for line in beyond}
    return not left


def _is_cancellation(
    random: RandomModel, found: list[str], received: dict[str, np.ndarray], truth: dict[str, np.ndarray]
) -> bool:
    """Whether all differences found are rounding errors of values that cancel, as gradients through constants do.

    The engine then agrees with Keras where both compute in float64, and errors are small beside the largest number of
    the same slot of any variable. Where a gradient vanishes its rounding errors are all that an optimizer normalises:
    they may be as large as steps are.
    """
    exact = _trained(random, "float64", IPUStrategy())
    largest: dict[str, float] = {}
    for path, value in truth.items():
        largest[_slot(path)] = max(largest.get(_slot(path), 0.0), _most(value))
    vanishes = any(
        _most(value) <= VANISHING * largest[_slot(path)] and _most(received[path]) > 1e3 * _most(value)
        for path, value in truth.items()
    )
    differing = {line.partition(":")[0] for line in found}

    def bound(path: str, in_float64: bool) -> float:
        most = largest[_slot(path)]
        if in_float64:
            return 1e-7 * (most + STEP)
        return (3 * STEP * (1 + most)) if vanishes else 1e-3 * (most + STEP)

    return all(
        _most(each[path] - value) <= bound(path, each is exact)
        for path, value in truth.items()
        for each in (exact, received)
        if each is exact or path in differing
    )


def _most(values: np.ndarray) -> float:
    return float(np.abs(values).max(initial=0))


def _slot(path: str) -> str:
    """The optimizer's slot that a path names, such as "gradient_accumulator"; of other paths, the last word."""
    words = path.rpartition("_")
    return "gradient_accumulator" if path.endswith("gradient_accumulator") else words[2] or path


def differences(
    policy: str, received: dict[str, np.ndarray], expected: dict[str, np.ndarray], truth: dict[str, np.ndarray]
) -> list[str]:
    """A line for each variable that is too far from `truth`, though Keras in the model's own types comes near it."""
    noise = _noise(expected, truth)
    lines = (difference(policy, path, received[path], expected[path], truth[path], noise) for path in expected)
    return [line for line in lines if line]


def _noise(expected: dict[str, np.ndarray], truth: dict[str, np.ndarray]) -> float:
    """The mean over variables of Keras' error in the model's own types, relative to the largest number."""
    errors = []
    for path, value in expected.items():
        finite = np.isfinite(value) & np.isfinite(truth[path])
        largest = float(np.abs(np.where(finite, truth[path], 0)).max(initial=0))
        if largest > 0:
            errors.append(min(1.0, float(np.abs(np.where(finite, value - truth[path], 0)).max(initial=0)) / largest))
    return float(np.mean(errors)) if errors else 0.0


def _scale(state: dict[str, np.ndarray]) -> list[float]:
    return [float(value) for path, value in state.items() if path.endswith("dynamic_scale")]


def _finite(state: dict[str, np.ndarray]) -> bool:
    return all(np.isfinite(value).all() for value in state.values())


def _trained(
    random: RandomModel, policy: str, strategy: IPUStrategy | None, jit_compile: bool = False
) -> dict[str, np.ndarray]:
    """Weights and slots after three steps, by number and end of path, which are the same in all runs."""
    keras.backend.clear_session()
    with _floats_of("float64" if policy == "float64" else "float32"):
        model = _fitted(random, policy, strategy, jit_compile)
    variables = [*model.weights, *model.optimizer.variables]
    return {
        f"{number} {each.path.rpartition('/')[2]}": np.asarray(each.value.numpy()).astype(np.float64)
        for number, each in enumerate(variables)
        if "seed" not in each.path
    }


@contextmanager
def _floats_of(name: str) -> Iterator[None]:
    """Computes losses and regularizers in a `floatx` of Keras, while open."""
    before = keras.config.floatx()
    keras.config.set_floatx(name)
    try:
        yield
    finally:
        keras.config.set_floatx(before)


def _fitted(random: RandomModel, policy: str, strategy: IPUStrategy | None, jit_compile: bool) -> keras.Model:
    with nullcontext() if strategy is None else strategy.scope():
        alone = {"jit_compile": True} if jit_compile else {"run_eagerly": True, "jit_compile": False}
        options = alone if strategy is None else {"steps_per_execution": random.steps, "jit_compile": False}
        model = _compiled(random, policy, **options)
        model.fit(random.x, random.y, batch_size=random.batch, shuffle=False, verbose=0)
    return model


def _compiled(random: RandomModel, policy: str, **options: Any) -> keras.Model:
    model, optimizer = random.model(policy), random.optimizer()
    if policy == "float64" and random.policy == "mixed_float16" and not hasattr(optimizer, "inner_optimizer"):
        # Keras wraps the other optimizer, which gives its slots other paths.
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer=optimizer, loss="mse", **options)
    return model


def difference(
    policy: str, path: str, received: np.ndarray, expected: np.ndarray, truth: np.ndarray, noise: float = 0.0
) -> str:
    """Describes a difference; `expected` is from Keras in the model's types, `truth` from Keras in float64.

    `noise` is Keras' relative error elsewhere in the model: in 16 bits, and where updates take a sign, an array that
    Keras gets right may be so by chance.
    """
    if received.shape != expected.shape:
        return f"{path}: {list(received.shape)}, not {list(expected.shape)}"
    if not np.array_equal(np.isfinite(received), np.isfinite(expected)):
        return f"{path}: {(~np.isfinite(received)).sum()} not finite, {(~np.isfinite(expected)).sum()} of Keras"
    name = path.partition(" ")[2]
    if name in ("iteration", "step_counter", "dynamic_scale"):
        return "" if np.array_equal(received, expected) else f"{path}: {received}, not {expected}"
    finite = np.isfinite(expected) & np.isfinite(truth)
    mine, theirs = (float(np.abs(np.where(finite, x - truth, 0)).max(initial=0)) for x in (received, expected))
    largest = float(np.abs(np.where(finite, truth, 0)).max(initial=0))
    if mine <= FACTOR * max(theirs, noise * largest) + FLOOR[policy] * (largest + STEP):
        return ""
    return f"{path}: off by {mine:.2g} where Keras is off by {theirs:.2g}, of at most {largest:.2g}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.models", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many models")
    parser.add_argument(
        "--seed", type=int, help="of the first model; the next has the next. By default another each time"
    )
    arguments = parser.parse_args()
    first = int(time.time()) % 1_000_000 * 1000 if arguments.seed is None else arguments.seed
    print(f"seeds {first} to {first + arguments.count - 1}", flush=True)
    ends: Counter[str] = Counter()
    gc.freeze()  # Keras collects garbage before each model: a fifth of the time with what was imported
    start = time.perf_counter()
    for done, seed in enumerate(range(first, first + arguments.count), 1):
        faulthandler.dump_traceback_later(HANGS_SECONDS, exit=True)
        random = RandomModel(seed)
        try:
            end = check(random)
        except Exception as error:  # every error is a fault, and the next model is tried
            end = f"{error!r:.200} {error!s:.400}"
        kind = end.partition(":")[0] if end == "same" or end.startswith("refused") else "FAILED"
        ends[kind] += 1
        if kind != "same":
            print(f"{kind} --count 1 --seed {seed}: {random}\n{end:.1200}", flush=True)
        if done % 10 == 0 or done == arguments.count:
            print(f"{done}: {dict(ends)}, {(time.perf_counter() - start) / done:.1f} s each", flush=True)
        gc.collect()
    faulthandler.cancel_dump_traceback_later()
    return 1 if ends["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
