"""Calls of outlined functions in a traced function: each body is traced once, and so is its gradient."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, record
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.framework import func_graph, op_def_registry, ops
from tensorflow.python.ops import gen_array_ops, resource_variable_ops, variable_scope

from engine.errors import ConfigurationError
from engine.ir.device_operations import OUTLINED, RECOMPUTATION_CHECKPOINT
from engine.ir.op_names import BACKWARD, stage_in
from ipu._internal.compiler.device_calls import device_call
from ipu._internal.compiler.graph_structure import structure_of
from ipu._internal.compiler.handles import is_variable
from ipu._internal.compiler.outlined_bodies import OutlinedFunction, keep
from ipu._internal.compiler.variables import only_for_programs
from ipu._internal.conversion import converted
from ipu._internal.function_code import closed_over, codes_of
from ipu._internal.types import Function, Nest

READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarHandleOp"})
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "While", "If", "Case", "Placeholder"})
PURE = frozenset({OUTLINED, RECOMPUTATION_CHECKPOINT})
"""Targets of custom calls without side effects whose results depend on their operands alone."""
GRADIENT = "IpuOutlinedFunction"
"""Name by which TensorFlow knows the gradient of calls in graphs without a tape."""
_numbers = itertools.count()


class _Traced:
    """A function traced for the specs of some arguments: its body, and the tensors that a call passes beyond its
    arguments.
    """

    def __init__(self, concrete: ConcreteFunction, structure: Nest, body: _Lifted) -> None:
        self.structure = structure
        captures = list(concrete.graph.captures)
        self.lifted = [outer for outer, _ in captures if outer.dtype != tf.resource]
        self.variables = [outer for outer, _ in captures if outer.dtype == tf.resource]
        self._accessed = list(concrete.graph.variables)
        self._body = body

    def call(self, arguments: Sequence[tf.Tensor]) -> Any:
        """The results of the function, as it returns them."""
        for variable in self._accessed:
            resource_variable_ops.variable_accessed(variable)
        values = [_value_of(self.variables[k]) for k in self._body.order]
        results = iter(self._body.caller.call([*arguments, *self.lifted, *values]))
        return tf.nest.map_structure(lambda each: None if each is None else next(results), self.structure)


class _Lifted:
    """The body of a traced function whose captures follow its arguments as parameters, last the values of variables.

    `order` has the numbers of those variables among the captured ones. Functions of equal structure share it.
    """

    def __init__(self, name: str, concrete: ConcreteFunction) -> None:
        captures = list(concrete.graph.captures)
        with ops.init_scope(), context.eager_mode(), tf.device("/device:CPU:0"):
            examples = [_example(outer) for outer, _ in captures if outer.dtype == tf.resource]
        specs = [tf.TensorSpec(t.shape, t.dtype) for t in concrete.inputs if t.dtype != tf.resource]
        count = len(concrete.inputs) - len(captures)

        def with_values(*flat: tf.Tensor) -> list[tf.Tensor]:
            lifted, handles = iter(flat[count:]), iter(examples)
            given = [next(handles).handle if c.dtype == tf.resource else next(lifted) for c, _ in captures]
            return list(concrete._call_flat(list(flat[:count]), given))

        body = OutlinedFunction(name, tf.function(with_values, autograph=False).get_concrete_function(*specs))
        numbers = {id(example.handle): k for k, example in enumerate(examples)}
        self.order = [numbers[id(handle)] for handle in body.handles]
        self.caller = _Caller(body, examples)


class _Caller:
    """Calls of a body, whose gradient is a body, too."""

    def __init__(self, body: OutlinedFunction, variables: Sequence[Any]) -> None:
        self.body = body
        by_handle = {id(variable.handle): variable for variable in variables}
        self.variables = [by_handle[id(handle)] for handle in body.handles]
        self._gradient: _Gradient | None = None

    def call(self, operands: Sequence[tf.Tensor], number: int | None = None) -> list[tf.Tensor]:
        """The flat results; a call that is the gradient of another one has its number."""
        config = {"body": self.body.key, "call": number, "gradient": number is not None}
        if number is None:
            config["call"] = number = next(_numbers)
        results = [tf.TensorSpec(t.shape, t.dtype) for t in self.body.outputs]
        graph = ops.get_default_graph()
        keep(graph, self.body)
        # tf.custom_gradient would add an Identity and zeros for each operand to every call.
        with record.stop_recording(), graph.gradient_override_map({"XlaCustomCallV2": GRADIENT}):
            with tf.name_scope(self.body.name):
                tensors = device_call(OUTLINED, operands, config, results)
        # Not `operands`, which may be of an outer graph: the gradient of a branch in a loop has the call's graph alone.
        gradient = partial(self.gradient, list(tensors[0].op.inputs), number, str(graph.get_name_scope()))
        tensors[0].op._ipu_outlined_gradient = gradient
        record.record_operation(self.body.name, tensors, list(operands), gradient)
        return tensors

    def gradient(
        self, operands: Sequence[tf.Tensor], number: int, scope: str, *upstream: tf.Tensor
    ) -> list[tf.Tensor | None]:
        """The gradient by each operand of the call of that number in `scope`, given the gradients by its results."""
        if self._gradient is None:
            self._gradient = _Gradient(self)
        with _gradient_scope(scope):
            return self._gradient.call(operands, upstream, number)


def _gradient_scope(scope: str) -> Any:
    """Opens the scope of the stage for the gradient of a call in a pipeline's stage, as a tape does not open it."""
    if stage_in(scope) is None or stage_in(ops.get_default_graph().get_name_scope()) is not None:
        return nullcontext()
    return tf.name_scope(f"{BACKWARD}/{scope}/")


