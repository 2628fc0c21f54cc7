"""Sessions whose graphs have programs: what a run uses besides them is found once, and variables are moved for it.

`install` extends TensorFlow's sessions, which keep their classes: hooks and monitored sessions call them, too.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.client import session as sessions
from tensorflow.python.ops import variable_scope
from tensorflow.python.training import training_util

from ipu._internal.graphs.host_operations import original_error
from ipu._internal.graphs.variables import GraphVariable, Session, SessionRun

LEAST_THREADS = 4
"""Least number of threads of sessions: a program occupies one while others dequeue what it has enqueued."""
READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"})
"""Operations with a variable's handle that leave its value alone."""
Key = tuple[Any, ...]


@dataclass(eq=False)
class GraphPrograms:
    """The programs of a graph: the operations that belong to them, and their variables by container and name.

    `run_number` is fed with the number of the run that executes them.
    """

    run_number: tf.Tensor
    operations: set[tf.Operation] = field(default_factory=set)
    variables: dict[tuple[bytes, bytes], GraphVariable] = field(default_factory=dict)
    made: dict[tf.Operation, Any] = field(default_factory=dict)
    """The GraphProgram that an operation executes."""

    def variable(self, handle: tf.Tensor, found: Callable[[], Any]) -> GraphVariable:
        """The variable of a handle, made of `found()` at its first use."""
        key = _key(handle.op)
        if key not in self.variables:
            self.variables[key] = GraphVariable(found(), handle)
        return self.variables[key]


@dataclass(eq=False)
class _Use:
    """What a run with these fetches executes: programs, and other users of variables."""

    number: int
    session: weakref.ReferenceType[Session]
    executes: bool
    read: frozenset[GraphVariable]
    written: frozenset[GraphVariable]
    fetched: tuple[Any, ...]
    """The operations and tensors themselves, whose ids are in the key of this."""


_numbers = itertools.count(1)
_uses: weakref.WeakValueDictionary[int, _Use] = weakref.WeakValueDictionary()
_ATTRIBUTE = "_ipu_programs"


def programs_of(graph: tf.Graph) -> GraphPrograms:
    """The programs of a graph, none at first."""
    found = getattr(graph, _ATTRIBUTE, None)
    if found is None:
        with graph.as_default(), tf.control_dependencies(None), tf.device(None), tf.device("/device:CPU:0"):
            number = tf.compat.v1.placeholder_with_default(tf.constant(0, tf.int64), [], name="ipu_run")
        found = GraphPrograms(number)
        setattr(graph, _ATTRIBUTE, found)
    return found


def run_of(number: np.ndarray) -> SessionRun:
    """The run of that number. Raises RuntimeError for a session that does not number its runs."""
    use = _uses.get(int(number))
    session = None if use is None else use.session()
    if use is None or session is None:
        raise RuntimeError(
            "Expected a program to be executed by Session.run, or by a callable of a tf.compat.v1.Session. Received: "
            "an execution by something else. Call run of the session."
        )
    return SessionRun(session, use.read | use.written)


def _key(operation: tf.Operation) -> tuple[bytes, bytes]:
    return operation.get_attr("container"), operation.get_attr("shared_name") or operation.name.encode()


def reached(roots: Iterable[tf.Operation]) -> Iterator[tf.Operation]:
    """The operations, and all that they depend on."""
    pending = list(roots)
    seen = set(pending)
    while pending:
        operation = pending.pop()
        yield operation
        for other in (*(tensor.op for tensor in operation.inputs), *operation.control_inputs):
            if other not in seen:
                seen.add(other)
                pending.append(other)


def _use(session: Session, programs: GraphPrograms, targets: list[Any], fetches: list[Any]) -> _Use:
    """What the run of these targets and fetches uses."""
    known: dict[Key, _Use] = session.__dict__.setdefault("_ipu_uses", {})
    key = (len(programs.variables), len(programs.operations), *map(id, targets), None, *map(id, fetches))
    if key not in known:
        executes = False
        read: set[GraphVariable] = set()
        written: set[GraphVariable] = set()
        for operation in reached([*targets, *(tensor.op for tensor in fetches)]):
            if operation in programs.operations:
                executes = True
                continue
            for tensor in operation.inputs:
                if tensor.dtype == tf.resource and tensor.op.type == "VarHandleOp":
                    variable = programs.variables.get(_key(tensor.op))
                    if variable is not None:
                        (read if operation.type in READS else written).add(variable)
        use = _Use(
            *(next(_numbers), weakref.ref(session), executes, frozenset(read), frozenset(written)),
            (*targets, *fetches),
        )
        known[key] = _uses[use.number] = use
    return known[key]


