"""Resource variables of a tf.Graph: each session has a copy of its own, and the device another one.

Programs leave a variable on the device. What else reads or writes it in a session is known from the graph: the newest
value is stored in the session before a run that reads it, and loaded from there after one that may have written it.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_resource_variable_ops

from engine.ir import shape_of
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.execution_locks import found_lock, holding
from ipu._internal.compiler.variables import IPUVariable
from ipu._internal.types import Variable

BEGINS_AT_ZERO = "_ipu_begins_at_zero"
Session = Any
"""A tf.compat.v1.Session."""


@dataclass
class SessionRun:
    """One call of Session.run that executes programs.

    `touched` are the variables that its other operations use, and `written` those of them that these may write.
    `context` has the context variables of the thread that has called it.
    """

    session: Session
    touched: frozenset[GraphVariable]
    written: frozenset[GraphVariable]
    context: contextvars.Context


class _Running(threading.local):
    run: SessionRun | None = None


_running = _Running()


@contextlib.contextmanager
def running(run: SessionRun) -> Iterator[None]:
    """Marks this thread as executing a program of the run, while the context is open."""
    outer, _running.run = _running.run, run
    try:
        yield
    finally:
        _running.run = outer


def running_session() -> Session | None:
    """The session in whose run this thread executes a program; None elsewhere."""
    return None if _running.run is None else _running.run.session


@dataclass
class _Copy:
    """The device's copy of a session's variable, and which of the two has the newest value."""

    buffer: DeviceBuffer | None = None
    device_is_valid: bool = False
    session_is_valid: bool = True


@cache
def _in_this_thread() -> Any:
    # The operation that calls has a thread of the session's pool, which may have no other.
    options = tf.compat.v1.RunOptions(inter_op_thread_pool=-1)
    return pywrap_tf_session.TF_NewBufferFromString(options.SerializeToString())


@dataclass(eq=False)
class GraphVariable:
    """A resource variable of a tf.Graph as programs use it, in whichever session they are executed."""

    variable: Variable
    """TensorFlow's variable."""
    handle: tf.Tensor
    in_dataset: bool = False
    """Whether an iterator may read and write it in runs whose operations do not show it."""
    escaped = False
    _copies: weakref.WeakKeyDictionary[Session, _Copy] = field(default_factory=weakref.WeakKeyDictionary)

    def __post_init__(self) -> None:
        data = self.handle._handle_data.shape_and_type[0]
        self.shape, self.dtype = tf.TensorShape(data.shape), tf.as_dtype(data.dtype)
        self._begins_at_zero = BEGINS_AT_ZERO in self.handle.op.node_def.attr
        with self.handle.graph.as_default(), ops.control_dependencies(None), ops.name_scope(f"{self.name}/ipu/"):
            with ops.device(None), ops.colocate_with(self.handle):
                self._fed = tf.compat.v1.placeholder(self.dtype, self.shape)
                self._store = gen_resource_variable_ops.assign_variable_op(self.handle, self._fed)
                self._load = gen_resource_variable_ops.read_variable_op(self.handle, self.dtype)

    @property
    def name(self) -> str:
        """The variable's name in the graph."""
        return self.handle.op.name

    @property
    def lock_holder(self) -> Any:
        """The object whose lock executions with the variable hold."""
        return self

    def device_buffer(self) -> DeviceBuffer:
        """The device's copy of the running session's variable, with the newest value."""
        run = _running.run
        assert run is not None
        copy = self._copy(run.session)
        may_differ = self._escapes(run.session) or self in run.written
        if may_differ or not copy.device_is_valid or copy.buffer is None:
            if self._begins_at_zero:
                value = np.zeros(self.shape.as_list(), self.dtype.as_numpy_dtype)
            else:
                (value,) = session_run(run.session, {}, [self._load], [])
            if copy.buffer is None:
                copy.buffer = DeviceBuffer(shape_of(value))
            copy.buffer.write(value)
            copy.device_is_valid = True
        return copy.buffer

    def device_written(self, run: object = None) -> None:
        """Notes that the running program has written the device's copy."""
        running = _running.run
        assert running is not None
        copy = self._copy(running.session)
        copy.session_is_valid = False
        if self._escapes(running.session) or self in running.touched:
            self.store(running.session)

    def store(self, session: Session) -> None:
        """Gives the session the newest value, after the program that may be computing it."""
        copy = self._copies.get(session)
        if copy is None:
            return
        with self._alone():
            if not copy.session_is_valid:
                assert copy.buffer is not None
                session_run(session, {self._fed: copy.buffer.read()}, [], [self._store])
                copy.session_is_valid = True

    def invalidate(self, session: Session) -> None:
        """Notes that the session may have another value than the device."""
        copy = self._copy(session)
        with self._alone():
            copy.device_is_valid, copy.session_is_valid = False, True

    def _escapes(self, session: Session) -> bool:
        """Whether more than the runs of this session may use its variable: iterators, or other sessions of a server."""
        return not self._begins_at_zero and (self.in_dataset or bool(session._target))

    def _copy(self, session: Session) -> _Copy:
        return self._copies.setdefault(session, _Copy())

    def _alone(self) -> contextlib.AbstractContextManager[Any]:
        lock = found_lock(self)
        return contextlib.nullcontext() if lock is None else holding(lock)


def zeros_variable(shape: tf.TensorShape | list[int], dtype: tf.DType, name: str) -> Any:
    """A zero variable on the device, created outside the function being traced.

    In a tf.Graph it is in no collection, so that checkpoints have the variables of the program alone, and it is zero in
    each session without an initializer.
    """
    with ops.init_scope():
        value = tf.zeros(shape, tf.as_dtype(dtype))
        if tf.executing_eagerly():
            return IPUVariable(initial_value=value, trainable=False, name=name)
        made = tf.compat.v1.Variable(value, trainable=False, name=name, use_resource=True, collections=[])
        graph = made.handle.graph
        graph._ipu_zeros = [*getattr(graph, "_ipu_zeros", []), made]  # functions have weak references to variables
        made.handle.op._set_attr(BEGINS_AT_ZERO, attr_value_pb2.AttrValue(b=True))
        return made


def session_run(
    session: Session, feeds: dict[tf.Tensor, np.ndarray], fetches: list[tf.Tensor], targets: list[tf.Operation]
) -> list[Any]:
    """The values of `fetches` after `targets`, without the parts of Session.run that call back here."""
    return pywrap_tf_session.TF_SessionRun_wrapper(
        session._session,
        _in_this_thread(),
        {tensor._as_tf_output(): value for tensor, value in feeds.items()},
        [tensor._as_tf_output() for tensor in fetches],
        [operation._c_op for operation in targets],
        None,
    )