@ops.RegisterGradient(GRADIENT)
def _registered_gradient(call: tf.Operation, *upstream: tf.Tensor) -> list[tf.Tensor | None]:
    gradients: list[tf.Tensor | None] = call._ipu_outlined_gradient(*upstream)
    return gradients


class _Gradient:
    """The gradient of a body by its differentiable operands; it computes again what it needs of the forward pass."""

    def __init__(self, forward: _Caller) -> None:
        body, variables = forward.body, forward.variables
        self._upstream = [k for k, each in enumerate(body.outputs) if each.dtype.is_floating]
        self._parts: dict[int, list[tf.Tensor]] = {}

        def gradient(*flat: tf.Tensor) -> list[tf.Tensor]:
            arguments, upstream = flat[: len(body.specs)], flat[len(body.specs) :]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                sources = [*arguments, *variables]
                for source in sources:
                    if source.dtype.is_floating:
                        tape.watch(source)
                results = list(body.concrete._call_flat(list(arguments), [v.handle for v in variables]))
            differentiable = [k for k, source in enumerate(sources) if source.dtype.is_floating]
            targets = [results[k] for k in self._upstream]
            found = tape.gradient(targets, [sources[k] for k in differentiable], list(upstream))
            by_source = dict(zip(differentiable, found, strict=True))
            self._parts = {k: _parts(each, sources[k].shape) for k, each in by_source.items() if each is not None}
            return [part for parts in self._parts.values() for part in parts]

        outputs = [body.outputs[k] for k in self._upstream]
        specs = [*body.specs, *(tf.TensorSpec(each.shape, each.dtype) for each in outputs)]
        concrete = tf.function(gradient, autograph=False).get_concrete_function(*specs)
        handles = {id(variable.handle): k for k, variable in enumerate(variables)}
        self._order = [handles[id(handle)] for handle in concrete.captured_inputs]
        self._arguments = len(body.specs)
        self._caller = _Caller(OutlinedFunction(f"{body.name}_gradient", concrete), variables) if self._parts else None

    def call(self, operands: Sequence[tf.Tensor], upstream: Sequence[tf.Tensor], number: int) -> list[tf.Tensor | None]:
        """The gradient by each operand of the call of that number; None by those that it does not depend on."""
        gradients: list[tf.Tensor | None] = [None] * len(operands)
        if self._caller is not None:
            arguments, values = operands[: self._arguments], operands[self._arguments :]
            dense = (tf.convert_to_tensor(upstream[k]) for k in self._upstream)  # from IndexedSlices
            given = [*arguments, *dense, *(values[k] for k in self._order)]
            found = iter(self._caller.call(given, number))
            for k, parts in self._parts.items():
                gradient = next(found)
                if len(parts) > 1:
                    gradient = tf.IndexedSlices(
                        gradient, next(found), tf.constant(operands[k].shape.as_list(), tf.int32)
                    )
                gradients[k] = gradient
        return gradients


