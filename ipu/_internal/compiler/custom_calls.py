"""Functions with custom calls in place of the operations of costly_kernels.py, for the time of a conversion to HLO.

Factorizations of matrices, erfc and random numbers (random_numbers.py) are replaced, and checks of values
(value_checks.py) added, in each function that can be reached: loops, branches and called functions. The other
operations, which XLA can convert, are replaced in the outer function alone. Placeholders that are no inputs, as models
of Keras make them in graphs of TensorFlow 1, and summaries are left out with all that depends on them and is not
returned. Lists with elements of different shapes, which XLA lacks, are left out if no result depends on them.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import NameAttrList
from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph
from tensorflow.python.ops.handle_data_util import copy_handle_data

from engine.ir.value_checks import ValueCheck
from ipu._internal.compiler.costly_kernels import IN_ALL_FUNCTIONS, constants, is_candidate, make_custom_call, results
from ipu._internal.compiler.left_out_summaries import SUMMARIES
from ipu._internal.compiler.random_numbers import draw_as_kernels, drawn_by_xla, drawn_otherwise, is_xla_call
from ipu._internal.compiler.unequal_arrays import is_unequal
from ipu._internal.compiler.value_checks import RULES, assertion, check_node, checks_of, texts_of
from ipu._internal.compiler.value_checks import SUFFIX as CHECK_SUFFIX

CALLS = {
    "Case": 1,
    "If": 1,
    "PartitionedCall": 0,
    "StatefulPartitionedCall": 0,
    "StatelessCase": 1,
    "StatelessIf": 1,
    "StatelessWhile": 0,
    "While": 0,
}
"""Operations that call functions, with the number of inputs that are not passed to the functions."""
INLINE = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
BRANCHES = frozenset({"If", "StatelessIf"})
GUARD = frozenset({"Assert", "Const", "Identity", "NoOp", "Placeholder"})
"""Operations of the branch of a conditional that only asserts."""
LEFT_OUT = frozenset({"Placeholder", *SUMMARIES})
"""Operations that XLA refuses, and that no call of a function runs."""
SUFFIX = "_custom_calls_"

_numbers = itertools.count()


@contextlib.contextmanager
def rewritten_for_xla(
    concrete: ConcreteFunction, costly: bool, checks: bool, passing: bool = True
) -> Iterator[str | None]:
    """Makes a function like `concrete` while the context is open; yields its name, or None if `concrete` will do.

    It has no unused placeholders and summaries, the random numbers of TensorFlow's kernels, and custom calls in place
    of `costly` operations, or `checks` of values, or both. Checks pass their operands on if `passing`.
    """
    functions = _Functions(costly, checks, passing)
    try:
        yield functions.rewritten(concrete.name, concrete.graph, drawn_by_xla.value, outermost=True)
    finally:
        for each in functions.made:
            context.context().remove_function(each)


class _Functions:
    """Makes functions with custom calls, one for each function and shapes of its inputs."""

    def __init__(self, costly: bool, checks: bool, passing: bool) -> None:
        self.costly, self.checks, self.passing = costly, checks, passing
        self.made: list[str] = []
        self._affected: dict[tuple[str, bool], bool] = {}
        self._called: dict[tuple[str, bool, tuple[str, ...]], tuple[str | None, Any]] = {}
        # Shapes of calls' results, which their graph lacks; by identity, in graphs that `_called` keeps alive.
        self._shapes: dict[int, tf.TensorShape] = {}

    def rewritten(self, name: str, graph: Any, by_xla: bool, outermost: bool) -> str | None:
        """The name of a function like the one of this name and graph; None if that will do.

        Its random numbers are XLA's if `by_xla`.
        """
        definition = context.context().get_function_def(name)
        graph = self._graph_of(definition, graph, by_xla)
        operations = {each.name: each for each in graph.get_operations()}
        candidates = {
            key: each
            for key, each in operations.items()
            if self.costly and (outermost or each.type in IN_ALL_FUNCTIONS) and is_candidate(each)
        }
        checks = self._checks(operations.values(), graph) if self.checks else {}
        # A tape adds operations to a graph and changes the functions that others call, but not those of the definition.
        nodes = {node.name: node for node in definition.node_def}
        called = {
            key: self._of_call(each, nodes[key], graph, by_xla)
            for key, each in operations.items()
            if each.type in CALLS and key in nodes and not (key in checks and each.type in BRANCHES)
        }
        called = {key: renamed for key, renamed in called.items() if renamed}
        draws = not by_xla and any(map(drawn_otherwise, definition.node_def))
        has_unequal = any(map(is_unequal, definition.node_def))
        if not (candidates or called or checks or draws or has_unequal or _has_unused(graph)):
            return None
        _add_checks(definition, {operations[key]: found for key, found in checks.items()}, self.passing)
        known = constants(definition)
        _replace(definition, {key: each for key, each in candidates.items() if key not in known})
        for node in definition.node_def:
            for function in _functions(node):
                function.name = called.get(node.name, {}).get(function.name, function.name)
        if draws:
            draw_as_kernels(definition)
        _leave_out_unused(definition)
        if has_unequal:
            _keep_running(definition)
        definition.signature.name = f"{definition.signature.name}{SUFFIX}{next(_numbers)}"
        context.context().add_function_def(definition)
        self.made.append(definition.signature.name)
        return self.made[-1]

    def _checks(self, operations: Iterable[tf.Operation], graph: Any) -> dict[str, list[tuple[int, ValueCheck]]]:
        """The checks of operations by name, with the numbers of the inputs."""
        found: dict[str, list[tuple[int, ValueCheck]]] = {}
        for each in operations:
            if each.type in BRANCHES:
                guarded = self._guarded(each, graph)
                found[each.name] = [] if guarded is None else [(0, guarded)]
            else:
                found[each.name] = list(checks_of(each))
        return {name: checks for name, checks in found.items() if checks}

    def _guarded(self, conditional: tf.Operation, graph: Any) -> ValueCheck | None:
        """The check of a conditional that only asserts its predicate: it needs no branches then."""
        asserting = _graph(conditional.get_attr("else_branch").name, graph)
        operations = asserting.get_operations()
        assertions = [each for each in operations if each.type == "Assert"]
        if len(assertions) != 1 or any(each.type not in GUARD for each in operations):
            return None
        given = _origin(assertions[0].inputs[0])
        number = next((k for k, each in enumerate(asserting.inputs) if each is given), None)
        if number is None or _origin(conditional.inputs[1 + number]) is not _origin(conditional.inputs[0]):
            return None
        return assertion(texts_of(assertions[0]))

    def _of_call(self, call: tf.Operation, node: NodeDef, graph: Any, by_xla: bool) -> dict[str, str]:
        """The names of the functions in place of those that a node, an operation of the graph, calls, if any."""
        found = {}
        for each in _functions(node):
            inner = by_xla or is_xla_call(node)
            if not self._is_affected(each.name, graph, inner):
                continue
            shapes = [self._shape(given) for given in call.inputs[CALLS[call.type] :]]
            key = each.name, inner, tuple(map(str, shapes))
            if key not in self._called:
                specialized = _specialized(each.name, _graph(each.name, graph), shapes)
                for given, own in zip(call.inputs[CALLS[call.type] :], specialized.inputs, strict=False):
                    if own.dtype == tf.resource:  # a graph made from a definition lacks its variables' shapes
                        copy_handle_data(given, own)
                self._called[key] = self.rewritten(each.name, specialized, inner, outermost=False), specialized
            renamed, specialized = self._called[key]
            if renamed:
                found[each.name] = renamed
            if call.type in INLINE:
                # TensorFlow adds results for gradients to a graph that was called before.
                self._shapes |= {id(a): b.shape for a, b in zip(call.outputs, specialized.outputs, strict=False)}
        return found

    def _shape(self, given: tf.Tensor) -> tf.TensorShape | None:
        if given.dtype in (tf.resource, tf.variant):
            return None
        return given.shape if given.shape.is_fully_defined() else self._shapes.get(id(given), given.shape)

    def _is_affected(self, name: str, outer: Any, by_xla: bool) -> bool:
        """Whether a function, or one that it calls, has an operation to replace, check or leave out."""
        if (name, by_xla) not in self._affected:
            self._affected[name, by_xla] = any(
                node.op in LEFT_OUT
                or is_unequal(node)
                or (self.costly and node.op in IN_ALL_FUNCTIONS)
                or (self.checks and node.op in RULES)
                or (not by_xla and drawn_otherwise(node))
                or self._calls_affected(node, outer, by_xla)
                for node in _definition(name, outer).node_def
            )
        return self._affected[name, by_xla]

    def _calls_affected(self, node: NodeDef, graph: Any, by_xla: bool) -> bool:
        inner = by_xla or is_xla_call(node)
        return any(self._is_affected(each.name, graph, inner) for each in _functions(node))

    def _graph_of(self, definition: FunctionDef, graph: Any, by_xla: bool) -> Any:
        """The graph, or one of the definition if this has affected calls of other names.

        A tape gives the loops of a function other names, and makes a function that keeps the graph of the first one.
        """
        known = {each.name for each in graph.get_operations()}
        others = (node for node in definition.node_def if node.name not in known)
        if not any(self._calls_affected(node, graph, by_xla) for node in others):
            return graph
        shapes = [each.shape for each in graph.inputs[: len(definition.signature.input_arg)]]  # captures may follow
        with graph.as_default():
            return function_def_to_graph(definition, input_shapes=shapes)


def _origin(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor of which `tensor` is a copy, by Identity operations."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _functions(node: NodeDef) -> list[NameAttrList]:
    """The functions that an operation of CALLS calls."""
    if node.op not in CALLS:
        return []
    values = node.attr.values()
    lists = [each.list.func for each in values if each.WhichOneof("value") == "list"]
    return [*(each.func for each in values if each.WhichOneof("value") == "func"), *itertools.chain(*lists)]


def _graph(name: str, outer: Any) -> Any:
    """The graph of a function that `outer` calls by its name, with the shapes that were known where it was traced."""
    found = outer._get_function(name)
    if hasattr(found, "graph"):
        return found.graph
    # TensorFlow's own operations, such as tf.nn.ctc_loss, call functions of version 1, which keep no graph.
    with outer.as_default():  # such a function calls others of the outer graph by their names as operations
        return function_def_to_graph(_definition(name, outer))


def _definition(name: str, outer: Any) -> FunctionDef:
    """The definition of a function that `outer` calls by its name."""
    found = outer._get_function(name)
    is_plain = found is None or hasattr(found, "graph")
    return context.context().get_function_def(name) if is_plain else found.definition


def _specialized(name: str, graph: Any, shapes: Sequence[tf.TensorShape | None]) -> Any:
    """The function's graph, or one with more of the shapes that its inputs have at a call."""
    if not any(
        shape is not None and shape.is_fully_defined() and not own.shape.is_fully_defined()
        for own, shape in zip(graph.inputs, shapes, strict=False)
    ):
        return graph
    definition = context.context().get_function_def(name)
    for each in definition.arg_attr.values():
        each.attr.pop("_output_shapes", None)
    return function_def_to_graph(definition, input_shapes=shapes)


