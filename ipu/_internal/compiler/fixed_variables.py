"""Variables whose values are parts of a program: XLA takes shapes, axes and counts that it must know from them.

It does so for functions without arguments alone; with arguments, it refuses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from engine.errors import UnsupportedOperation
from engine.ir import Instruction, Module
from ipu._internal.compiler.device_variables import DeviceVariable
from ipu._internal.compiler.emission import module_of
from ipu._internal.compiler.refusals import ShapeFromValues

MOST_VALUES = 1024
"""Variables with more values are no shapes."""
PASSING = frozenset({"tuple", "while", "conditional", "call"})
CONTROL = frozenset({"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"})
INTEGERS = frozenset(each.as_datatype_enum for each in (tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint32))
Fixed = tuple[tuple[Any, np.ndarray], ...]
"""Variables, each with the value that a program has in its place."""


def fixed_parameters(concrete: Any, module: Module, numbers: Sequence[int]) -> list[int]:
    """The parameters, among those of variables, that the module of a function without arguments has constants for.

    XLA leaves such a parameter without a user, but for loops and branches that pass an integer on. So is one that is
    assigned before it is read: the modules for two other values tell which it is.
    """
    users, parameters = module.entry.users(), module.entry.parameters
    return [
        number
        for number in numbers
        if _is_idle(parameters[number], users)
        and parameters[number].array_shape.elements <= MOST_VALUES
        and _is_read(concrete.graph.inputs[number - len(concrete.captured_inputs)], bool(users[parameters[number]]))
        and _differs(concrete, number)
    ]


def _is_idle(parameter: Instruction, users: Mapping[Instruction, Sequence[Instruction]]) -> bool:
    passing = PASSING if parameter.array_shape.dtype.kind in "iu" else ()
    return all(each.opcode in passing for each in users[parameter])


def _is_read(handle: tf.Tensor, is_passed: bool) -> bool:
    """Whether operations may need the value of a variable, besides loops and branches that it `is_passed` to."""
    outputs = {id(each) for each in handle.graph.outputs}
    for each in handle.consumers():
        if each.type == "ReadVariableOp":
            if each.outputs[0].consumers() or id(each.outputs[0]) in outputs:
                return True
        elif each.type != "AssignVariableOp" and not (is_passed and each.type in CONTROL):
            return True
    return False


def needed_parameter(concrete: Any, numbers: Sequence[int]) -> int | None:
    """The first of these parameters, if any, whose value decides how XLA refuses a function without arguments."""
    numbers = [number for number in numbers if _handle_data(concrete.captured_inputs[number]).dtype in INTEGERS]
    if not numbers or not _decide(concrete, numbers):
        return None
    while len(numbers) > 1:
        half = numbers[: len(numbers) // 2]
        numbers = half if _decide(concrete, half) else numbers[len(half) :]
    return numbers[0]


def _decide(concrete: Any, numbers: Sequence[int]) -> bool:
    """Whether the module, or why XLA refuses it, depends on the values of captured variables."""
    first, second = _for_two_values(concrete, numbers)
    return first != second


def _differs(concrete: Any, number: int) -> bool:
    """Whether the module, which XLA has for the present value, depends on the value of a captured variable."""
    found = _for_two_values(concrete, [number])
    return found[0] != found[1] or isinstance(found[0], str)


def _for_two_values(concrete: Any, numbers: Sequence[int]) -> list[list[Any] | str]:
    """The module's content for two values of some captured variables, or why XLA refuses them."""
    captured, found = list(concrete.captured_inputs), list[list[Any] | str]()
    for value in (1, 2):
        with tf.init_scope():
            stand_ins = {number: _of_value(captured[number], value) for number in numbers}
        try:
            given = [stand_ins[k].handle if k in stand_ins else each for k, each in enumerate(captured)]
            found.append(_content(module_of(concrete, [], captured=given)))
        except UnsupportedOperation as error:
            found.append(str(error))
    return found


def _of_value(handle: tf.Tensor, number: int) -> resource_variable_ops.ResourceVariable:
    data = _handle_data(handle)
    dtype = tf.as_dtype(data.dtype)
    value = np.full([each.size for each in data.shape.dim], number - dtype.is_bool, dtype.as_numpy_dtype)
    return resource_variable_ops.ResourceVariable(value, dtype=dtype, trainable=False)


def _handle_data(handle: tf.Tensor) -> Any:
    (data,) = resource_variable_ops.get_eager_safe_handle_data(handle).shape_and_type
    return data


def _content(module: Module) -> list[Any]:
    """All that two modules of one function have in common, and their constants."""

    def content(value: object) -> object:
        return value.tobytes() if isinstance(value, np.ndarray) else repr(value)

    instructions = (each for computation in module.computations() for each in computation.instructions)
    return [(i.opcode, str(i.shape), [(k, content(v)) for k, v in i.attributes.items()]) for i in instructions]


def refuse_assigned(fixed: Fixed, updated: Sequence[DeviceVariable]) -> None:
    """Raises ShapeFromValues for a program of several steps that assigns a variable whose value it has fixed."""
    for variable, _ in fixed:
        if any(each is variable for each in updated):
            raise refusal(variable.name)


def refusal(name: str) -> ShapeFromValues:
    """The error for a variable whose value a program cannot have as a constant."""
    return ShapeFromValues(
        f"Expected shapes, axes and counts from constants or from variables that keep their values. Received: variable "
        f"{name!r}, whose value changes between the steps of a program, or is not known when it is compiled. Compute "
        f"such a number outside of the function and give it as an argument, or as a Python number."
    )
