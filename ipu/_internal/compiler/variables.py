"""Device variables: host reads fetch, host assignments invalidate, and uses by TensorFlow functions are tracked."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np
from tensorflow.python.eager import context
from tensorflow.python.framework import func_graph, ops
from tensorflow.python.ops import gen_resource_variable_ops, resource_variable_ops

from engine.ir import shape_of
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.execution_locks import execution_lock, found_lock, holding
from ipu._internal.compiler.executing import check_assignable
from ipu._internal.compiler.variable_handles import handles_of_one_name
from ipu._internal.types import TensorLike, Variable

T = TypeVar("T")
# Both Keras run layers symbolically in graphs with this in their name; nothing in them is ever executed.
SYMBOLIC_GRAPH = "scratch_graph"


class _Tracing(threading.local):
    """The variables, by handle, used by this thread's current trace; None outside a trace."""

    used: dict[int, IPUVariable] | None = None
    watcher: Callable[[IPUVariable], None] | None = None


_tracing = _Tracing()


@contextlib.contextmanager
def engine_trace() -> Iterator[dict[int, IPUVariable]]:
    """Within, a step is traced for the engine: collects its variables by the id of their handle."""
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
    """Calls `watcher` with each variable whose value this thread reads within, outside of any function."""
    outer, _tracing.watcher = _tracing.watcher, watcher
    try:
        yield
    finally:
        _tracing.watcher = outer


def in_symbolic_graph() -> bool:
    """Whether Keras is inferring the shapes of a layer's outputs, inside a trace or not."""
    graph = ops.get_default_graph() if ops.inside_function() else None
    while isinstance(graph, func_graph.FuncGraph):
        if SYMBOLIC_GRAPH in graph.name:
            return True
        graph = graph.outer_graph
    return False