def _add_checks(
    definition: FunctionDef, checks: Mapping[tf.Operation, list[tuple[int, ValueCheck]]], passing: bool
) -> None:
    """Adds checks before inputs of nodes that a call of the function runs."""
    nodes, known = {node.name: node for node in definition.node_def}, constants(definition)
    running = _running(definition, nodes)
    made: dict[tuple[str, ValueCheck], str] = {}
    for operation, found in checks.items():
        if operation.name not in running:
            continue
        node = nodes[operation.name]
        for number, check in found:
            given = node.input[number]
            if given.partition(":")[0] in known:
                continue
            if (given, check) not in made:
                name, operand = f"{node.name}{CHECK_SUFFIX}{number}", operation.inputs[number]
                passes = passing and operand.shape.is_fully_defined()
                definition.node_def.append(check_node(name, given, operand, check, passes))
                made[given, check] = f"{name}:results:0" if passes else given
            node.input[number] = made[given, check]


def _running(definition: FunctionDef, nodes: Mapping[str, NodeDef]) -> set[str]:
    """The nodes that a call of a function runs: those on which results and side effects depend."""
    pending = [_source(given) for given in (*definition.ret.values(), *definition.control_ret.values())]
    running: set[str] = set()
    while pending:
        name = pending.pop()
        if name in nodes and name not in running:
            running.add(name)
            pending += [_source(given) for given in nodes[name].input]
    return running


