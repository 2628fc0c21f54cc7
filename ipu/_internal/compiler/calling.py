"""Runs a tf.function on the engine: one program for each of its concrete functions."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import function_type_utils, polymorphic_function
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

from engine.garbage import collector_paused
from engine.ir.device_operations import is_collective
from engine.runtime.execution_locks import holding
from engine.runtime.feeds import RowFeed
from ipu._internal.compiler.baking import Baked, GivenVariable, bake, baking_possible, compilable, with_given_variables
from ipu._internal.compiler.batch_norm import group_size
from ipu._internal.compiler.function_trace import function_trace
from ipu._internal.compiler.processes import processes_of, transport_of_functions
from ipu._internal.compiler.program import TracedProgram
from ipu._internal.compiler.random_numbers import drawn_by_xla
from ipu._internal.compiler.refusals import ShapeFromValues
from ipu._internal.compiler.storage import placed
from ipu._internal.compiler.trace import TracedStep, bind
from ipu._internal.compiler.variables import IPUVariable, engine_trace
from ipu._internal.config.system import current_system
from ipu._internal.processes.transport import Transport
from ipu._internal.recent_programs import RecentPrograms
from ipu._internal.types import Function, Nest, TensorLike


class EngineFunction:
    """A tf.function traced for the engine, with the programs of its concrete functions.

    Integer scalars on which shapes or schedules depend become constants, each value with a program of its own.
    """

    def __init__(self, function: polymorphic_function.Function) -> None:
        self._function = weakref.ref(function)  # it keeps this object alive, not the other way around
        self._is_jitted = bool(function._jit_compile)  # what it is compiled to always is
        self._given: dict[int, GivenVariable] = {}
        self._compiled, self._traced_for = compilable(function, self._given), _of_traces()
        self._programs: RecentPrograms[tuple[int, int], tuple[Any, TracedProgram]] = RecentPrograms()
        self._shaped_by_values: dict[int, Any] = {}
        self._always_bakes = False
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
        """The result on /device:IPU:<ordinal>, as tensors; `check` gets the traced outputs before compilation."""
        arguments = self._taken((args, kwargs))
        with self._lock:
            arguments, concrete, program = self._prepared(arguments, ordinal, check)
        bound = function_type_utils.canonicalize_function_inputs(
            *arguments, self._compiled.function_type, self._compiled._default_values
        )
        bound = concrete.function_type.bind(*bound.args, **bound.kwargs)
        flat = concrete.function_type.unpack_inputs(bound)
        results = run_on_device(program, flat, ordinal)
        return program.pack([tf.constant(result) for result in results])

    def program(self, args: tuple[Any, ...], kwargs: dict[str, Any], ordinal: int = 0) -> TracedProgram:
        """The program for these arguments, compiled if there is none yet."""
        with self._lock:
            return self._prepared(self._taken((args, kwargs)), ordinal, None)[2]

    def latest_program(self) -> TracedProgram | None:
        """The program compiled last; None before the first."""
        return next((program for _, program in reversed(self._programs.values())), None)

    def _prepared(
        self, arguments: Nest, ordinal: int, check: Callable[[Any], None] | None
    ) -> tuple[Any, Any, TracedProgram]:
        """The arguments as the function takes them, the concrete function for them, and its program."""
        arguments, concrete = self._traced(arguments)
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

    def _traced(self, arguments: Nest) -> tuple[Any, Any]:
        """The arguments, with integer scalars Baked if the trace needs values, and the concrete function for them."""
        may_bake = self._compiled.input_signature is None
        if not self._always_bakes:
            try:
                with baking_possible(may_bake and bake(arguments, self._baked) is not None):
                    return arguments, self._concrete(arguments)
            except ShapeFromValues:
                self._always_bakes = True
        arguments = bake(arguments, self._baked) or arguments
        return arguments, self._concrete(arguments)

    def step(self, arguments: Nest) -> TracedStep:
        """The step for (args, kwargs), as tensors. Raises as `bind`."""
        return self._bound(self._concrete(with_given_variables(arguments, self._given)))

    def _taken(self, arguments: Nest) -> Any:
        """The arguments with tensors in place of arrays, and without variables."""
        return with_given_variables(tf.nest.map_structure(_as_tensor, arguments), self._given)

    def _concrete(self, arguments: Nest) -> Any:
        args, kwargs = arguments
        function = self._function()
        present = _of_traces()
        if self._traced_for != present and function is not None:
            self._compiled, self._traced_for = compilable(function, self._given), present
        with engine_trace() as used, function_trace(self._traced_for[1]):
            concrete = self._compiled.get_concrete_function(*args, **kwargs)
        self._used.update(used)
        return concrete

    def _program(self, concrete: ConcreteFunction, ordinal: int) -> TracedProgram:
        system = current_system()
        if self._version != system.version:
            self._programs.clear()
            self._version = system.version
        key = (id(concrete), ordinal)
        found = self._programs.get(key)
        if found is None or not found[1].is_current:
            with collector_paused():
                traced = for_device(self._bound(concrete), ordinal, transport_of_functions())
                found = concrete, TracedProgram(traced)
                self._programs.add(key, found)
        return found[1]

    def _bound(self, concrete: ConcreteFunction) -> TracedStep:
        with drawn_by_xla.replaced_by(self._is_jitted):
            return bind(concrete, self._used)


class _Locks(dict[int, threading.RLock]):
    """A lock for each device: a device runs one program at a time."""

    def __missing__(self, ordinal: int) -> threading.RLock:
        return self.setdefault(ordinal, threading.RLock())


_device_locks = _Locks()


def run_on_device(program: TracedProgram, values: Iterable[TensorLike], ordinal: int) -> list[np.ndarray]:
    """The flat results of one step with these arguments, while the device runs no other program."""
    # NumPy cannot convert a scalar tensor of bfloat16.
    arrays = [np.ascontiguousarray(v.numpy() if isinstance(v, tf.Tensor) else v) for v in values]
    feeds = [RowFeed(array[None] if array.ndim == 0 else array) for array in arrays]
    with holding(_device_locks[ordinal]):
        return program.run(1, feeds)


_functions: weakref.WeakKeyDictionary[Any, EngineFunction] = weakref.WeakKeyDictionary()


def call_on_engine(
    function: polymorphic_function.Function,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    ordinal: int = 0,
    check: Callable[[Any], None] | None = None,
) -> Any:
    """Calls a tf.function on the engine; a function is compiled once for the same shapes."""
    if function not in _functions:
        _functions[function] = EngineFunction(function)
    return _functions[function](args, kwargs, ordinal, check)


def program_of_function(
    function: Function, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> TracedProgram | None:
    """The program of a function: for these arguments, compiled if there is none; without arguments, the latest one.

    A plain function becomes a tf.function. Without arguments, returns None if there is no program, or no function.
    """
    if args or kwargs:
        made = function if isinstance(function, polymorphic_function.Function) else tf.function(function)
        if made not in _functions:
            _functions[made] = EngineFunction(made)
        return _functions[made].program(args, kwargs or {})
    try:
        found = _functions.get(function)
    except TypeError:  # an object without weak references is not a function
        return None
    return None if found is None else found.latest_program()


def refuse_doubles(structure: Nest) -> None:
    """Raises TypeError for tensors and arrays of 64-bit floats; Python's own numbers are constants."""
    for value in tf.nest.flatten(structure):
        if getattr(value, "dtype", None) == tf.float64 and isinstance(value, np.ndarray | np.generic | tf.Tensor):
            raise TypeError(
                "Unsupported data type for input/output: float64. Expected float32, float16, int32 or bool. "
                "Received: a tensor of 64-bit floats. Cast it with tf.cast(x, tf.float32)."
            )


