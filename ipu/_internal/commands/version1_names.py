"""Names of TensorFlow 1, and packages of its time, that today's lack: a few lines each, with a notice when used."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import tensorflow.compat.v1 as v1
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

from ipu._internal.types import TensorLike

_noticed: set[str] = set()
_quiet = False
NUMPY = {"bool": bool, "complex": complex, "float": float, "int": int, "long": int, "object": object, "str": str}
"""Names that NumPy had for Python's own types."""
MODULES = {
    "tensorflow.python.distribute.distribution_strategy_context": "tensorflow.python.distribute.distribute_lib",
    "tensorflow.python.keras.utils.data_utils": "tf_keras.src.utils.data_utils",
    "tensorflow.python.keras.preprocessing": "tf_keras.preprocessing",
    "tensorflow.python.keras.preprocessing.image": "tf_keras.preprocessing.image",
    "tensorflow.python.keras.preprocessing.sequence": "tf_keras.preprocessing.sequence",
    "tensorflow.python.keras.preprocessing.text": "tf_keras.preprocessing.text",
}
"""Modules that are elsewhere today."""


def notice(name: str, instead: str) -> None:
    """Prints once which object a name stands for."""
    if name not in _noticed and not _quiet:
        _noticed.add(name)
        print(f"python -m ipu.run --tf1: {name} is {instead}.", file=sys.stderr, flush=True)


@contextlib.contextmanager
def without_notices() -> Iterator[None]:
    """Looks names up without notices of their use, while the context is open."""
    global _quiet
    _quiet = True
    try:
        yield
    finally:
        _quiet = False


def restore_names() -> None:
    """Gives NumPy the names of Python's types again, and resource variables their initialized value."""
    missing = [name for name in NUMPY if name not in vars(np)]
    for name in missing:
        setattr(np, name, NUMPY[name])
    notice(f"numpy.{', '.join(missing)}", "Python's types of these names")
    BaseResourceVariable.initialized_value = lambda self: v1.cond(
        self.is_initialized(), self.read_value, lambda: self.initial_value
    )


def moved_module(name: str) -> ModuleType | None:
    """The module that has the names of one that is gone; None for all others."""
    if name not in MODULES:
        return None
    notice(name, MODULES[name])
    return import_module(MODULES[name])


def supplied(name: str) -> Any:
    """The replacement of a name at the top of `tensorflow`; None for a name that tf.compat.v1 has."""
    if name == "contrib":
        notice("tf.contrib", "a part of it alone, in today's TensorFlow")
        return contrib()
    if name == "pywrap_tensorflow":
        return import_module("tensorflow.python.pywrap_tensorflow")
    if name == "data":
        return data()
    return None


class _Namespace(ModuleType):
    """A module with these names, and with all names of another object."""

    def __init__(self, name: str, others: Any = None, **names: Any) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        vars(self).update(names)
        self._others = others

    def __getattr__(self, name: str) -> Any:
        if self._others is not None and not name.startswith("__"):
            return getattr(self._others, name)
        raise AttributeError(
            f"Expected a name of {self.__name__} that python -m ipu.run --tf1 supplies. Received: {name}."
        )


@functools.cache
def data() -> ModuleType:
    """`tf.data`, with statistics that are not gathered."""
    experimental = v1.data.experimental
    named = {name: getattr(experimental, name) for name in dir(experimental) if not name.startswith("_")}
    statistics = _Namespace("tf.data.experimental", **named, StatsAggregator=StatsAggregator)
    return _Namespace("tf.data", v1.data, experimental=statistics)


class StatsAggregator:
    """Statistics of tf.data, which TensorFlow gathers no longer: the summary is empty."""

    def __init__(self) -> None:
        notice("tf.data.experimental.StatsAggregator", "empty: TensorFlow gathers no statistics")

    def get_summary(self) -> Any:
        """An empty summary, as a tensor of text."""
        return v1.constant("", v1.string)


@functools.cache
def contrib() -> ModuleType:
    """`tf.contrib`: the part that programs for IPUs use."""
    ipu = import_module("ipu")
    layers = _Namespace(
        "tf.contrib.layers",
        flatten=v1.layers.flatten,
        fully_connected=fully_connected,
        l1_regularizer=lambda scale: lambda weights: scale * v1.reduce_sum(v1.abs(weights)),
        l2_regularizer=lambda scale: lambda weights: scale * v1.nn.l2_loss(weights),
        variance_scaling_initializer=variance_scaling_initializer,
        xavier_initializer=xavier_initializer,
        xavier_initializer_conv2d=xavier_initializer,
    )
    return _Namespace(
        "tf.contrib",
        data=_Namespace("tf.contrib.data", v1.data.experimental),
        framework=_Namespace("tf.contrib.framework", v1.train, nest=v1.nest),
        ipu=_Namespace("tf.contrib.ipu", ipu, python=ipu),
        layers=layers,
        rnn=_Namespace("tf.contrib.rnn", v1.nn.rnn_cell),
        training=_Namespace("tf.contrib.training", HParams=SimpleNamespace),
    )


def xavier_initializer(uniform: bool = True, seed: int | None = None, dtype: Any = v1.float32) -> Any:
    """Initial values by Glorot and Bengio."""
    kind = v1.glorot_uniform_initializer if uniform else v1.glorot_normal_initializer
    return kind(seed=seed, dtype=dtype)


def variance_scaling_initializer(
    factor: float = 2.0, mode: str = "FAN_IN", uniform: bool = False, seed: int | None = None, dtype: Any = v1.float32
) -> Any:
    """Initial values whose variance is `factor` by the number of inputs, of outputs, or the mean of both."""
    distribution = "uniform" if uniform else "truncated_normal"
    return v1.variance_scaling_initializer(factor, mode.lower(), distribution, seed=seed, dtype=dtype)


def fully_connected(
    inputs: TensorLike,
    num_outputs: int,
    activation_fn: Callable[..., Any] | None = v1.nn.relu,
    weights_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = v1.zeros_initializer(),  # noqa: B008
    scope: Any = None,
) -> Any:
    """A dense layer with variables `weights` and `biases`."""
    with v1.variable_scope(scope, "fully_connected", [inputs]):
        x = v1.convert_to_tensor(inputs)
        shape = [x.shape.as_list()[-1], num_outputs]
        initial = weights_initializer or xavier_initializer()
        weights = v1.get_variable("weights", shape, x.dtype, initial, weights_regularizer)
        result = v1.tensordot(x, weights, 1)
        if biases_initializer is not None:
            result += v1.get_variable("biases", [num_outputs], x.dtype, biases_initializer)
        return result if activation_fn is None else activation_fn(result)
