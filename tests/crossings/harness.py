"""Harness that runs a program of Keras in one mode and notes visible results; it stands alone, and begins reports."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tensorflow as tf

from tests.crossings.micro_batches import Device, MicroBatches, part

MODES = ("scope", "block", "call", "copy")
"""`IPUStrategy.scope()`, `with ipu.accelerate():`, `ipu.accelerate()` and `ipu.accelerate(model)`."""
HOOKS = (
    "train_begin",
    "train_end",
    "epoch_begin",
    "epoch_end",
    "test_begin",
    "test_end",
    "predict_begin",
    "predict_end",
)
BATCH_HOOKS = tuple(f"{mode}_batch_{when}" for mode in ("train", "test", "predict") for when in ("begin", "end"))


class Notes:
    """Results of a program in one mode: a list of (label, value). `f` is the float type of data and models."""

    def __init__(self, K: Any, mode: str, f: str = "float32") -> None:
        self.K, self.mode, self.f = K, mode, f
        self.is_keras3 = K.__name__ == "keras"
        self.items: list[tuple[str, Any]] = []
        self._folder = tempfile.TemporaryDirectory()
        self._number = 0
        self._device: Device | None = None

    def __call__(self, label: str, action: Callable[[], Any], default: Any = None) -> Any:
        """The result of an action; notes it, or the class of the error."""
        try:
            result = action()
        except (Exception, KeyboardInterrupt) as error:
            self.items.append((label, Raised(error)))
            return default
        self.items.append((label, plain(result)))
        return result

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """The context in which a program makes its models."""
        if self.mode == "scope":
            from tensorflow.python import ipu

            of_processes = self._device.strategy if self._device else None
            with (of_processes or ipu.ipu_strategy.IPUStrategy()).scope():
                yield
        elif self.mode == "block":
            from tensorflow.python import ipu

            with ipu.accelerate():
                yield
        else:
            yield

    def device(self, samples: int, rows: int, **settings: Any) -> int:
        """The samples of all replicas for as many updates as there are batches of `rows` rows in `samples`."""
        self._device = Device(rows, **settings)
        if self.mode == "scope":
            self._device.configure()
        return samples // rows * self._device.update

    def rows(self, x: Any, y: Any) -> tuple[Any, Any, int, int, int]:
        """The rows of this process, their number, and the rows of a batch and of an update."""
        assert self._device is not None
        if self.mode != "plain":
            x, y = tf.nest.map_structure(self._device.mine, (x, y))
        update = self._device.update if self.mode == "plain" else self._device.own_update
        return x, y, len(tf.nest.flatten(x)[0]), update if self.mode == "plain" else self._device.rows, update

    def steps(self, updates: int) -> int:
        """The steps of an execution of so many updates."""
        return 1 if self.mode == "plain" or self._device is None else updates * self._device.accumulate

    def on_device(self, model: Any) -> Any:
        """Sets the device's options for a model; plain Keras gets steps that do the same."""
        if self._device is not None and self.mode == "plain":
            MicroBatches(model, self._device)
        elif self._device is not None:
            self._device.set_options(model)
        return model

    def own(self, predicted: Any) -> Any:
        """The predictions for the rows of the first process."""
        is_all = self.mode == "plain" and self._device is not None
        return tf.nest.map_structure(self._device.mine, predicted) if is_all else predicted

    def owned(self, model: Any) -> Any:
        """The model that the rest of a program works with."""
        if self.mode != "copy":
            return model
        from tensorflow.python import ipu

        return ipu.accelerate(model)

    def path(self, ending: str) -> str:
        """A path at which no file or folder exists yet."""
        self._number += 1
        return os.path.join(self._folder.name, f"{self._number}{ending}")

    def log(self, hooks: tuple[str, ...], label: str) -> Any:
        """A callback with these hooks that notes each call."""

        def method(hook: str) -> Callable[..., None]:
            if hook.startswith(("epoch", *BATCH_HOOKS)):
                return lambda _, number, logs=None: self.items.append((f"{label} {hook}", plain([number, logs])))
            return lambda _, logs=None: self.items.append((f"{label} {hook}", plain(logs)))

        return type("Log", (self.K.callbacks.Callback,), {f"on_{hook}": method(hook) for hook in hooks})()

    def state(self, label: str, model: Any) -> None:
        """Notes weights, slots, counters, metrics' state and flags of a model."""
        values: dict[str, Any] = {"weights": [np.asarray(w) for w in model.get_weights()]}
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None:
            variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
            values["slots"] = {f"{n} {_last(v)}": np.asarray(v) for n, v in enumerate(variables) if not _is_seed(v)}
            values["iterations"] = int(np.asarray(optimizer.iterations))
            values["learning rate"] = plain(optimizer.learning_rate)
        metrics = model.metrics if getattr(model, "compiled", optimizer is not None) else []
        if self._device is None:
            values["metrics"] = [[m.name, [np.asarray(v) for v in m.variables if not _is_seed(v)]] for m in metrics]
        else:  # Keras 3 counts samples where it knows their number, otherwise batches
            values["metrics"] = [[m.name, m.result()] for m in metrics]
        values["trainable"] = [layer.trainable for layer in model.layers if layer.weights]
        values["stop_training"] = bool(getattr(model, "stop_training", False))
        self.items.append((label, plain(values)))

    def close(self) -> None:
        """Deletes the files."""
        self._folder.cleanup()


