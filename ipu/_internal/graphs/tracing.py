"""Traces a computation of a tf.Graph to a function of tensors and variables, which the engine can compile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.eager import context, lift_to_graph
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.eager.polymorphic_function.polymorphic_function import OptionalXlaContext
from tensorflow.python.framework import func_graph, ops
from tensorflow.python.ops import gen_array_ops, handle_data_util, resource_variable_ops

from engine.errors import ConfigurationError, UnsupportedOperation
from ipu._internal.compiler.device_variables import DeviceVariable
from ipu._internal.compiler.fixed_variables import MOST_VALUES
from ipu._internal.compiler.function_trace import function_trace
from ipu._internal.compiler.tokens import traced_for
from ipu._internal.compiler.trace import TracedStep, bind
from ipu._internal.compiler.variables import IPUVariable, engine_trace, only_for_programs
from ipu._internal.graphs.lost_updates import check_updates, refusing_lost_updates
from ipu._internal.graphs.sessions import programs_of
from ipu._internal.graphs.variables import GraphVariable
from ipu._internal.name_scopes import in_present_scope
from ipu._internal.types import Nest, Variable

v1 = tf.compat.v1
UnreadVariable = resource_variable_ops._UnreadVariable


@dataclass(frozen=True, slots=True)
class GraphFunction:
    """A function traced in a tf.Graph.

    Its parameters are `inputs`, which are tensors of the graph, then those of `resources`: variables of the graph,
    and others with their handles.
    """

    graph: func_graph.FuncGraph
    defined: atomic_function.AtomicFunction
    """The function's definition in TensorFlow, which lives as long as this object."""
    inputs: list[tf.Tensor]
    resources: list[GraphVariable | tf.Tensor]
    used: dict[int, IPUVariable]
    results: Nest
    """The nested results, or None where there are operations alone."""

    @property
    def outputs(self) -> list[tf.TensorSpec]:
        """Shapes and dtypes of the flat results."""
        return [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in self.graph.outputs]

    def step(self, shapes: Sequence[tuple[int, ...]], constants: Mapping[int, np.ndarray]) -> TracedStep:
        """The step for inputs of these shapes; those in `constants`, by number, are no parameters. Raises as `bind`."""
        pairs = enumerate(zip(shapes, self.inputs, strict=True))
        specs = [tf.TensorSpec(shape, each.dtype) for k, (shape, each) in pairs if k not in constants]
        with ops.init_scope(), context.eager_mode(), tf.device("/device:CPU:0"):
            examples = {e: _example(e) for e in self.resources if isinstance(e, GraphVariable)}
            handles = [examples[e].handle if isinstance(e, GraphVariable) else e for e in self.resources]
            used: dict[int, DeviceVariable] = dict(self.used)
            used.update((id(example.handle), variable) for variable, example in examples.items())
            defined = self._with_constants(specs, constants) if constants else self.defined
            return bind(_Bindable(self.graph, defined.name, [*specs, *handles], handles), used)

    def _with_constants(
        self, specs: Sequence[tf.TensorSpec], constants: Mapping[int, np.ndarray]
    ) -> atomic_function.AtomicFunction:
        """The function of the other inputs, and of the resources."""
        graph = func_graph.FuncGraph(f"{self.graph.name}_{ops.uid()}")
        with graph.as_default():
            parameters = [v1.placeholder(spec.dtype, spec.shape) for spec in specs]
            fed = iter(parameters)
            inputs = [
                tf.constant(constants[k], each.dtype) if k in constants else next(fed)
                for k, each in enumerate(self.inputs)
            ]
            resources = [v1.placeholder(tf.resource, []) for _ in self.resources]
            for resource, inner in zip(resources, self.graph.inputs[len(self.inputs) :], strict=True):
                handle_data_util.copy_handle_data(inner, resource)
            graph.inputs = [*parameters, *resources]
            graph.outputs = self.defined.call_flat(*inputs, *resources)
            self.graph._add_function_recursive(self.defined)  # custom_calls.py looks in it for what is called here
            graph.control_outputs = graph.get_operations()[-1:]
        return atomic_function.from_func_graph(graph.name, graph, {})


@dataclass(frozen=True, slots=True)
class _Bindable:
    """The attributes of a concrete function that `bind` reads."""

    graph: func_graph.FuncGraph
    name: bytes
    inputs: list[Any]
    captured_inputs: list[tf.Tensor]

    @property
    def function_type(self) -> _Bindable:
        return self

    def pack_output(self, results: Sequence[Any]) -> list[Any]:
        """The flat results."""
        return list(results)


def _example(variable: GraphVariable) -> resource_variable_ops.ResourceVariable:
    """A variable for XLA to take dtype and shape from; the memory of a large one is never touched.

    XLA may take the values of a small one for shapes, which `bind` refuses: the same ones each time. Raises
    UnsupportedOperation for a variable without a static shape.
    """
    if not variable.shape.is_fully_defined():
        raise UnsupportedOperation(
            f"Expected variables of static shape. Received: {variable.name!r} of shape {variable.shape}. Give its "
            "initial value a static shape, and leave out validate_shape=False."
        )
    is_small = variable.shape.num_elements() <= MOST_VALUES
    value = gen_array_ops.empty(variable.shape.as_list(), variable.dtype, init=is_small)
    return resource_variable_ops.ResourceVariable(value, trainable=False)


