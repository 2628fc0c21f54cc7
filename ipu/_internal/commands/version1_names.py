"""Names of TensorFlow 1, and packages of its time, that today's lack: a few lines each, with a notice when used."""

from __future__ import annotations

import collections.abc
import contextlib
import functools
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow.compat.v1 as v1
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

from ipu._internal.commands.version1_contrib import contrib
from ipu._internal.commands.version1_namespace import Namespace
from ipu._internal.types import Variable

_noticed: set[str] = set()
_quiet = False
NUMPY = {"bool": bool, "complex": complex, "float": float, "int": int, "long": int, "object": object, "str": str}
"""Names that NumPy had for Python's own types."""
MODULES = {
    "tensorflow.python.distribute.distribution_strategy_context": "tensorflow.python.distribute.distribute_lib",
    "tensorflow.python.training.distribution_strategy_context": "tensorflow.python.distribute.distribute_lib",
    "tensorflow.python.training.gen_training_ops": "tensorflow.python.ops.gen_training_ops",
    "tensorflow.python.training.training_ops": "tensorflow.python.ops.gen_training_ops",
    "tensorflow.python.training.tracking": "tensorflow.python.trackable",
    "tensorflow.python.training.tracking.base": "tensorflow.python.trackable.base",
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
    """Gives packages names again that they had: NumPy, `collections`, resource variables and options of data sets."""
    for name in set(vars(collections.abc)) - set(vars(collections)):
        setattr(collections, name, getattr(collections.abc, name))
    missing = [name for name in NUMPY if name not in vars(np)]
    for name in missing:
        setattr(np, name, NUMPY[name])
    notice(f"each of numpy's {', '.join(missing)}", "Python's type of that name")
    v1.data.Options.experimental_stats = SimpleNamespace()  # of statistics, which are not gathered
    BaseResourceVariable.initialized_value = _initialized_value


def _initialized_value(variable: Variable) -> tf.Tensor:
    with tf.init_scope():  # as initial values of other variables need it, outside of the function being traced
        return v1.cond(variable.is_initialized(), variable.read_value, lambda: variable.initial_value)


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


@functools.cache
def data() -> ModuleType:
    """`tf.data`, with statistics that are not gathered."""
    experimental = v1.data.experimental
    named = {name: getattr(experimental, name) for name in dir(experimental) if not name.startswith("_")}
    kinds = dict.fromkeys(("bytes_produced_stats", "latency_stats"), lambda tag: lambda dataset: dataset)
    statistics = Namespace("tf.data.experimental", **named, **kinds, StatsAggregator=StatsAggregator)
    return Namespace("tf.data", v1.data, experimental=statistics)


class StatsAggregator:
    """Statistics of tf.data, which TensorFlow gathers no longer: the summary is empty."""

    def __init__(self) -> None:
        notice("tf.data.experimental.StatsAggregator", "empty: TensorFlow gathers no statistics")

    def get_summary(self) -> Any:
        """An empty summary, as a tensor of text."""
        return v1.constant("", v1.string)