class Raised:
    """An error, as its class and base classes."""

    def __init__(self, error: BaseException) -> None:
        self.classes = [kind.__name__ for kind in type(error).__mro__]
        self.text = str(error)

    def __repr__(self) -> str:
        return f"{self.classes[0]}: {' '.join(self.text.split())[:200]}"


def _last(variable: Any) -> str:
    path = getattr(variable, "path", None) or variable.name
    return path.rpartition("/")[2].partition(":")[0].rpartition("_")[2]


def _is_seed(variable: Any) -> bool:
    return "seed_generator" in str(getattr(variable, "path", ""))


def plain(value: Any) -> Any:
    """Nested dicts and lists of arrays, numbers and strings."""
    if hasattr(value, "history") and hasattr(value, "epoch"):
        return {"history": plain(value.history), "epoch": list(value.epoch)}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if value is None or isinstance(value, bool | int | str | bytes | Raised):
        return value
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    if isinstance(value, float | np.ndarray | np.generic | tf.Tensor | tf.Variable) or hasattr(value, "numpy"):
        return np.asarray(value)
    return type(value).__name__


@functools.cache
def numbers(K: Any) -> Any:
    """The class of an initializer that draws the same numbers in each Keras, mode and float type."""
    saving = getattr(K, "saving", None) or K.utils

    @saving.register_keras_serializable("crossings")
    class Numbers(K.initializers.Initializer):
        def __init__(self, seed: int) -> None:
            self.seed = seed

        def __call__(self, shape: Any, dtype: Any = None, **_: Any) -> Any:
            shape = tuple(int(n) for n in shape)
            drawn = np.random.default_rng(self.seed).normal(size=shape).astype(np.float32)
            return tf.constant(
                drawn / np.float32(np.sqrt(np.prod(shape[:-1]) if shape else 1)), dtype or K.backend.floatx()
            )

        def get_config(self) -> dict[str, int]:
            return {"seed": self.seed}

    return Numbers


def set_policy(K: Any, name: str) -> None:
    """Sets the dtype policy of layers."""
    K.mixed_precision.set_global_policy(name)


def rows(structure: Any, begin: int, end: int) -> Any:
    """Rows of a structure as an element of data, in which Keras 3 takes no lists."""
    return tuple(tuple(each) if isinstance(each, list) else each for each in part(structure, begin, end))


@contextlib.contextmanager
def _without_notices() -> Iterator[None]:
    """Logs only errors, while the context is open."""
    loggers = [logging.getLogger(name) for name in ("ipu", "tensorflow")]
    levels = [each.level for each in loggers]
    try:
        for each in loggers:
            each.setLevel(logging.ERROR)
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)


@contextlib.contextmanager
def _jitted(K: Any) -> Iterator[None]:
    """Lets Keras compile all models with XLA, while the context is open."""
    original = K.Model.compile

    def compile(model: Any, *arguments: Any, **named: Any) -> None:
        original(model, *arguments, **{**named, "jit_compile": not named.get("run_eagerly", False)})

    K.Model.compile = compile
    try:
        yield
    finally:
        K.Model.compile = original


def run(
    program: Callable[[Any, Notes, str], None], K: Any, mode: str, f: str = "float32", in_xla: bool = False
) -> list[tuple[str, Any]]:
    """The results that `program(K, note, f)` notes in a mode; "plain" is Keras alone, in XLA if wanted."""
    from tensorflow.python import ipu

    note, floats = Notes(K, mode, f), K.backend.floatx()
    K.backend.clear_session()
    K.backend.set_floatx(f)
    set_policy(K, f)
    K.utils.set_random_seed(1)
    acceleration = ipu.accelerate() if mode == "call" else contextlib.nullcontext()
    jitted = _jitted(K) if in_xla else contextlib.nullcontext()
    with warnings.catch_warnings(), _without_notices(), acceleration, jitted:
        warnings.simplefilter("ignore")
        try:
            program(K, note, f)
        except (Exception, KeyboardInterrupt) as error:
            note.items.append(("the program", Raised(error)))
        finally:
            K.backend.set_floatx(floats)
            set_policy(K, floats)
            note.close()
    return note.items
