"""Runs a tf.function on the engine: one program for each of its concrete functions."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import function_type_utils, polymorphic_function

from engine.ir.device_operations import is_collective
from engine.runtime.feeds import RowFeed
from ipu._device import current_system
from ipu.compiler.baking import Baked, bake, compilable
from ipu.compiler.function_trace import function_trace
from ipu.compiler.program import Program
from ipu.compiler.refusals import ShapeFromValues
from ipu.compiler.trace import TracedStep, bind
from ipu.compiler.variables import IPUVariable, engine_trace


class EngineFunction:
    """A tf.function traced for the engine, with the programs of its concrete functions.

    Integer scalars on which shapes depend become constants, each value with a program of its own.
    """

    def __init__(self, function: polymorphic_function.Function) -> None:
        self._compiled = compilable(function)
        self._programs: dict[tuple[int, int], tuple[Any, Program]] = {}
        self._shaped_by_values: dict[int, Any] = {}
        self._baked: dict[tuple[Any, ...], Baked] = {}
        self._used: dict[int, IPUVariable] = {}
        self._version = current_system().version
        self._lock = threading.RLock()

    def __call__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        ordinal: int,
        check: Callable[[Any], None] | None = None,
    ) -> Any:
        """The function's result for these arguments on /device:IPU:<ordinal>, as tensors; `check` sees it before."""
        arguments = tf.nest.map_structure(_as_tensor, (args, kwargs))
        with self._lock:
            arguments, concrete, program = self._prepared(arguments, ordinal, check)
        bound = function_type_utils.canonicalize_function_inputs(
            *arguments, self._compiled.function_type, self._compiled._default_values
        )
        bound = concrete.function_type.bind(*bound.args, **bound.kwargs)
        flat = concrete.function_type.unpack_inputs(bound)
        feeds = [RowFeed(np.ascontiguousarray(np.asarray(value))) for value in flat]
        feeds = [RowFeed(feed.array[None]) if feed.array.ndim == 0 else feed for feed in feeds]
        with _device_locks[ordinal]:
            results = program.run(1, feeds)
        return program.pack([tf.constant(result) for result in results])

    def _prepared(self, arguments: Any, ordinal: int, check: Callable[[Any], None] | None) -> tuple[Any, Any, Program]:
        """The arguments as the function takes them, the concrete function for them, and its program."""
        concrete = self._concrete(arguments)
        if check is not None:
            check(concrete.structured_outputs)
        if id(concrete) not in self._shaped_by_values:
            try:
                return arguments, concrete, self._program(concrete, ordinal)
            except ShapeFromValues:
                if self._compiled.input_signature is not None or bake(arguments, self._baked) is None:
                    raise
                self._shaped_by_values[id(concrete)] = concrete
        arguments = bake(arguments, self._baked)
        concrete = self._concrete(arguments)
        return arguments, concrete, self._program(concrete, ordinal)

    def concrete(self, arguments: Any) -> tuple[Any, dict[int, IPUVariable]]:
        """The concrete function for (args, kwargs), and the variables by handle that `bind` asks for."""
        return self._concrete(arguments), self._used

    def _concrete(self, arguments: Any) -> Any:
        args, kwargs = arguments
        with engine_trace() as used, function_trace():
            concrete = self._compiled.get_concrete_function(*args, **kwargs)
        self._used.update(used)
        return concrete

    def _program(self, concrete: Any, ordinal: int) -> Program:
        system = current_system()
        if self._version != system.version:
            self._programs.clear()
            self._version = system.version
        key = (id(concrete), ordinal)
        if key not in self._programs:
            traced = for_replicas(bind(concrete, self._used), system.device(ordinal).replicas())
            self._programs[key] = (concrete, Program(traced))
        return self._programs[key][1]


class _Locks(dict[int, threading.RLock]):
    """One for each device: a device runs one program at a time."""

    def __missing__(self, ordinal: int) -> threading.RLock:
        return self.setdefault(ordinal, threading.RLock())


_device_locks = _Locks()
_functions: weakref.WeakKeyDictionary[Any, EngineFunction] = weakref.WeakKeyDictionary()


def call_on_engine(
    function: polymorphic_function.Function,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    ordinal: int = 0,
    check: Callable[[Any], None] | None = None,
) -> Any:
    """Calls a tf.function on the engine; the same function and shapes twice is one compilation."""
    if function not in _functions:
        _functions[function] = EngineFunction(function)
    return _functions[function](args, kwargs, ordinal, check)


def refuse_doubles(structure: Any) -> None:
    """Raises TypeError for tensors and arrays of 64-bit floats; Python's own numbers are constants."""
    for value in tf.nest.flatten(structure):
        if getattr(value, "dtype", None) == tf.float64 and isinstance(value, np.ndarray | np.generic | tf.Tensor):
            raise TypeError(
                "Unsupported data type for input/output: float64. Expected float32, float16, int32 or bool. "
                "Received: a tensor of 64-bit floats. Cast it with tf.cast(x, tf.float32)."
            )


def for_replicas(traced: TracedStep, replicas: int) -> TracedStep:
    """The step for that many replicas, which exchange what its collective operations say."""
    collective = any(is_collective(i) for c in traced.module.computations() for i in c.instructions)
    if replicas == 1 and not collective:
        return traced
    # The engine's passes load Numba, which takes long: not before there is a program.
    from ipu.compiler.replication import replicated

    return replicated(traced, replicas)


def _as_tensor(value: Any) -> Any:
    return tf.constant(value) if isinstance(value, np.ndarray | np.generic) else value
