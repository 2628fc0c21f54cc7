"""Operations on an IPU that no program contains: for a run of a session they become programs, cluster by cluster.

A cluster is a set of operations of one device, with no operation of the host or of another device between them. The
graph keeps its operations. Operations that depend on a cluster are copied, and the run fetches the copies.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from engine.errors import UnsupportedOperation
from ipu._internal.graphs.placement import CONTROL_FLOW, compilable, computes, has_real_results
from ipu._internal.graphs.program import GraphProgram
from ipu._internal.graphs.sessions import READS, WRITERS, called_names, handle_op
from ipu._internal.graphs.tracing import trace_in_graph

HOST = -1
"""The device of the operations of the host, among ordinals."""
CALLS_OF_PYTHON = frozenset({"EagerPyFunc", "Print", "PyFunc", "PyFuncStateless"})
SIZED_BY_VALUES = frozenset({"Unique", "UniqueV2", "Where"})
"""Operations whose results no program can return."""
SCOPE = "ipu_clusters"
_RUNS, _WARNED = "_ipu_cluster_runs", "_ipu_cluster_warned"
Run = tuple[list[tf.Operation], list[tf.Tensor]]
"""The targets and fetches of a run."""
logger = logging.getLogger("ipu")
_lock = threading.RLock()


def replaced_run(
    placed: dict[tf.Operation, int], targets: list[tf.Operation], fetches: list[tf.Tensor], fed: Sequence[Any]
) -> Run:
    """The targets and fetches of a run that has programs in place of its clusters.

    `placed` has the ordinals of the operations on IPUs, and `fed` the tensors that are fed. Operations without a kernel
    of the compiler stay on the host, which a warning says once. Raises UnsupportedOperation for those in loops and
    branches of TensorFlow 1, for tensors between a cluster and the host that are no arrays, and for random numbers on
    the host after a cluster, whose copy would have a state of its own.
    """
    roots = [*targets, *(tensor.op for tensor in fetches)]
    if not roots:
        return targets, fetches
    key = (*map(id, targets), None, *map(id, fetches), None, *sorted(map(id, fed)))
    with _lock:
        runs: dict[Any, tuple[Run, Any]] = _kept(roots[0].graph, _RUNS, dict)
        if key not in runs:
            run = _Run(placed, roots, fed, fetches)
            replaced = run.replaced(targets) if run.has_clusters else (targets, fetches)
            runs[key] = replaced, (*targets, *fetches, *fed)  # whose ids are in the key
        return runs[key][0]


def _kept(graph: tf.Graph, name: str, kind: Callable[[], Any]) -> Any:
    """The object that a graph keeps under a name, at first a new one."""
    if not hasattr(graph, name):
        setattr(graph, name, kind())
    return getattr(graph, name)


@dataclass(eq=False)
class _Run:
    """The operations of a run, each with its device, and with the level at which it is executed."""

    placed: dict[tf.Operation, int]
    roots: Sequence[tf.Operation]
    fed: Sequence[Any]
    fetches: Sequence[tf.Tensor]
    device: dict[tf.Operation, int] = field(default_factory=dict)
    level: dict[tf.Operation, int] = field(default_factory=dict)
    values: dict[int, tf.Tensor] = field(default_factory=dict)
    """Copies of tensors, and results of programs, by the id of the tensor that they replace."""
    operations: dict[tf.Operation, tf.Operation] = field(default_factory=dict)
    """The copies of operations, and programs."""

    def __post_init__(self) -> None:
        self.graph = self.roots[0].graph
        self._fed = {id(tensor) for tensor in self.fed}
        reached = self._reached(self.roots, frozenset())
        if not any(each in self.placed for each in reached):
            self.order: list[tf.Operation] = []
            return
        self.order = self._in_order(reached)
        self._place()
        while self._place_on_levels() or self._place_sized_on_host():
            pass

    @property
    def has_clusters(self) -> bool:
        """Whether operations are left for a device."""
        return any(device != HOST for device in self.device.values())

    def replaced(self, targets: Sequence[tf.Operation]) -> Run:
        """The targets and fetches in place of the given ones, after all clusters have become programs."""
        levels: dict[int, list[tf.Operation]] = {}
        for operation in self.order:
            levels.setdefault(self.level[operation], []).append(operation)
        finalized = self.graph.finalized
        self.graph._unsafe_unfinalize()
        try:
            with self.graph.as_default(), tf.control_dependencies(None), tf.device(None), tf.name_scope(f"{SCOPE}/"):
                for number in sorted(levels):
                    ordinal = self.device[levels[number][0]]
                    if ordinal == HOST:
                        self._copy_dependent(levels[number])
                    else:
                        self._compile(levels[number], ordinal)
        finally:
            if finalized:
                self.graph.finalize()
        return [self.operations.get(each, each) for each in targets], [self._value(each) for each in self.fetches]

    def _value(self, tensor: tf.Tensor) -> tf.Tensor:
        return tensor if id(tensor) in self._fed else self.values.get(id(tensor), tensor)

    def _before(self, operation: tf.Operation) -> Iterator[tf.Operation]:
        """Operations on which an operation depends, except those whose tensors are fed."""
        yield from (tensor.op for tensor in operation.inputs if id(tensor) not in self._fed)
        yield from operation.control_inputs

    def _reached(self, roots: Iterable[tf.Operation], ends: Collection[tf.Operation]) -> dict[tf.Operation, None]:
        """The operations and all that they depend on, except operations on which only `ends` depend."""
        seen = dict.fromkeys(roots)
        pending = list(seen)
        while pending:
            operation = pending.pop()
            if operation in ends:
                continue
            for other in self._before(operation):
                if other not in seen:
                    seen[other] = None
                    pending.append(other)
        return seen

    def _in_order(self, reached: Iterable[tf.Operation]) -> list[tf.Operation]:
        """The operations in an order of dependence, with updates of variables as late as possible."""
        position = {operation: number for number, operation in enumerate(reached)}
        waits = {each: {o for o in self._before(each) if not _is_back_edge(each, o)} for each in position}
        after: dict[tf.Operation, list[tf.Operation]] = {}
        for each, others in waits.items():
            for other in others:
                after.setdefault(other, []).append(each)
        ready = [(_writes(each), position[each], each) for each, others in waits.items() if not others]
        heapq.heapify(ready)
        order = []
        while ready:
            _, _, operation = heapq.heappop(ready)
            order.append(operation)
            for each in after.get(operation, ()):
                waits[each].discard(operation)
                if not waits[each]:
                    heapq.heappush(ready, (_writes(each), position[each], each))
        return order

    def _place(self) -> None:
        """Gives each operation its device; initial values are computed on the host, which alone has them at first."""
        variables = [*self.graph.get_collection("variables"), *self.graph.get_collection("local_variables")]
        initializers = {each.initializer for each in variables if getattr(each, "initializer", None) is not None}
        live = self._reached([each for each in self.roots if each not in initializers], initializers)
        left: list[str] = []
        for each in self.order:
            ordinal = self.placed.get(each, HOST) if each in live and each not in initializers else HOST
            is_inside = each.type in CONTROL_FLOW or each._get_control_flow_context() is not None
            if is_inside and ordinal != HOST and compilable(each) and computes([each]):
                raise UnsupportedOperation(
                    f"Expected operations on an IPU outside of ipu_compiler.compile in no loop or branch of "
                    f"TensorFlow 1. Received: {each.name!r} ({each.type}) in one. Call tf.compat.v1."
                    f"enable_control_flow_v2() first, or put the loop or branch into a function that is compiled."
                )
            self.device[each] = ordinal if ordinal == HOST or (compilable(each) and not is_inside) else HOST
            if self.device[each] != ordinal and each.type not in CALLS_OF_PYTHON and has_real_results(each):
                left.append(each.name)
        self._warn(left)
        for each in reversed(self.order):  # arrays of tensors and stacks are where their users are
            if self.device[each] != HOST:
                for tensor in each.inputs:
                    if _is_no_array(tensor) and self.device[tensor.op] == HOST and compilable(tensor.op):
                        self.device[tensor.op] = self.device[each]

    def _warn(self, left: Iterable[str]) -> None:
        warned: set[str] = _kept(self.graph, _WARNED, set)
        if new := sorted(set(left) - warned):
            warned.update(new)
            logger.warning(
                "Operations on an IPU without a kernel of the compiler are executed on the host, without stochastic "
                "rounding and floating-point exceptions: %s%s.",
                ", ".join(new[:5]),
                f" and {len(new) - 5} others" if len(new) > 5 else "",
            )

    def _place_on_levels(self) -> bool:
        """Gives each operation its level; returns whether clusters that need no device were moved to the host."""
        devices = [HOST, *sorted({device for device in self.device.values() if device != HOST})]
        self.level = dict.fromkeys(self.order, 0)
        changed = True
        while changed:
            changed = False
            for each in self.order:
                least = max((self.level[other] for other in self._before(each)), default=0)
                least += (devices.index(self.device[each]) - least) % len(devices)
                changed |= least != self.level[each]
                self.level[each] = least
        clusters: dict[int, list[tf.Operation]] = {}
        for each in self.order:
            if self.device[each] != HOST:
                clusters.setdefault(self.level[each], []).append(each)
        exact = [cluster for cluster in clusters.values() if not computes(cluster)]
        self.device.update((each, HOST) for cluster in exact for each in cluster)
        return bool(exact)

    def _place_sized_on_host(self) -> bool:
        """Moves operations to the host whose results have as many elements as values say, if they leave a cluster."""
        sources: dict[int, set[tf.Operation]] = {}
        moved = set[tf.Operation]()
        for each in self.order:
            taken = {each} if each.type in SIZED_BY_VALUES and self.device[each] != HOST else set[tf.Operation]()
            for tensor in each.inputs:
                found = sources.get(id(tensor))
                if found and self.level[tensor.op] == self.level[each]:
                    taken |= found
                elif found:
                    moved |= found
            sources.update((id(t), taken) for t in each.outputs if taken and not t.shape.is_fully_defined())
        moved.update(source for tensor in self.fetches for source in sources.get(id(tensor), ()))
        self.device.update(dict.fromkeys(moved, HOST))
        return bool(moved)

    def _copy_dependent(self, operations: Sequence[tf.Operation]) -> None:
        """Copies the operations of the host that depend on a program."""
        depend: dict[tf.Operation, None] = {}
        for each in operations:
            if any(other in self.operations or other in depend for other in self._before(each)):
                depend[each] = None
                if control_flow_util.GetContainingWhileContext(each._get_control_flow_context()) is not None:
                    raise UnsupportedOperation(
                        f"Expected loops of TensorFlow 1 to take no results of operations on an IPU in no program. "
                        f"Received: {each.name!r} ({each.type}) in one. Call tf.compat.v1.enable_control_flow_v2() "
                        f"first, or compile the operations before it with ipu_compiler.compile."
                    )
                if each.op_def.is_stateful and "seed" in each.node_def.attr:
                    raise UnsupportedOperation(
                        f"Expected random numbers of the host to be independent of operations on an IPU. Received: "
                        f"{each.name!r} ({each.type}), which waits for some. Create it on the IPU, too, or compile "
                        f"the operations before it with ipu_compiler.compile."
                    )
        copy_operations(list(depend), self._value, self.values, self.operations)

    def _compile(self, operations: Sequence[tf.Operation], ordinal: int) -> None:
        """Makes a program of the operations of a cluster."""
        cluster = set(operations)
        leaving = {
            id(t): t for each in self.order if each not in cluster for t in each.inputs if id(t) not in self._fed
        }
        leaving |= {id(tensor): tensor for tensor in self.fetches}
        outputs = [t for t in leaving.values() if t.op in cluster and id(t) not in self._fed]
        for tensor in (*outputs, *(t for each in operations for t in each.inputs if t.op not in cluster)):
            if _is_no_array(tensor):
                raise UnsupportedOperation(
                    f"Expected arrays and variables between an IPU and the host. Received: {tensor.name!r}, of dtype "
                    f"{tensor.dtype.name}. Put the operations that compute and use it into one scope of the IPU."
                )
        outer = [self.operations.get(o, o) for each in operations for o in each.control_inputs if o not in cluster]

        def entering(tensor: tf.Tensor) -> tf.Tensor:
            if tensor.op.type == "Const" and tensor.dtype.is_integer and id(tensor) not in self._fed:
                return tf.constant(tf.get_static_value(tensor), tensor.dtype)  # shapes may depend on it
            handle = handle_op(tensor)
            return self._value(tensor) if handle is None else handle.outputs[0]

        def computation() -> Any:
            values: dict[int, tf.Tensor] = {}
            copies: dict[tf.Operation, tf.Operation] = {}
            copy_operations(operations, lambda t: values[id(t)] if id(t) in values else entering(t), values, copies)
            used = {other for each in operations for other in self._before(each)}
            ends = [copies[each] for each in operations if each not in used]
            with tf.control_dependencies(ends):
                return [tf.identity(values[id(tensor)]) for tensor in outputs] if outputs else tf.no_op()

        with tf.control_dependencies(list(dict.fromkeys(outer))):
            executed, results = GraphProgram(trace_in_graph(computation, [], ordinal), ordinal).operation()
        self.operations.update(dict.fromkeys(operations, executed))
        self.values.update((id(tensor), result) for tensor, result in zip(outputs, results, strict=True))


def copy_operations(
    operations: Sequence[tf.Operation],
    value: Callable[[tf.Tensor], tf.Tensor],
    values: dict[int, tf.Tensor],
    copies: dict[tf.Operation, tf.Operation],
) -> None:
    """Adds copies of operations, which are in order, to the default graph; `value` replaces a tensor."""
    graph: Any = tf.compat.v1.get_default_graph()
    for each in operations:
        inputs = [value(tensor) for tensor in each.inputs]
        for name in called_names(each.node_def):
            if name in each.graph._functions and not graph._is_function(name):
                graph._add_function_recursive(each.graph._get_function(name))
        attributes = {name: attribute for name, attribute in each.node_def.attr.items() if name != "_class"}
        with tf.control_dependencies([copies.get(other, other) for other in _controls(each, graph, copies)]):
            takes_references = any(argument.is_ref for argument in each.op_def.input_arg)
            types = [t.dtype for t in each.inputs] if takes_references else None
            results = [t.dtype for t in each.outputs]
            made = graph._create_op_internal(each.type, inputs, results, types, each.name, attributes, each.op_def)
        copies[each] = made
        for old, new in zip(each.outputs, made.outputs, strict=True):
            new.set_shape(old.shape)
            values[id(old)] = new


def _controls(operation: tf.Operation, graph: tf.Graph, copies: Collection[tf.Operation]) -> list[tf.Operation]:
    """The operations that an operation waits for inside its cluster; the cluster's program waits for all others."""
    return [each for each in operation.control_inputs if each in copies or each.graph is graph]


def _is_back_edge(operation: tf.Operation, before: tf.Operation) -> bool:
    return operation.type == "Merge" and before.type == "NextIteration"


def _is_no_array(tensor: tf.Tensor) -> bool:
    return tensor.dtype == tf.variant or (tensor.dtype == tf.resource and handle_op(tensor) is None)


def _writes(operation: tf.Operation) -> bool:
    return operation.type.startswith(WRITERS) and operation.type not in READS