def _of_traces() -> tuple[int, bool]:
    """Settings on which a trace depends: the size of groups, and whether there may be several replicas.

    How many IPUs a replica takes is known only after its trace.
    """
    system = current_system()
    several = system.configured and any(device.ipus > 1 for device in system.devices)
    return group_size(), several or transport_of_functions() is not None


def for_device(traced: TracedStep, ordinal: int, transport: Transport | None = None) -> TracedStep:
    """The step for the replicas of a device, connected by its collective operations.

    Collectives span the processes of a `transport`. A replica takes one IPU, or as many as its pipelines need; if no
    IPUs have been configured, there is one replica.
    Raises ConfigurationError for IPUs that do not divide among replicas.
    """
    system = current_system()
    replicas = system.device(ordinal).replicas(traced.ipus if system.configured else 1)
    if traced.state is not None:
        storage = placed(traced.state.storage)
        shards = replicas if storage.replicated_optimizer_state_sharding else 1
        traced = replace(traced, storage=storage, state_shards=shards)
    collective = any(is_collective(i) for c in traced.module.computations() for i in c.instructions)
    processes = processes_of(traced.module, transport)
    if replicas == 1 and not collective and processes is None:
        return traced
    # The engine's passes load Numba, which takes long: imported only for a program.
    from ipu._internal.compiler.replication import replicated

    return replicated(traced, replicas, processes)


def _as_tensor(value: TensorLike) -> Any:
    return tf.constant(value) if isinstance(value, np.ndarray | np.generic) else value
