"""Compiles a function to the contents of an executable file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from engine.files.executable_file import ExecutableFile
from engine.runtime.execution_locks import Execution
from ipu._internal.compiler.calling import EngineFunction, for_device
from ipu._internal.compiler.device_variables import DeviceVariable, HostVariable
from ipu._internal.compiler.executable_files import signature_of
from ipu._internal.compiler.fixed_variables import refuse_assigned
from ipu._internal.compiler.tokens import is_token
from ipu._internal.compiler.trace import TracedStep


def traced_function(function: Callable[..., Any], inputs: Sequence[Any]) -> TracedStep:
    """Traces the function, a tf.function or not, for inputs of these shapes and dtypes.

    Raises UnsupportedOperation where XLA cannot compile an operation of the function.
    """
    if not isinstance(function, polymorphic_function.Function):
        function = tf.function(function)
    engine_function = EngineFunction(function)
    arguments = [tf.constant(each) if isinstance(each, np.ndarray | np.generic) else each for each in inputs]
    traced = engine_function.step((tuple(arguments), {}))
    refuse_assigned(traced.fixed, traced.updated)
    return for_device(traced, 0)


def executable_file(
    traced: TracedStep,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    *,
    freeze: bool = True,
    metadata: Mapping[str, str] | None = None,
) -> ExecutableFile:
    """Contents of the executable file of a step.

    Args:
        traced: the step.
        input_names: a name for each fed input, in order; input_0, input_1 ... if there are none.
        output_names: a name for each result that is no variable's update; output_0, output_1 ... if there are none.
        freeze: variables keep their present values: as constants, or as initial values where the step writes them.
            Otherwise the loader of the file supplies them by name.
        metadata: free text.

    Raises:
        ValueError: more or fewer names than inputs or outputs.
    """
    module, roles = traced.module, list(traced.roles)
    numbers = [number for number, role in enumerate(roles) if role == "variable"]
    constants, variables = dict(traced.constants), dict[int, np.ndarray]()
    names: dict[int, str] = {}
    numbered = list(zip(numbers, traced.variables, strict=True))
    kept = [(number, variable) for number, variable in numbered if freeze or is_token(variable)]
    values = Execution(traced.variables).alone(lambda: {n: np.array(each.device_buffer().read()) for n, each in kept})
    for number, variable in numbered:
        names[number] = _unused(_name(variable), set(names.values()))
        if is_token(variable) or (freeze and number in module.aliases):
            variables[number] = values[number]
        elif freeze:
            roles[number] = "constant"
            constants[number] = values[number]
    taken = set(module.aliases.values())
    inputs = [p.array_shape for p, role in zip(module.entry.parameters, roles, strict=True) if role == "feed"]
    outputs = [result.array_shape for k, result in enumerate(module.results) if k not in taken]
    return ExecutableFile(
        *(module, roles, constants, signature_of(inputs, outputs, input_names, output_names), variables),
        {number: name for number, name in names.items() if roles[number] == "variable"},
        dict(metadata or {}),
    )


def _unused(name: str, used: set[str]) -> str:
    """The name, with a number if another variable has it."""
    candidates = (name, *(f"{name}_{k}" for k in range(1, len(used) + 1)))
    return next(candidate for candidate in candidates if candidate not in used)


def _name(variable: DeviceVariable) -> str:
    named = variable.variable if isinstance(variable, HostVariable) else variable
    return str(named.name).removesuffix(":0")