def _parts(gradient: Any, shape: tf.TensorShape) -> list[tf.Tensor]:
    """The tensors of a gradient by a tensor of that shape: of IndexedSlices whose size is known, values and indices."""
    if isinstance(gradient, tf.IndexedSlices) and gradient.indices.shape.is_fully_defined():
        gradient.values.set_shape(gradient.indices.shape.concatenate(shape[1:]))
        return [gradient.values, gradient.indices]
    dense = tf.convert_to_tensor(gradient)
    dense.set_shape(shape)  # which IndexedSlices lack
    return [dense]


def keep_inline(graph: Any) -> None:
    """Makes the outlined functions whose traces contain the graph be called without outlining."""
    while graph is not None:
        graph._ipu_inline = True
        graph = getattr(graph, "outer_graph", None)


def call_outlined(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None) -> Any:
    """The results of `function`, whose body is traced once for all calls with arguments of the same shapes and dtypes.

    In a tf.Graph each call is traced, and those of equal structure share a body. A function with side effects or a
    hidden state is called as it is.
    """
    called, status = converted(function), tf.__internal__.autograph.control_status_ctx()
    graph = ops.get_default_graph()
    flat = tf.nest.flatten((args, kwargs))
    places = [k for k, leaf in enumerate(flat) if _is_tensor_like(leaf, k < len(tf.nest.flatten(args)))]
    tensors = [tf.convert_to_tensor(flat[k]) for k in places]
    others = [leaf for k, leaf in enumerate(flat) if k not in places]
    attributes = dict(graph._attr_scope_map)
    known = graph._ipu_outlined_functions = getattr(graph, "_ipu_outlined_functions", {})
    bodies = graph._ipu_outlined_bodies = getattr(graph, "_ipu_outlined_bodies", {})
    kept: list[Any] = [*_state_of(function), *others]
    specs = tuple((tensor.dtype, str(tensor.shape)) for tensor in tensors)  # Dimensions of version 1 have no hash
    key: Hashable = (tuple(map(id, kept)), specs, tuple(places), repr(attributes), name)
    if _in_graph():
        key = object()  # which variables get_variable gives depends on scopes and on calls before, as in TensorFlow
    if key not in known:

        def body(*arguments: tf.Tensor) -> Any:
            leaves = list(flat)
            for k, argument in zip(places, arguments, strict=True):
                leaves[k] = argument
            new_args, new_kwargs = tf.nest.pack_sequence_as((args, kwargs), leaves)
            with status, ops.get_default_graph()._attr_scope(attributes):
                return called(*new_args, **new_kwargs)

        shown = re.sub(r"\W+", "", name or str(getattr(function, "__name__", ""))) or "outlined"
        store = _VariableStore()
        known[key] = _trace(shown, body, tensors, bodies, store), kept, store
    traced, _, store = known[key]
    if traced is not None:
        return traced.call(tensors)
    with store.as_before():
        return called(*args, **kwargs)


def _trace(
    name: str,
    body: Callable[..., Any],
    tensors: Sequence[tf.Tensor],
    bodies: dict[Hashable, _Lifted],
    store: _VariableStore,
) -> _Traced | None:
    """The traced function; None if it cannot be shared. Raises ConfigurationError for one that returns nothing.

    `bodies` are the bodies of earlier functions, by their structure.
    """
    structure: list[Any] = []

    def flat(*arguments: tf.Tensor) -> list[tf.Tensor]:
        only_for_programs()
        with store.creating():
            results = body(*arguments)
        structure[:] = [results]
        return [tf.convert_to_tensor(each) for each in tf.nest.flatten(results) if each is not None]

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
    concrete = tf.function(flat, autograph=False).get_concrete_function(*specs)
    if not concrete.outputs:
        raise ConfigurationError(
            f"Expected an outlined function that returns at least one tensor. Received: {name}, which returns none. "
            f"Return its results."
        )
    if getattr(concrete.graph, "_ipu_inline", False):
        return None
    static = all(t.shape.is_fully_defined() for t in (*concrete.inputs, *concrete.outputs) if t.dtype != tf.resource)
    definition = concrete.graph.as_graph_def()
    if not static or not _is_pure(concrete.graph, definition):
        return None
    equal = structure_of(concrete, definition) or object()
    if equal not in bodies:
        bodies[equal] = _Lifted(name, concrete)
    return _Traced(concrete, structure[0], bodies[equal])