def trace_in_graph(computation: Callable[..., Any], inputs: Sequence[Nest], ordinal: int) -> GraphFunction:
    """Traces `computation` of `inputs`, nested tensors of the default graph, for a device.

    Raises ConfigurationError, which is a ValueError, for tensors of other graphs, and for updates of reference
    variables; UnsupportedOperation for captured host resources.
    """
    outer = tf.compat.v1.get_default_graph()
    flat = tf.nest.flatten(list(inputs))
    results: list[Any] = []

    @in_present_scope
    def body(*arguments: tf.Tensor) -> list[tf.Tensor]:
        only_for_programs()
        # XLA's context makes loops have the static bounds that it needs.
        with tf.device(f"/device:IPU:{ordinal}"), OptionalXlaContext(True):
            returned = computation(*tf.nest.pack_sequence_as(list(inputs), list(arguments)))
            check_updates(returned)
        results.append(None if isinstance(returned, tf.Operation) else tf.nest.map_structure(_dense, returned))
        return tf.nest.flatten(results[0]) if results[0] is not None else []

    name = f"ipu_program_{ops.uid()}"
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in flat]
    with engine_trace() as used, function_trace(), traced_for(ordinal), tf.variable_creator_scope(_create_variable):
        # Programs of TensorFlow 1 are not converted by AutoGraph.
        with _explaining_references(), refusing_lost_updates(), ag_ctx.ControlStatusCtx(ag_ctx.Status.DISABLED):
            graph = func_graph.func_graph_from_py_func(name, body, specs, {}, add_control_dependencies=True)
    tensors: list[tuple[Any, Any]] = []
    resources: list[tuple[Any, Any]] = []
    for captured, inside in graph.captures:
        if not isinstance(captured, ops.EagerTensor) and captured.graph is not outer:
            raise ConfigurationError(
                f"Expected tensors and variables of the graph that the computation is compiled in. Received: "
                f"{captured.name!r} of another graph. Create it in this one."
            )
        is_resource = captured.dtype == tf.resource or isinstance(captured, ops.EagerTensor)
        (resources if is_resource else tensors).append((captured, inside))
    graph.inputs = [*graph.inputs[: len(flat)], *(inside for _, inside in (*tensors, *resources))]
    with context.eager_mode():
        _define_called(graph._functions.values())
        defined = atomic_function.from_func_graph(name, graph, {})
    return GraphFunction(
        *(graph, defined, [*flat, *(captured for captured, _ in tensors)]),
        resources=[_resource(outer, captured) for captured, _ in resources],
        used=used,
        results=results[0],
    )


def _dense(value: Any) -> Any:
    """A result of a program as a tensor: the gradient of a look-up becomes dense."""
    return tf.convert_to_tensor(value) if isinstance(value, tf.IndexedSlices) else value


def before_updates(value: Any) -> Any:
    """The value before updates, which is read first, of a variable that a computation returns; other values as is.

    An assignment's result, a variable that has not been read, has the value after it.
    """
    if not isinstance(value, resource_variable_ops.BaseResourceVariable) or isinstance(value, UnreadVariable):
        return value
    graph = tf.compat.v1.get_default_graph()
    handle = next((inner for outer, inner in graph.captures if outer is value.handle), None)
    users = (each for each in graph.get_operations() if any(tensor is handle for tensor in each.inputs))
    first = next(users, None)
    return first.outputs[0] if first is not None and first.type == "ReadVariableOp" else value


def _define_called(functions: Iterable[Any]) -> None:
    """Defines, for the compiler, the functions of TensorFlow 1 that these functions call, as CTC's loops do.

    TensorFlow defines such functions only in the graph that it traces. Raises ConfigurationError for two of one
    name.
    """
    for each in functions:
        if isinstance(each, atomic_function.AtomicFunction):
            _define_called(each.children)
            continue
        try:  # nothing happens for one that is defined already
            context.context().add_function_def(each.definition)
        except tf.errors.InvalidArgumentError as error:
            raise ConfigurationError(
                f"Expected functions of different names. Received: two of the name {each.name!r}, in two graphs. "
                "Give one another `func_name`, or none."
            ) from error


def _create_variable(next_creator: Callable[..., Any], **arguments: Any) -> Any:
    """A resource variable in the graph around the function, with its initial value."""
    value: Any = arguments.get("initial_value")
    if tf.is_tensor(value) and not isinstance(value, ops.EagerTensor) and value.graph.building_function:
        with ops.init_scope():
            outer = tf.compat.v1.get_default_graph()
        arguments["initial_value"] = lift_to_graph.lift_to_graph([value], outer)[value]
    with ops.init_scope():
        return next_creator(**{**arguments, "use_resource": True})


def _resource(graph: tf.Graph, captured: tf.Tensor) -> GraphVariable | tf.Tensor:
    if isinstance(captured, ops.EagerTensor):
        return captured
    if captured.op.type != "VarHandleOp":
        raise UnsupportedOperation(
            f"Expected resources that are variables. Received: {captured.name!r}, which is a table, an iterator or "
            f"another host resource. Use it in the input pipeline; feed data sets with an IPUInfeedQueue."
        )
    return programs_of(graph).variable(captured, lambda: _variable_of(graph, captured))


def _variable_of(graph: tf.Graph, handle: tf.Tensor) -> Variable:
    """The variable with this handle in the collections of the graph; None if it is in none."""
    keys = tf.compat.v1.GraphKeys
    everywhere = (v for key in (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES) for v in graph.get_collection(key))
    return next((variable for variable in everywhere if getattr(variable, "handle", None) is handle), None)


@contextmanager
def _explaining_references() -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError) as error:
        if not re.search(r"types \(\[tf\.\w+_ref\b", str(error)):
            raise
        raise ConfigurationError(
            "Expected resource variables to be updated by a program. Received: a reference variable. Create it with "
            "use_resource=True, or call tf.compat.v1.enable_resource_variables() first."
        ) from error