@contextlib.contextmanager
def _moved(session: Session, use: _Use) -> Iterator[None]:
    """Within, the run finds in the session the variables that it uses there, and the next one those it has written."""
    for variable in use.read | use.written:
        variable.store(session)
    if use.executes:
        for variable in use.written:
            variable.invalidate(session)
    try:
        yield
    except tf.errors.OpError as error:
        raise original_error(error) from None
    finally:
        for variable in use.written:
            variable.invalidate(session)


def install() -> None:
    """Extends TensorFlow's sessions and global steps, once."""
    base = sessions.BaseSession
    if getattr(base, "_ipu_installed", False):
        return
    base._ipu_installed = True
    _extend_initialisation(base)
    _extend_runs(base)
    _extend_callables(base)
    _extend_global_step()


def _extend_initialisation(base: Any) -> None:
    """Operations in scopes of /device:IPU, of which the runtime knows nothing, are placed on the host."""
    initialise = base.__init__

    @functools.wraps(initialise)
    def __init__(self: Session, target: str = "", graph: tf.Graph | None = None, config: Any = None) -> None:
        if config is None or isinstance(config, tf.compat.v1.ConfigProto):
            given, config = config, tf.compat.v1.ConfigProto()
            if given is not None:
                config.CopyFrom(given)
            config.allow_soft_placement = True
            if not config.inter_op_parallelism_threads:
                config.inter_op_parallelism_threads = max(LEAST_THREADS, os.cpu_count() or 1)
        initialise(self, target, graph, config)

    base.__init__ = __init__


def _extend_runs(base: Any) -> None:
    do_run = base._do_run

    @functools.wraps(do_run)
    def _do_run(
        self: Session, handle: Any, targets: list[Any], fetches: list[Any], feeds: Any, options: Any, metadata: Any
    ) -> Any:
        programs = getattr(self._graph, _ATTRIBUTE, None)
        if programs is None:
            return do_run(self, handle, targets, fetches, feeds, options, metadata)
        use = _use(self, programs, targets, fetches)
        if use.executes:
            feeds = {**feeds, programs.run_number.ref(): np.array(use.number)}
        with _moved(self, use):
            return do_run(self, handle, targets, fetches, feeds, options, metadata)

    base._do_run = _do_run


def _extend_callables(base: Any) -> None:
    """Callables of sessions have their fetches from the start."""
    make, from_options = base.make_callable, base._make_callable_from_options

    @functools.wraps(make)
    def make_callable(self: Session, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Any:
        return make(self, fetches, feed_list or [], accept_options)  # with a list of feeds it calls Session.run

    @functools.wraps(from_options)
    def _make_callable_from_options(self: Session, options: Any) -> Any:
        made = from_options(self, options)
        graph = self._graph

        def call(*arguments: Any, **named: Any) -> Any:
            programs = getattr(graph, _ATTRIBUTE, None)
            if programs is None:
                return made(*arguments, **named)
            fetches = [graph.as_graph_element(name, allow_operation=False) for name in options.fetch]
            targets = [graph.as_graph_element(name) for name in options.target]
            with _moved(self, _use(self, programs, targets, fetches)):
                return made(*arguments, **named)

        return call

    base.make_callable, base._make_callable_from_options = make_callable, _make_callable_from_options


def _extend_global_step() -> None:
    """The global step is a resource variable, which programs can update, also without version 2's behaviour."""
    create = training_util.create_global_step

    def resource(next_creator: Callable[..., Any], **arguments: Any) -> Any:
        return next_creator(**{**arguments, "use_resource": True})

    @functools.wraps(create)
    def create_global_step(graph: tf.Graph | None = None) -> Any:
        with (graph or tf.compat.v1.get_default_graph()).as_default(), variable_scope.variable_creator_scope(resource):
            return create(graph)

    training_util.create_global_step = create_global_step
    tf.compat.v1.train.create_global_step = create_global_step
