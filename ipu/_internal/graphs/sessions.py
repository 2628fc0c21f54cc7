"""Runs of sessions with programs: other users of a run's variables are found once, and variables are moved for them."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import op_def_registry
from tensorflow.python.framework.auto_control_deps_utils import get_read_write_resource_inputs

from engine.errors import ConfigurationError
from ipu._internal.compiler.executing import check_assignable
from ipu._internal.graphs.variables import GraphVariable, Session, SessionRun

READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"})
"""Operations with a variable's handle that leave its value alone."""
WRITERS = ("Assign", "Resource")
"""Prefixes of the types of operations that write a variable: assignments, updates of optimizers, and scatters."""
PASSES = frozenset({"Identity", "Enter", "RefEnter", "Switch", "Merge", "NextIteration", "Exit"})
"""Operations that return a handle that they take."""
Key = tuple[Any, ...]
Name = tuple[bytes, bytes]
"""Container and shared name of a variable, by which a session finds it."""


@dataclass(eq=False)
class GraphPrograms:
    """The programs of a graph: the operations that belong to them, and their variables by container and name.

    `run_number` is fed with the number of the run that executes them.
    """

    run_number: tf.Tensor
    operations: set[tf.Operation] = field(default_factory=set)
    variables: dict[Name, GraphVariable] = field(default_factory=dict)
    made: dict[tf.Operation, Any] = field(default_factory=dict)
    """The GraphProgram that an operation executes."""
    in_datasets: set[Name] = field(default_factory=set)
    """The variables whose handles are in data sets, by which iterators may write them in any run."""
    looked_at: tuple[int, int] = (0, 0)
    """The version of the graph, and its number of operations, in which `in_datasets` was found."""

    def variable(self, handle: tf.Tensor, found: Callable[[], Any]) -> GraphVariable:
        """The variable of a handle; `found()` makes it at its first use."""
        key = _key(handle.op)
        if key not in self.variables:
            self.variables[key] = GraphVariable(found(), handle)
        return self.variables[key]


@dataclass(eq=False)
class RunUses:
    """The programs and the other users of variables that a run with these fetches executes."""

    number: int
    session: weakref.ReferenceType[Session]
    executes: bool
    read: frozenset[GraphVariable]
    written: frozenset[GraphVariable]
    fetched: tuple[Any, ...]
    """The operations and tensors themselves, whose ids are in the key of this object."""


_numbers = itertools.count(1)
_uses: weakref.WeakValueDictionary[int, RunUses] = weakref.WeakValueDictionary()
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
    return SessionRun(session, use.read | use.written, use.written, context)


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


def handle_op(tensor: tf.Tensor) -> tf.Operation | None:
    """The operation that makes a variable's handle, before any operations of PASSES; None for other tensors."""
    if tensor.dtype != tf.resource:
        return None
    while tensor.op.type in PASSES:
        tensor = tensor.op.inputs[0]
    return tensor.op if tensor.op.type == "VarHandleOp" else None


@functools.cache
def _may_call(type_name: str) -> bool:
    """Whether operations of this type call functions; those of a type that TensorFlow does not list are calls."""
    definition = op_def_registry.get(type_name)
    return definition is None or any(attribute.type in ("func", "list(func)") for attribute in definition.attr)


def called_names(node: Any) -> list[str]:
    """The names of the functions that a node may call: the one that its type is, and those in its attributes."""
    values = node.attr.values()
    return [node.op, *(each.func.name for each in values), *(f.name for each in values for f in each.list.func)]


def _called_nodes(operation: tf.Operation) -> Iterator[Any]:
    """The nodes of the functions that an operation calls, and of those that these call."""
    if not _may_call(operation.type):
        return
    functions, seen, pending = operation.graph._functions, set[str](), [operation.node_def]
    while pending:
        node = pending.pop()
        for name in called_names(node):
            if name in functions and name not in seen:
                seen.add(name)
                nodes = functions[name].definition.node_def
                pending.extend(nodes)
                yield from nodes


def _variables_of(operation: tf.Operation) -> dict[Name, bool]:
    """The variables whose handle an operation, or a function that it calls, has; each with whether it may write it."""
    uses: dict[Name, bool] = {}
    read_inputs = {id(tensor) for tensor in get_read_write_resource_inputs(operation)[0]}
    for tensor in operation.inputs:
        handle = handle_op(tensor)
        if handle is not None:
            writes = operation.type not in READS and id(tensor) not in read_inputs
            uses[_key(handle)] = uses.get(_key(handle), False) or writes
    for node in _called_nodes(operation):
        if node.op == "VarHandleOp":
            uses[node.attr["container"].s, node.attr["shared_name"].s] = True
    return uses


def _writes_now(operation: tf.Operation) -> bool:
    """Whether an operation that may write a variable does so itself: data sets and operations of PASSES do not."""
    types = {operation.type, *(node.op for node in _called_nodes(operation))}
    return any(each.startswith(WRITERS) and each not in READS for each in types) and not _makes_dataset(operation)


def _makes_dataset(operation: tf.Operation) -> bool:
    """Whether an operation, or a function that it calls, makes a data set, which may keep a handle."""
    if any(tensor.dtype == tf.variant for tensor in operation.outputs):
        return True
    types = {node.op for node in _called_nodes(operation)}
    definitions = (op_def_registry.get(each) for each in types)
    return any(d is not None and any(o.type == types_pb2.DT_VARIANT for o in d.output_arg) for d in definitions)


def _note_datasets(programs: GraphPrograms, graph: tf.Graph) -> None:
    """Finds data sets that have variables among the new operations of a graph."""
    version, count = programs.looked_at
    if graph.version != version:
        operations = graph.get_operations()
        for operation in operations[count:]:
            handles = [op for tensor in operation.inputs if (op := handle_op(tensor)) is not None]
            if handles and operation.type not in PASSES and _makes_dataset(operation):
                programs.in_datasets.update(_key(op) for op in handles)
        programs.looked_at = graph.version, len(operations)
    for name in programs.in_datasets & programs.variables.keys():
        programs.variables[name].in_dataset = True


def use_of(session: Session, programs: GraphPrograms, targets: list[Any], fetches: list[Any]) -> RunUses:
    """The use of programs and variables by the run of these targets and fetches. Raises as `_check_order`."""
    _note_datasets(programs, session.graph)
    known: dict[Key, RunUses] = session.__dict__.setdefault("_ipu_uses", {})
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
            for name, writes in _variables_of(operation).items():
                variable = programs.variables.get(name)
                if variable is not None:
                    (written if writes else read).add(variable)
                    if writes and _writes_now(operation):
                        writers.append((operation, variable))
        _check_order(programs, executed, writers)
        use = RunUses(
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
def moved(session: Session, use: RunUses) -> Iterator[np.ndarray]:
    """Moves the variables that a run uses to the session, and those it has written to the next one, while the context
    is open.

    Yields the number of the run, by which its programs find it.
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
