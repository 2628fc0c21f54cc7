"""Packages of classes and functions, found by what Python has loaded: a program's class may claim any module's name."""

from __future__ import annotations

import functools
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

import tensorflow as tf

LIBRARIES = frozenset({*sys.stdlib_module_names, "tensorflow", "numpy", "keras_ext", "ipu", "engine"})
KERAS = frozenset({"keras", "tf_keras"})
OF_PYTHON = sysconfig.get_path("stdlib")
_SYMBOLIC = ("keras.src.backend.common", "tf_keras.src.engine")
HEAP_TYPE = 1 << 9
"""CPython's flag of classes that are made at run time, Py_TPFLAGS_HEAPTYPE."""


def packages_of(named: Any) -> set[str]:
    """The package of a class; those of a function and of the functions that it wraps; else that of an object's class.

    A package is "" where no loaded module has the class under its name, or the function's variables, as for those that
    a function or `exec` makes, and where a file of the program has the name of one of Python's modules.
    """
    named = getattr(named, "__func__", named)
    if not isinstance(named, types.FunctionType):
        return {_package_of_class(named if isinstance(named, type) else type(named))}
    found = set()
    while isinstance(named, types.FunctionType):
        variables = named.__globals__
        name = variables.get("__name__") or ""
        found.add(_package(name) if vars(sys.modules.get(name, types)) is variables else "")
        named = vars(named).get("__wrapped__")
    return found


def is_of_tf_keras(model: object) -> bool:
    """Whether a model is one of tf_keras, which is not imported for the question."""
    loaded = sys.modules.get("tf_keras")
    return loaded is not None and isinstance(model, loaded.Model)


def is_symbolic(value: object) -> bool:
    """Whether a value is a tensor of a traced function, or one from which Keras makes functional models."""
    loaded = (sys.modules.get(f"{package}.keras_tensor") for package in _SYMBOLIC)
    return tf.is_symbolic_tensor(value) or isinstance(value, tuple(each.KerasTensor for each in loaded if each))


def is_programs(named: Any) -> bool:
    """Whether a class or a function, or one that it wraps, is of no library and not of Keras."""
    return not packages_of(named) <= LIBRARIES | KERAS


def users_own(kind: type, name: str) -> bool:
    """Whether the method that a class has under a name is not from Keras or TensorFlow."""
    owner = next((base for base in kind.__mro__ if name in vars(base)), None)
    if owner is None:
        return False
    method = vars(owner)[name]
    named = method if isinstance(method, types.FunctionType) else owner
    return is_programs(named) or not packages_of(named) & {*KERAS, "tensorflow"}


def _package_of_class(kind: type) -> str:
    if not kind.__flags__ & HEAP_TYPE:
        return _package(kind.__module__)
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    return _package(kind.__module__) if found is kind else ""


@functools.cache
def _package(module: str) -> str:
    """The package of a module; "" for a file of the program's that has the name of one of Python's modules."""
    name = module.partition(".")[0]
    file = getattr(sys.modules.get(name), "__file__", None) if name in sys.stdlib_module_names else None
    return name if file is None or Path(file).is_relative_to(OF_PYTHON) else ""
