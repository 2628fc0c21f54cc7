"""Traces a step function to a Module and binds each parameter to a feed, a variable or a constant."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

from engine.compile_progress import slow_notice
from engine.errors import UnsupportedOperation
from engine.ir import Module
from engine.ir.device_operations import RECOMPUTATION_CHECKPOINT, target_of
from engine.ir.op_names import WHOLE, ambiguous_scopes, outermost_scope
from engine.ir.value_checks import value_checks, without_checks
from engine.partition.storage import Storage
from ipu._internal.compiler.batch_norm import with_groups
from ipu._internal.compiler.device_variables import DeviceVariable, HostVariable
from ipu._internal.compiler.emission import module_of
from ipu._internal.compiler.fixed_variables import Fixed, fixed_parameters, needed_parameter, refusal
from ipu._internal.compiler.growing_arrays import require_fixed_sizes
from ipu._internal.compiler.handles import is_variable
from ipu._internal.compiler.optimizer_state import OptimizerState, optimizer_state_of
from ipu._internal.compiler.outlined_bodies import with_outlined_bodies
from ipu._internal.compiler.random_numbers import drawn_by_xla
from ipu._internal.compiler.sources import source_lines
from ipu._internal.compiler.tokens import CheckToken
from ipu._internal.compiler.traced_pipelines import has_pipeline_marks, ipus_of_function, with_traced_pipelines
from ipu._internal.compiler.value_checks import values_are_checked
from ipu._internal.compiler.variables import IPUVariable, engine_trace, only_for_programs, variable_of
from ipu._internal.host_functions.replacements import replace_host_operations
from ipu._internal.types import Variable

if TYPE_CHECKING:
    from engine.partition.pipeline import Pipelined
    from engine.partition.processes import Processes


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A step as the engine takes it.

    `roles` has one entry for each parameter of `module`; `variables` those with the role "variable", in order, and
    `updated` the ones the step assigns; `constants` the host values of the others, by parameter number. `pack` builds
    the structure the function returns from its flat results. `module` is executed by `replicas` replicas together,
    built from `alone`, or by `sequential` replicas one after the other. `storage` is what a chip keeps in streaming
    memory, `state_shards` the number of replicas among which it divides optimizer state, `state` the notes of the
    optimizers in a function. `pipelines` are built from loops of the module, each on several IPUs. `processes` are
    those that the module's collectives span.
    """

    module: Module
    roles: list[str]
    variables: list[DeviceVariable]
    updated: list[DeviceVariable]
    constants: dict[int, np.ndarray]
    pack: Callable[[Sequence[Any]], Any]
    replicas: int = 1
    sequential: int = 1
    alone: TracedStep | None = None
    storage: Storage = Storage()
    state_shards: int = 1
    state: OptimizerState | None = None
    pipelines: tuple[Pipelined, ...] = ()
    ipus: int = 1
    processes: Processes | None = None
    source_lines: Mapping[str, str] = field(default_factory=dict)
    fixed: Fixed = ()
    """Variables whose values the module has as constants, with these values."""
    graph_key: Hashable = None
    """Equal for two traces of one step only if they have the same graph of the same variables."""


replace_host_operations()


def trace_step(function: Callable[..., Any], specs: Sequence[tf.TensorSpec]) -> TracedStep:
    """Traces `function`, called with one tensor for each of `specs`, without running it in TensorFlow.

    A notice on stderr says so if tracing takes seconds. Raises UnsupportedOperation where XLA cannot compile an
    operation of the function.
    """
    with slow_notice():
        concrete, used = _traced(function, specs)
        return replace(bind(concrete, used), graph_key=_graph_key(concrete))


def graph_of(function: Callable[..., Any], specs: Sequence[tf.TensorSpec]) -> tf.Graph:
    """TensorFlow's graph of `function`, called with one tensor for each of `specs`, traced as `trace_step` does."""
    return _traced(function, specs)[0].graph


def graph_key_of(function: Callable[..., Any], specs: Sequence[tf.TensorSpec]) -> Hashable:
    """The `graph_key` that `trace_step` gives this function."""
    return _graph_key(_traced(function, specs)[0])


def _graph_key(concrete: ConcreteFunction) -> Hashable:
    graph = concrete.graph.as_graph_def()
    for node in graph.node:
        node.attr.pop("_gradient_op_type", None)  # a number of its own in each trace
    text = hashlib.sha256(graph.SerializeToString(deterministic=True))
    variables = []
    for captured in concrete.captured_inputs:
        if captured.dtype == tf.resource:
            variables.append(id(captured))  # the program keeps its variables, and these their handles
        else:
            text.update(captured.numpy().tobytes())
    return text.digest(), tuple(variables), str(concrete.function_type.output), drawn_by_xla.value


def _traced(function: Callable[..., Any], specs: Sequence[tf.TensorSpec]) -> tuple[Any, dict[int, IPUVariable]]:
    @functools.wraps(function)
    def traced(*arguments: tf.Tensor) -> Any:
        only_for_programs()
        return function(*arguments)

    with engine_trace() as used:
        compiled = tf.function(traced, jit_compile=True, autograph=False)
        return compiled.get_concrete_function(*specs), used