class _VariableStore:
    """The state of a tf.Graph that tracing a function changes outside it: its variables, and the counts of its scopes.

    A function that is called as it is after its trace gets the variables of the trace.
    """

    def __init__(self) -> None:
        self._made: list[Any] = []
        self._in_graph = _in_graph()
        if self._in_graph:
            self._places = [variable_scope._get_default_variable_store()._vars]
            self._places.append(variable_scope.get_variable_scope_store().variable_scopes_count)
            self._before = [dict(place) for place in self._places]

    @contextmanager
    def creating(self) -> Iterator[None]:
        """Creates variables in the graph, and not as those of a tf.function."""

        def create(_: Any, **arguments: Any) -> Any:
            with ops.init_scope():
                self._made.append(tf.compat.v1.Variable(**arguments))
            return self._made[-1]

        with tf.variable_creator_scope(create) if self._in_graph else nullcontext():
            yield

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """Restores names from before the trace, and reuses its variables for new ones, while the context is open."""
        made = iter(self._made)
        for place, before in zip(self._places, self._before, strict=True) if self._in_graph else ():
            place.clear()
            place.update(before)
        with tf.variable_creator_scope(lambda *_, **__: next(made)) if self._made else nullcontext():
            yield


def _in_graph() -> bool:
    """Whether there is a tf.Graph around all functions."""
    with ops.init_scope():
        return not context.executing_eagerly()


def _is_pure(graph: func_graph.FuncGraph, definition: Any) -> bool:
    """Whether the results depend on arguments and values of variables alone, and nothing else happens."""
    if not all(outer.dtype != tf.variant for outer, _ in graph.captures):
        return False
    if not all(is_variable(outer) for outer, _ in graph.captures if outer.dtype == tf.resource):
        return False
    nodes = itertools.chain(definition.node, *(each.node_def for each in definition.library.function))
    return all(_is_pure_node(node) for node in nodes)


def _is_pure_node(node: Any) -> bool:
    if node.op == "XlaCustomCallV2":
        return node.attr["call_target_name"].s.decode() in PURE
    if node.op in READS or node.op in CALLS:
        return True
    definition = op_def_registry.get(node.op)
    return definition is not None and not definition.is_stateful


def _is_tensor_like(leaf: Any, is_positional: bool) -> bool:
    """Whether an argument becomes a parameter; numbers given by name are options of the function."""
    if tf.is_tensor(leaf) or isinstance(leaf, np.ndarray | np.generic):
        return True
    return is_positional and isinstance(leaf, bool | int | float)


def _state_of(function: Function, depth: int = 3) -> list[Any]:
    """The objects that a function's result depends on, besides its arguments, as far as they can be seen."""
    inner = getattr(function, "__func__", function)
    found = [getattr(function, "__self__", None)]
    if not isinstance(inner, FunctionType):
        return [*found, inner]
    names = {name for code in codes_of(inner.__code__) for name in code.co_names}
    seen = [*closed_over(inner), *(inner.__globals__[name] for name in sorted(names & inner.__globals__.keys()))]
    found += [inner.__code__, *(inner.__defaults__ or ()), *(inner.__kwdefaults__ or {}).values()]
    for each in seen:
        near = isinstance(each, FunctionType) and each.__globals__ is inner.__globals__ and depth
        found += _state_of(each, depth - 1) if near else [each]
    return found


def _example(handle: tf.Tensor) -> resource_variable_ops.ResourceVariable:
    """A variable for XLA to take dtype and shape from; its memory is never touched."""
    (data,) = resource_variable_ops.get_eager_safe_handle_data(handle).shape_and_type
    value = gen_array_ops.empty([each.size for each in data.shape.dim], tf.as_dtype(data.dtype))
    return resource_variable_ops.ResourceVariable(value, trainable=False)


def _value_of(handle: tf.Tensor) -> tf.Tensor:
    """The value of a variable, read so that a gradient tape sees it."""
    (data,) = resource_variable_ops.get_eager_safe_handle_data(handle).shape_and_type
    return resource_variable_ops.gen_resource_variable_ops.read_variable_op(handle, tf.as_dtype(data.dtype))