class IPUVariable(resource_variable_ops.ResourceVariable):
    """A resource variable with a host copy (TensorFlow's) and a device copy (the engine's).

    The engine takes `device_buffer()` and calls `device_written()` after it has updated it. All other readers see the
    newest value; all other writers make the device copy stale. A TensorFlow function that captured the handle reads
    and writes unnoticed, so while one lives the variable is copied in before, and back after, each execution.
    """

    _host_is_valid = True
    _device_is_valid = False
    _known_use = False
    _buffer: DeviceBuffer | None = None
    _foreign_graphs: weakref.WeakSet[func_graph.FuncGraph] | None = None
    _ipu_device: str | None = None
    written_by: object = None
    """The run of a program that has written the newest value; None for a value from elsewhere."""

    def _init_from_args(self, *arguments: Any, **named: Any) -> None:
        with handles_of_one_name():
            super()._init_from_args(*arguments, **named)

    def device_buffer(self) -> DeviceBuffer:
        """The device copy, holding the newest value; the caller holds the lock, as executions do."""
        if self._buffer is None or not self._device_is_valid or self._foreign_graphs:
            self._upload()
        assert self._buffer is not None
        return self._buffer

    def device_written(self, run: object = None) -> None:
        """Notes that `run` has written the newest value, which only the device copy holds now."""
        self._device_is_valid, self._host_is_valid, self.written_by = True, False, run
        if self._foreign_graphs:
            self._fetch()
            self.written_by = None

    def _upload(self) -> None:
        self._fetch()
        value = np.asarray(gen_resource_variable_ops.read_variable_op(self._raw_handle, self._dtype).numpy())
        if self._buffer is None:
            self._buffer = DeviceBuffer(shape_of(value))
        self._buffer.write(value)
        self._device_is_valid = True

    @property
    def execution_lock(self) -> threading.RLock:
        """The lock that an execution with this variable holds; reads in other threads wait for its end."""
        return execution_lock(self)

    @property
    def lock_holder(self) -> Any:
        """The object whose lock it is."""
        return self

    def _alone(self) -> contextlib.AbstractContextManager[Any]:
        """Within, no other thread's execution uses the variable."""
        lock = found_lock(self)
        return contextlib.nullcontext() if lock is None else holding(lock)

    def _fetch(self) -> None:
        with self._alone():
            if self._host_is_valid:
                return
            assert self._buffer is not None
            value = self._buffer.read()
            with ops.init_scope(), context.eager_mode():
                gen_resource_variable_ops.assign_variable_op(self._raw_handle, ops.convert_to_tensor(value))
            self._host_is_valid = True

    @property
    def _handle(self) -> Any:
        """The handle, which TensorFlow's eager operations take from here, in C, to read the variable."""
        if not self._known_use and not ops.inside_function():
            if _tracing.watcher is not None:
                _tracing.watcher(self)
            self._fetch()
        return self._raw_handle

    @_handle.setter
    def _handle(self, handle: TensorLike) -> None:
        self._raw_handle = handle

    @property
    def handle(self) -> Any:
        """The host copy's handle, for unknown uses: reads (so fetch) or writes (so invalidate)."""
        if self._known_use:
            return self._raw_handle
        if not ops.inside_function():
            check_assignable(self)
            self._fetch()
            self._device_is_valid, self.written_by = False, None
        elif _tracing.used is not None:
            _tracing.used[id(self._raw_handle)] = self
        else:
            self._note_foreign_use(ops.get_default_graph())
        return self._raw_handle

    @property
    def device(self) -> str:
        """The device the variable was created for."""
        return self._ipu_device or self._raw_handle.device

    def _note_foreign_use(self, graph: func_graph.FuncGraph) -> None:
        graphs = []
        while isinstance(graph, func_graph.FuncGraph):
            if SYMBOLIC_GRAPH in graph.name:
                return
            graphs.append(graph)
            graph = graph.outer_graph
        self._fetch()
        self.written_by = None
        if self._foreign_graphs is None:
            self._foreign_graphs = weakref.WeakSet()
        self._foreign_graphs.update(graphs)

    def _read(self, read: Callable[[], T]) -> T:
        """Runs a read of the host copy, which leaves the device copy valid."""
        if ops.inside_function() or self._known_use:
            return read()
        if _tracing.watcher is not None:
            _tracing.watcher(self)
        with self._alone():  # `_known_use` is for this thread, and the copy stays the newest meanwhile
            self._fetch()
            self._known_use = True
            try:
                return read()
            finally:
                self._known_use = False

    def _write(self, write: Callable[[], Any], read_value: bool) -> Any:
        """Runs an assignment to the host copy; one that fails changes neither copy."""
        if ops.inside_function():
            return write()
        with self._alone():
            check_assignable(self)
            self._known_use = True
            try:
                write()
            finally:
                self._known_use = False
            self._host_is_valid, self._device_is_valid, self.written_by = True, False, None
        return self if read_value else None

    def _update(self, write: Callable[[], Any], read_value: bool) -> Any:
        """The same for an assignment that reads the present value, which no execution changes meanwhile."""
        if ops.inside_function():
            return write()
        with self._alone():
            self._fetch()
            return self._write(write, read_value)

    def _write_to_device(self, value: TensorLike) -> bool:
        """Replaces the device copy by an array of its shape and dtype, for later fetches; returns whether it did."""
        with self._alone():
            check_assignable(self)
            if self._buffer is None or self._foreign_graphs or not isinstance(value, np.ndarray | np.generic):
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

    def assign(
        self, value: TensorLike, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Replaces the value; raises ValueError when the shape differs."""
        if not ops.inside_function():
            if self._write_to_device(value):
                return self if read_value else None
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


class DeviceVariable(Protocol):
    """A variable that a program reads and updates on the device."""

    @property
    def name(self) -> str:
        """A name for messages and reports."""

    @property
    def lock_holder(self) -> Any:
        """The object whose lock executions with the variable hold."""

    def device_buffer(self) -> DeviceBuffer:
        """The device's copy, with the present value."""

    def device_written(self, run: object = None) -> None:
        """Notes that an execution, that of `run`, has written the device's copy."""


class HostVariable:
    """The same interface for a variable from outside the strategy: copied in before, back after each execution."""

    def __init__(self, variable: Variable) -> None:
        self.variable = variable
        self._buffer: DeviceBuffer | None = None

    @property
    def name(self) -> str:
        """The variable's name."""
        return self.variable.name

    @property
    def lock_holder(self) -> Any:
        """The object whose lock executions with the variable hold."""
        return self.variable

    def device_buffer(self) -> DeviceBuffer:
        """A device copy of the variable's present value."""
        value = np.asarray(self.variable.numpy())
        if self._buffer is None:
            self._buffer = DeviceBuffer(shape_of(value))
        self._buffer.write(value)
        return self._buffer

    def device_written(self, run: object = None) -> None:
        """Copies the updated value back."""
        assert self._buffer is not None
        self.variable.assign(self._buffer.read())