def bind(concrete: ConcreteFunction, used: Mapping[int, DeviceVariable]) -> TracedStep:
    """Binds a concrete function traced in `engine_trace`, which collected `used`.

    Parameter k of the module is input k of the function: its arguments, then its captures. Raises UnsupportedOperation
    for captured host resources, dynamic shapes, strings, and operations that XLA refuses.
    """
    captured = concrete.captured_inputs
    arguments = concrete.inputs[: len(concrete.inputs) - len(captured)]
    for argument in arguments:
        if argument.dtype == tf.resource:
            raise UnsupportedOperation(
                f"Expected tensors as arguments. Received: {argument.name!r}, a variable of an input_signature or "
                "another resource. Make a data set's iterator, iter(dataset), in the strategy's scope; use a variable "
                "without an argument, or leave out the input_signature."
            )
    # An IPUVariable is in `used`; reading its `_handle` would copy its value to the host.
    others = [v for v in concrete.graph.variables if not isinstance(v, IPUVariable) and hasattr(v, "_handle")]
    by_handle: dict[int, Any] = {id(v._handle): v for v in others}
    by_handle.update(used)
    roles = ["feed"] * len(arguments)
    resources: dict[int, DeviceVariable] = {}
    constants: dict[int, np.ndarray] = {}
    for number, tensor in enumerate(captured, start=len(arguments)):
        if tensor.dtype == tf.variant:
            raise UnsupportedOperation(
                "Expected tensors and variables in a function that runs on the IPU. Received: a tensor of dtype "
                "variant, which is a data set or another host object. Make an iterator in the strategy's scope, "
                "iter(dataset), and call next() on it in the function."
            )
        if tensor.dtype != tf.resource:
            roles.append("constant")
            constants[number] = tensor.numpy()
            continue
        roles.append("variable")
        resources[number] = _variable(by_handle.get(id(tensor)), tensor)
    specs, checks = [tf.TensorSpec(a.shape, a.dtype) for a in arguments], values_are_checked()
    try:
        imported = module_of(concrete, specs, checks)
    except UnsupportedOperation:
        without_values = [number for number, each in resources.items() if not specs and not hasattr(each, "numpy")]
        if (needed := needed_parameter(concrete, without_values)) is not None:
            raise refusal(resources[needed].name) from None
        raise
    numbers = [] if specs else fixed_parameters(concrete, imported, list(resources))
    fixed = {number: _present(resources[number]) for number in numbers}
    if fixed:  # the host's copies, from which XLA takes the values, are new now
        imported = module_of(concrete, specs, checks)
    if has_pipeline_marks(imported):
        require_fixed_sizes(imported)
        imported = without_checks(imported)
    imported, tokens = _with_check_tokens(imported)
    roles += ["variable"] * len(tokens)
    resources |= {number: CheckToken() for number in tokens}
    op_names = {each.op_name for computation in imported.computations() for each in computation.instructions}
    keep_distinct_scopes(imported)
    module, pipelines = with_traced_pipelines(_with_checkpoints(with_outlined_bodies(imported)))
    module = with_groups(module)
    updated = [variable for number, variable in resources.items() if number in module.aliases]
    pack = concrete.function_type.pack_output
    ipus = ipus_of_function(concrete.graph, pipelines)
    return TracedStep(
        *(module, roles, list(resources.values()), updated, constants, pack),
        state=optimizer_state_of(concrete.graph),
        pipelines=tuple(pipelines),
        ipus=ipus,
        source_lines=source_lines(concrete.graph, op_names),
        fixed=tuple((resources[number], value) for number, value in fixed.items()),
    )


def _present(variable: DeviceVariable) -> np.ndarray:
    """The present value of a variable. Raises ShapeFromValues for one of a tf.Graph, which has a value in sessions."""
    if not hasattr(variable, "numpy"):
        raise refusal(variable.name)
    return np.array(variable.numpy())


def _with_check_tokens(module: Module) -> tuple[Module, list[int]]:
    if not any(value_checks(module)):
        return module, []
    # As in `_with_checkpoints`.
    from engine.partition.check_tokens import with_check_tokens

    return with_check_tokens(module)


def _with_checkpoints(module: Module) -> Module:
    if not any(target_of(i) == RECOMPUTATION_CHECKPOINT for i in module.instructions()):
        return module
    # The engine's passes load Numba, which takes long: imported only for a mark.
    from engine.partition.checkpoints import with_checkpoints

    return with_checkpoints(module)


def _variable(variable: Variable, handle: tf.Tensor) -> DeviceVariable:
    known = variable_of(handle)
    variable = variable if known is None else known
    if variable is None and not is_variable(handle):
        raise UnsupportedOperation(
            f"Expected resources that are variables. Received: {getattr(handle, 'name', handle)!r}, "
            f"which is a table, an iterator or another host resource. Use it in the input pipeline; make iterators "
            f"over data sets in the strategy's scope."
        )
    return variable if hasattr(variable, "device_buffer") else HostVariable(handle, variable)


def keep_distinct_scopes(imported: Module) -> None:
    """Puts operations that differ in their outermost scope alone into a scope that makes reports print the whole scope.

    Reports leave out the outermost scope, which is the name of a Keras model; in functions of one's own it may be all
    that tells two operations apart, as in a/dense and b/dense. `imported` is a module that no pass has seen.
    """
    instructions = [each for computation in imported.computations() for each in computation.instructions]
    scopes = ambiguous_scopes({each.op_name for each in instructions})
    for each in instructions if scopes else ():
        if outermost_scope(each.op_name) in scopes:
            each.op_name = f"{WHOLE}/{each.op_name}"
