"""Functions with custom calls in place of the operations of costly_kernels.py, for the time of a conversion to HLO.

Factorizations of matrices are replaced in each function that can be reached: loops, branches and called functions.
The other operations, which XLA can convert, are replaced in the outer function alone.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import NameAttrList
from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

from ipu._internal.compiler.costly_kernels import FACTORIZATIONS, constants, is_candidate, make_custom_call, results

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
"""Operations that call functions; the number of inputs that are not the functions'."""
INLINE = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
SUFFIX = "_custom_calls_"

_numbers = itertools.count()


@contextlib.contextmanager
def with_custom_calls(concrete: ConcreteFunction) -> Iterator[str | None]:
    """The name of a function like `concrete` with custom calls, for the time of the context; None if it needs none."""
    functions = _Functions()
    try:
        yield functions.rewritten(concrete.name, concrete.graph, all_candidates=True)
    finally:
        for each in functions.made:
            context.context().remove_function(each)


class _Functions:
    """Functions like others with custom calls, one for each function and shapes of its inputs."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self._factorizing: dict[str, bool] = {}
        self._called: dict[tuple[str, tuple[str, ...]], tuple[str | None, Any]] = {}
        # Of results of calls, beyond what their graph knows; by identity, in graphs that `_called` keeps alive.
        self._shapes: dict[int, tf.TensorShape] = {}

    def rewritten(self, name: str, graph: Any, all_candidates: bool) -> str | None:
        """The name of a function like the one of this name and graph; None if it needs no custom calls."""
        operations = {each.name: each for each in graph.get_operations()}
        candidates = {
            key: each
            for key, each in operations.items()
            if (all_candidates or each.type in FACTORIZATIONS) and is_candidate(each)
        }
        called = {key: self._of_call(each, graph) for key, each in operations.items() if each.type in CALLS}
        called = {key: renamed for key, renamed in called.items() if renamed}
        if not candidates and not called:
            return None
        definition = context.context().get_function_def(name)
        known = constants(definition)
        _replace(definition, {key: each for key, each in candidates.items() if key not in known})
        for node in definition.node_def:
            for function in _functions(node):
                function.name = called.get(node.name, {}).get(function.name, function.name)
        definition.signature.name = f"{definition.signature.name}{SUFFIX}{next(_numbers)}"
        context.context().add_function_def(definition)
        self.made.append(definition.signature.name)
        return self.made[-1]

    def _of_call(self, call: tf.Operation, graph: Any) -> dict[str, str]:
        """The names of the functions in place of those that an operation calls, where they need any."""
        found = {}
        for each in _functions(call.node_def):
            if not self._factorizes(each.name, graph):
                continue
            shapes = [self._shape(given) for given in call.inputs[CALLS[call.type] :]]
            key = each.name, tuple(map(str, shapes))
            if key not in self._called:
                specialized = _specialized(each.name, _graph(each.name, graph), shapes)
                self._called[key] = self.rewritten(each.name, specialized, all_candidates=False), specialized
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

    def _factorizes(self, name: str, outer: Any) -> bool:
        """Whether a function or one that it calls has a factorization."""
        if name not in self._factorizing:
            graph = _graph(name, outer)
            self._factorizing[name] = any(
                each.type in FACTORIZATIONS
                or (each.type in CALLS and any(self._factorizes(f.name, graph) for f in _functions(each.node_def)))
                for each in graph.get_operations()
            )
        return self._factorizing[name]


def _functions(node: NodeDef) -> list[NameAttrList]:
    """The functions that an operation of CALLS calls."""
    if node.op not in CALLS:
        return []
    values = node.attr.values()
    lists = [each.list.func for each in values if each.WhichOneof("value") == "list"]
    return [*(each.func for each in values if each.WhichOneof("value") == "func"), *itertools.chain(*lists)]


def _graph(name: str, outer: Any) -> Any:
    """The graph of a function, with the shapes that were known where it was traced."""
    found = outer._get_function(name)
    return found.graph if found is not None else function_def_to_graph(context.context().get_function_def(name))


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