def _replace(definition: FunctionDef, costly: dict[str, tf.Operation]) -> None:
    """Replaces nodes by custom calls, whose results have names of their own."""
    renamed = {
        f"{name}:{result}:0": f"{name}:results:{k}"
        for name, each in costly.items()
        for k, result in enumerate(results(each.type))
    }
    for node in definition.node_def:
        for number, given in enumerate(node.input):
            if given in renamed:
                node.input[number] = renamed[given]
        if node.name in costly:
            make_custom_call(node, costly[node.name])
    for result, given in list(definition.ret.items()):
        definition.ret[result] = renamed.get(given, given)


def _has_unused(graph: Any) -> bool:
    """Whether a function's graph has placeholders that are no inputs, or summaries."""
    fed = {each.op.name for each in graph.inputs}
    return any(each.type in LEFT_OUT and each.name not in fed for each in graph.get_operations())


def _leave_out_unused(definition: FunctionDef) -> None:
    """Removes operations that XLA refuses, and nodes that depend on them, unless results depend on these, too."""
    nodes = {node.name: node for node in definition.node_def}
    unused = {name for name, node in nodes.items() if node.op in LEFT_OUT}
    if not unused:
        return
    changed = True
    while changed:  # a node may come before those that it depends on
        size = len(unused)
        unused |= {name for name, node in nodes.items() if any(_source(each) in unused for each in _data(node))}
        changed = len(unused) > size
    for result, name in list(definition.control_ret.items()):
        if name in unused:
            del definition.control_ret[result]
            definition.signature.control_output.remove(result)
    for node in nodes.values():
        kept = [each for each in node.input if not each.startswith("^") or each[1:] not in unused]
        node.ClearField("input")
        node.input.extend(kept)
    _keep_running(definition)


def _keep_running(definition: FunctionDef) -> None:
    """Removes nodes that a call does not run: XLA would convert them."""
    nodes = {node.name: node for node in definition.node_def}
    needed = _running(definition, nodes)
    kept_nodes = [node for name, node in nodes.items() if name in needed]
    definition.ClearField("node_def")
    definition.node_def.extend(kept_nodes)


def _data(node: NodeDef) -> list[str]:
    return [each for each in node.input if not each.startswith("^")]


def _source(given: str) -> str:
    """The name of the operation that an input, or a result of a function, comes from."""
    return given.removeprefix("^").partition(":")[0]
