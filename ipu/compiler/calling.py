"""Runs a tf.function on the engine: one program for each of its concrete functions."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import function_type_utils, polymorphic_function

from engine.runtime.feeds import RowFeed
from ipu.compiler.program import Program
from ipu.compiler.trace import bind
from ipu.compiler.variables import IPUVariable, engine_trace


class EngineFunction:
    """A tf.function traced for the engine, with the programs of its concrete functions."""

    def __init__(self, function: polymorphic_function.Function) -> None:
        self._compiled = tf.function(
            function.python_function,
            input_signature=function.input_signature,
            autograph=function._autograph,
            jit_compile=True,
            reduce_retracing=False,
        )
        self._programs: dict[Any, tuple[Any, Program]] = {}
        self._used: dict[int, IPUVariable] = {}

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function's result for these arguments, as tensors."""
        args, kwargs = tf.nest.map_structure(_as_tensor, (args, kwargs))
        with engine_trace() as used:
            concrete = self._compiled.get_concrete_function(*args, **kwargs)
        self._used.update(used)
        if id(concrete) not in self._programs:
            self._programs[id(concrete)] = (concrete, Program(bind(concrete, self._used)))
        program = self._programs[id(concrete)][1]
        bound = function_type_utils.canonicalize_function_inputs(
            args, kwargs, concrete.function_type, self._compiled._default_values
        )
        flat = concrete.function_type.unpack_inputs(bound)
        feeds = [RowFeed(np.ascontiguousarray(np.asarray(value))) for value in flat]
        feeds = [RowFeed(feed.array[None]) if feed.array.ndim == 0 else feed for feed in feeds]
        return program.pack([tf.constant(result) for result in program.run(1, feeds)])


_functions: weakref.WeakKeyDictionary[Any, EngineFunction] = weakref.WeakKeyDictionary()


def call_on_engine(function: polymorphic_function.Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a tf.function on the engine; the same function and shapes twice is one compilation."""
    if function not in _functions:
        _functions[function] = EngineFunction(function)
    return _functions[function](args, kwargs)


def _as_tensor(value: Any) -> Any:
    return tf.constant(value) if isinstance(value, np.ndarray | np.generic) else value
