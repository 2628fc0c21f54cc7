"""Runs of sessions with programs: what a run uses besides them is found once, and variables are moved for it."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.compiler.executing import check_assignable
from ipu._internal.graphs.variables import GraphVariable, Session, SessionRun

READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"})
"""Operations with a variable's handle that leave its value alone."""
WRITERS = ("Assign", "Resource")
"""Prefixes of the types of operations that write a variable: assignments, updates of optimizers, and scatters."""
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
class Use:
    """What a run with these fetches executes: programs, and other users of variables."""

    number: int
    session: weakref.ReferenceType[Session]
    executes: bool
    read: frozenset[GraphVariable]
    written: frozenset[GraphVariable]
    fetched: tuple[Any, ...]
    """The operations and tensors themselves, whose ids are in the key of this."""


_numbers = itertools.count(1)
_uses: weakref.WeakValueDictionary[int, Use] = weakref.WeakValueDictionary()
_runs: dict[int, tuple[int, contextvars.Context]] = {}
"""The number of the use, and the context of the thread, of each run that executes programs."""
ATTRIBUTE = "_ipu_programs"


def programs_of(graph: tf.Graph) -> GraphPrograms:
    """The programs of a graph, none at first."""
    found = getattr(graph, ATTRIBUTE, None)
    if found is None:
        with graph.as_default(), tf.control_dependencies(None), tf.device(None), tf.device("/device:CPU:0"):
            number = tf.compat.v1.placeholder_with_default(tf.constant(0, tf.int64), [], name="ipu_run")
        found = GraphPrograms(number)
        setattr(graph, ATTRIBUTE, found)
    return found


def run_of(number: np.ndarray) -> SessionRun:
    """The run of that number. Raises RuntimeError for a session that does not number its runs."""
    number_of_use, context = _runs.get(int(number), (0, contextvars.copy_context()))
    use = _uses.get(number_of_use)
    session = None if use is None else use.session()
    if use is None or session is None:
        raise RuntimeError(
            "Expected a program to be executed by a session of the graph that it was compiled in. Received: an "
            "execution by something else, as in a graph from a meta graph. Build the graph by its Python code, and "
            "restore its variables with a Saver."
        )
    return SessionRun(session, use.read | use.written, context)


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


def use_of(session: Session, programs: GraphPrograms, targets: list[Any], fetches: list[Any]) -> Use:
    """What the run of these targets and fetches uses. Raises as `_check_order`."""
    known: dict[Key, Use] = session.__dict__.setdefault("_ipu_uses", {})
    key = (len(programs.variables), len(programs.operations), *map(id, targets), None, *map(id, fetches))
    if key not in known:
        executed: list[tf.Operation] = []
        writers: list[tuple[tf.Operation, GraphVariable]] = []
        read: set[GraphVariable] = set()
        written: set[GraphVariable] = set()
        for operation in reached([*targets, *(tensor.op for tensor in fetches)]):
            if operation in programs.operations:
                executed.append(operation)
                continue
            for tensor in operation.inputs:
                if tensor.dtype == tf.resource and tensor.op.type == "VarHandleOp":
                    variable = programs.variables.get(_key(tensor.op))
                    if variable is not None:
                        (read if operation.type in READS else written).add(variable)
                        if operation.type.startswith(WRITERS) and operation.type not in READS:
                            writers.append((operation, variable))
        _check_order(programs, executed, writers)
        use = Use(
            *(next(_numbers), weakref.ref(session), bool(executed), frozenset(read), frozenset(written)),
            (*targets, *fetches),
        )
        known[key] = _uses[use.number] = use
    return known[key]


def _check_order(
    programs: GraphPrograms, executed: Iterable[tf.Operation], writers: Iterable[tuple[tf.Operation, GraphVariable]]
) -> None:
    """Raises ConfigurationError for a program and an assignment on the host without order: one would be lost."""
    for program in executed:
        for writer, variable in writers:
            if program not in programs.made or variable not in programs.made[program].variables:
                continue
            if program not in reached([writer]) and writer not in reached([program]):
                raise ConfigurationError(
                    f"Expected a control dependency between a program and an assignment to one of its variables in the "
                    f"same run. Received: {program.name!r} and {writer.name!r}, which writes {variable.name!r}, in any "
                    f"order. Create one of them in tf.control_dependencies of the other, or run it before."
                )


@contextlib.contextmanager
def moved(session: Session, use: Use) -> Iterator[np.ndarray]:
    """Within, the run finds in the session the variables that it uses there, and the next one those it has written.

    Gives the number of the run, by which its programs find it.
    """
    for variable in use.written:
        check_assignable(variable)
    for variable in use.read | use.written:
        variable.store(session)
    if use.executes:
        for variable in use.written:
            variable.invalidate(session)
    number = next(_numbers)
    if use.executes:
        _runs[number] = use.number, contextvars.copy_context()
    try:
        yield np.array(number)
    finally:
        _runs.pop(number, None)
        for variable in use.written:
            variable.invalidate(session)
