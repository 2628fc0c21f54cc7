"""Variables of the device, and which of their copies, TensorFlow's and the engine's, has the newest value."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.framework import func_graph, ops
from tensorflow.python.ops import resource_variable_ops

from engine.runtime.buffers import DeviceBuffer
from engine.runtime.execution_locks import execution_lock, found_lock, holding
from ipu._internal.compiler.executing import check_assignable
from ipu._internal.compiler.handles import HostValue
from ipu._internal.compiler.variable_handles import handles_of_one_name
from ipu._internal.function_code import wraps
from ipu._internal.types import TensorLike

T = TypeVar("T")
# Both Keras run layers symbolically in graphs with this in their name; nothing in them is ever executed.
SYMBOLIC_GRAPH = "scratch_graph"


class _Tracing(threading.local):
    """The variables, by handle, that this thread's trace uses, and the one whose own operation runs now."""

    used: dict[int, IPUVariable] | None = None
    watcher: Callable[[IPUVariable], None] | None = None
    inside: IPUVariable | None = None


_tracing = _Tracing()


@contextlib.contextmanager
def engine_trace() -> Iterator[dict[int, IPUVariable]]:
    """Traces a step for the engine, while the context is open: collects its variables by the id of their handle."""
    outer, _tracing.used = _tracing.used, {}
    try:
        yield _tracing.used
    finally:
        _tracing.used = outer


def tracing() -> bool:
    """Whether this thread is tracing a step for the engine."""
    return _tracing.used is not None


def used_with(handles: Collection[int]) -> list[IPUVariable]:
    """The variables used by the current trace whose handles have these ids."""
    return [variable for handle, variable in (_tracing.used or {}).items() if handle in handles]


@contextlib.contextmanager
def watching_reads(watcher: Callable[[IPUVariable], None]) -> Iterator[None]:
    """Calls `watcher` with each variable that this thread reads outside of functions, while the context is open."""
    outer, _tracing.watcher = _tracing.watcher, watcher
    try:
        yield
    finally:
        _tracing.watcher = outer


def _in_function() -> bool:
    """Whether operations are added to a function, and not executed, as `init_scope` does even within a function."""
    return ops.inside_function() and not context.executing_eagerly()


def in_symbolic_graph() -> bool:
    """Whether Keras is inferring the shapes of a layer's outputs, inside a trace or not."""
    graph = ops.get_default_graph() if ops.inside_function() else None
    while isinstance(graph, func_graph.FuncGraph):
        # A function's graph may have the same name, and has a signature from the start.
        if SYMBOLIC_GRAPH in graph.name and graph.structured_input_signature is None:
            return True
        graph = graph.outer_graph
    return False


