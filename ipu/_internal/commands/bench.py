"""A user's own model on the engine and by plain Keras: epochs of both, interleaved, and the ratio with its spread."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import ConfigurationError, IPUError
from ipu import accelerate
from ipu._internal.types import Nest

STEPS = 32
"""Steps per execution, as many as `accelerate` chooses."""


def bench(name: str, batch_size: int, samples: int, rounds: int) -> int:
    """Prints the comparison; returns 1 if the model cannot be built, falls back to plain Keras, or has no data.

    Keras runs the model as the function compiles it, and with as many steps in an execution as the engine.
    """
    try:
        make = loaded(name)
        with accelerate() as acceleration:
            fast, x, y = made(make, samples)
        contenders = {"engine": fast, "Keras": made(make, samples)[0], f"Keras, {STEPS} steps": made(make, samples)[0]}
        models = list(contenders.values())
        for model in models[1:]:
            model.set_weights(fast.get_weights())
        _set_steps(models[2])
        first = [_seconds(model, x, y, batch_size) for model in models]
    except IPUError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if acceleration.fallbacks:
        print(f"The engine refuses this model: {acceleration.fallbacks[0].reason}", file=sys.stderr)
        return 1
    times = np.array([[_seconds(model, x, y, batch_size) for model in models] for _ in range(rounds)])
    count = len(_leaves(x)[0])
    print(f"{count} samples, batch {batch_size}, {rounds} interleaved epochs of each\n")
    print(f"{'':18}{'samples/s':>12}{'first epoch':>14}   engine is faster by")
    for number, title in enumerate(contenders):
        ratios = np.sort(times[:, number] / times[:, 0])
        spread = f"{np.median(ratios):8.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})" if number else ""
        print(f"{title:18}{count / np.median(times[:, number]):12,.0f}{first[number]:12.2f} s   {spread}".rstrip())
    return 0


def _set_steps(model: Any) -> None:
    if hasattr(model, "steps_per_execution"):
        model.steps_per_execution = STEPS
    else:
        model._configure_steps_per_execution(STEPS)  # tf_keras


def loaded(name: str) -> Callable[[], Any]:
    """The function of FILE:FUNCTION; raises ConfigurationError for a name that has none."""
    file, colon, function = name.rpartition(":")
    path = Path(file)
    if not colon or not path.is_file():
        missing = "such a file" if colon else "a function"
        raise ConfigurationError(f"Expected FILE:FUNCTION, as in model.py:make. Received: {name}, without {missing}.")
    sys.path.insert(0, str(path.parent.resolve()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, function, None)):
        known = ", ".join(
            key for key, value in vars(module).items() if callable(value) and value.__module__ == path.stem
        )
        raise ConfigurationError(f"Expected a function of {file}: {known or 'it has none'}. Received: {function!r}.")
    return getattr(module, function)


def made(make: Callable[[], Any], samples: int) -> tuple[Any, Nest, Nest]:
    """A compiled model and data: the function's own, or random ones for the model's inputs and outputs."""
    result = make()
    model, x, y = result if isinstance(result, tuple) else (result, None, None)
    if getattr(model, "optimizer", None) is None:
        raise ConfigurationError(
            "Expected a model that is compiled with a loss and an optimizer. Received: one that is not."
        )
    if x is None:
        x, y = random_data(model, samples)
    return model, x, y


def random_data(model: Any, samples: int) -> tuple[Nest, Nest]:
    """Inputs between 0 and 1, and outputs of zeros, which suit regressions and class labels alike.

    Raises ConfigurationError for a model whose input shapes are not known.
    """
    inputs = getattr(model, "inputs", None)
    if not inputs or any(size is None for each in inputs for size in each.shape[1:]):
        raise ConfigurationError(
            "Expected a function that returns (model, x, y), or a model whose inputs have known shapes. Received: "
            f"{[tuple(each.shape) for each in inputs or ()]}. Return data, too."
        )
    generator = np.random.default_rng(0)
    x = [generator.random((samples, *each.shape[1:])).astype(np.dtype(_dtype(each))) for each in inputs]
    losses = str(getattr(model.loss, "name", model.loss))
    of_labels = "sparse_categorical" in losses
    y = [np.zeros((samples, *each.shape[1 : -1 if of_labels else None]), np.float32) for each in model.outputs]
    return (x[0] if len(x) == 1 else x), (y[0] if len(y) == 1 else y)


def _dtype(tensor: Any) -> str:
    return getattr(tensor.dtype, "name", tensor.dtype)


def _leaves(data: Nest) -> list[Any]:
    values = data.values() if isinstance(data, dict) else data if isinstance(data, list | tuple) else [data]
    return list(values)


def _seconds(model: Any, x: Nest, y: Nest, batch_size: int) -> float:
    begin = time.perf_counter()
    model.fit(x, y, batch_size=batch_size, verbose=0)
    return time.perf_counter() - begin