class IPUVariable(resource_variable_ops.ResourceVariable):
    """A resource variable with a host copy (TensorFlow's) and a device copy (the engine's).

    The engine takes `device_buffer()` and calls `device_written()` after it has updated it. This class sees all reads
    and assignments but those by the handle. Once the handle has escaped, as to a TensorFlow function that captures it,
    each execution first compares the host copy with what it was, and copies its updates back to it.
    """

    _host_is_valid = True
    _device_is_valid = False
    escaped = False
    """Whether the handle has left this class. It stays true, as TensorFlow may keep the handle unseen."""
    _buffer: DeviceBuffer | None = None
    _ipu_device: str | None = None
    written_by: object = None
    """The run of a program that has written the newest value; None for a value that may be from elsewhere."""

    def _init_from_args(self, *arguments: Any, **named: Any) -> None:
        with handles_of_one_name():
            super()._init_from_args(*arguments, **named)

    def device_buffer(self, present: Any = None) -> DeviceBuffer:
        """The device copy, holding the newest value; the caller holds the lock, as executions do.

        `present` as for `HostValue.copied_to`.
        """
        if self.escaped or not self._device_is_valid:
            self._upload(present)
        assert self._buffer is not None
        return self._buffer

    def device_written(self, run: object = None) -> None:
        """Notes that `run` has written the newest value, which only the device copy holds now."""
        self._device_is_valid, self._host_is_valid, self.written_by = True, False, run
        if self.escaped:
            self._fetch()
            self.written_by = None

    def _upload(self, present: Any = None) -> None:
        if not self._host_is_valid:
            self._fetch()
            present = None
        if not self._device_is_valid:
            self.host.forget()
        self._buffer = self.host.copied_to(self._buffer, present)
        self._device_is_valid = True

    @property
    def execution_lock(self) -> threading.RLock:
        """The lock that an execution with this variable holds; reads in other threads wait for its end."""
        return execution_lock(self)

    @property
    def lock_holder(self) -> Any:
        """The object that holds the lock."""
        return self

    def _alone(self) -> contextlib.AbstractContextManager[Any]:
        """Keeps other threads' executions from using the variable, while the context is open."""
        lock = found_lock(self)
        return contextlib.nullcontext() if lock is None else holding(lock)

    def _fetch(self) -> None:
        with self._alone():
            if not self._host_is_valid:
                assert self._buffer is not None
                self.host.replace(self._buffer.value)
                self._host_is_valid = True

    @cached_property
    def host(self) -> HostValue:
        """The host copy."""
        return HostValue(self._raw_handle)

    @property
    def _handle(self) -> Any:
        """The handle, which TensorFlow's eager operations take from here, in C, to read the variable."""
        if _tracing.inside is not self and not _in_function():
            if _tracing.watcher is not None:
                _tracing.watcher(self)
            self._fetch()
        return self._raw_handle

    @_handle.setter
    def _handle(self, handle: TensorLike) -> None:
        self._raw_handle = handle
        handle._ipu_variable = weakref.ref(self)  # a variable that is gone has no device copy

    @property
    def handle(self) -> Any:
        """The host copy's handle. Outside of a function it escapes: TensorFlow may use it at any time."""
        if _tracing.inside is self:
            return self._raw_handle
        if not ops.inside_function():
            check_assignable(self)
            self.note_escape()
            return self._raw_handle
        if context.executing_eagerly():
            self._fetch()
        if _tracing.used is not None:
            _tracing.used[id(self._raw_handle)] = self
        return self._raw_handle

    @property
    def device(self) -> str:
        """The device the variable was created for."""
        return self._ipu_device or self._raw_handle.device

    def _distributed_container(self) -> IPUVariable:
        return self  # optimizers would look for it at the handle

    def note_escape(self) -> None:
        """Notes that the handle has left this class: from now on the host copy may be read and written unnoticed."""
        self.escaped = True  # before the fetch: an execution that ends meanwhile renews the host copy itself
        self._fetch()
        self.written_by = None

    @contextlib.contextmanager
    def _own_use(self) -> Iterator[None]:
        """Lets this thread use the handle for an operation of this class, while the context is open."""
        outer, _tracing.inside = _tracing.inside, self
        try:
            yield
        finally:
            _tracing.inside = outer

    def _read(self, read: Callable[[], T]) -> T:
        """Runs a read of the host copy, which leaves the device copy valid."""
        if _in_function() or _tracing.inside is self:
            return read()
        if _tracing.watcher is not None:
            _tracing.watcher(self)
        with self._alone():  # the copy stays the newest meanwhile
            self._fetch()
            with self._own_use():
                return read()

    def _write(self, write: Callable[[], Any], read_value: bool) -> Any:
        """Runs an assignment to the host copy; one that fails changes neither copy."""
        if _in_function():
            return write()
        with self._alone():
            check_assignable(self)
            self.host.forget()
            with self._own_use():
                write()
            self._host_is_valid, self._device_is_valid, self.written_by = True, False, None
        return self._assigned() if read_value else None

    def _assigned(self) -> IPUVariable:
        made: Any = object.__new__(AssignedVariable)  # a call would make a variable
        made._original, made.__dict__ = self, self.__dict__
        return made

    def _update(self, write: Callable[[], Any], read_value: bool) -> Any:
        """Assigns a value computed from the present one, which no execution changes meanwhile."""
        if _in_function():
            return write()
        with self._alone():
            self._fetch()
            return self._write(write, read_value)

    def _write_to_device(self, value: TensorLike) -> bool:
        """Replaces the device copy by an array of its shape and dtype, for later fetches; returns whether it did."""
        with self._alone():
            check_assignable(self)
            if self._buffer is None or self.escaped or not isinstance(value, np.ndarray | np.generic):
                return False
            if value.shape != self._buffer.shape.dimensions or value.dtype != self._dtype.as_numpy_dtype:
                return False
            self._buffer.write(np.asarray(value))
            self._host_is_valid, self._device_is_valid, self.written_by = False, True, None
            return True

    def _read_variable_op(self, no_copy: bool = False) -> Any:
        return self._read(lambda: super(IPUVariable, self)._read_variable_op(no_copy))

    def sparse_read(self, indices: TensorLike, name: str | None = None) -> Any:
        """The rows at `indices`."""
        return self._read(lambda: super(IPUVariable, self).sparse_read(indices, name))

    def gather_nd(self, indices: TensorLike, name: str | None = None) -> Any:
        """The elements or slices at `indices`."""
        return self._read(lambda: super(IPUVariable, self).gather_nd(indices, name))

    def is_initialized(self, name: str | None = None) -> Any:
        """Whether the variable has a value."""
        return self._read(lambda: super(IPUVariable, self).is_initialized(name))

    def _restore_from_tensors(self, restored_tensors: dict[str, TensorLike]) -> Any:
        return self._write(lambda: super(IPUVariable, self)._restore_from_tensors(restored_tensors), True)

    def assign(
        self, value: TensorLike, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Replaces the value; raises ValueError when the shape differs."""
        if not _in_function():
            if self._write_to_device(value):
                return self._assigned() if read_value else None
            # The value may be computed from the variable itself, which must then be fetched first.
            value = ops.convert_to_tensor(value, dtype=self.dtype)
        return self._write(lambda: super(IPUVariable, self).assign(value, use_locking, name, read_value), read_value)

    def assign_add(
        self, delta: TensorLike, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Adds `delta` to the value."""
        return self._update(
            lambda: super(IPUVariable, self).assign_add(delta, use_locking, name, read_value), read_value
        )

    def assign_sub(
        self, delta: TensorLike, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtracts `delta` from the value."""
        return self._update(
            lambda: super(IPUVariable, self).assign_sub(delta, use_locking, name, read_value), read_value
        )


class AssignedVariable(IPUVariable):
    """A variable as eager assignments return it: of the same state, with the `op` of TensorFlow's results."""

    __slots__ = ("_original",)

    op = None

    @property
    def lock_holder(self) -> Any:
        """The object that holds the lock."""
        return self._original

    def _assigned(self) -> IPUVariable:
        return self


def variable_of(handle: Any) -> IPUVariable | None:
    """The variable that has this handle; None for another resource, and for a variable that is gone."""
    found: Callable[[], IPUVariable | None] = getattr(handle, "_ipu_variable", lambda: None)
    return found()


def only_for_programs() -> None:
    """Notes that the function traced now becomes a program of the engine, and is never called in TensorFlow."""
    ops.get_default_graph()._ipu_program = True


_from_func_graph = atomic_function.from_func_graph


@wraps(_from_func_graph)
def _noting_captures(name: str, graph: func_graph.FuncGraph, *arguments: Any, **named: Any) -> Any:
    """Makes a function of TensorFlow, and notes that the handles of the variables that it captures escape."""
    # A branch's or loop's captures are those of the function that it is in, too.
    is_inside = graph.is_control_flow_graph and isinstance(graph.outer_graph, func_graph.FuncGraph)
    if not is_inside and not getattr(graph, "_ipu_program", False):
        for captured, _ in graph.captures:
            if (variable := variable_of(captured)) is not None:
                variable.note_escape()
    return _from_func_graph(name, graph, *arguments, **named)


atomic_function.from_func_graph = _noting_captures
