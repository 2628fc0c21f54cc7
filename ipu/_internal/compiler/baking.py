"""Arguments that become parts of a function's program: integer scalars, which shapes may depend on, and variables."""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import converter
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from engine.errors import IPUError
from engine.garbage import collector_paused
from ipu._internal.compiler.refusals import ShapeFromValues
from ipu._internal.compiler.variables import only_for_programs
from ipu._internal.thread_values import ThreadValue
from ipu._internal.types import Nest, Variable

_may_bake = ThreadValue(False)


def baking_possible(possible: bool) -> AbstractContextManager[bool]:
    """Allows a trace to be replaced by one with constants for integer arguments, if `possible`, while the context is
    open.
    """
    return _may_bake.replaced_by(possible)


def want_values(what: str) -> None:
    """Raises ShapeFromValues, which ends the trace, if a retrace may have `what` as a constant; else does nothing."""
    if _may_bake.value:
        raise ShapeFromValues(f"Expected {what} as a number. Received: a tensor. Give an argument of the function.")


class Baked:
    """A value and its dtype in place of a tensor; TensorFlow retraces for each object of this class."""

    def __init__(self, value: int, dtype: tf.DType) -> None:
        self.value, self.dtype = value, dtype

    def tensor(self) -> tf.Tensor:
        """The constant, a scalar of `dtype`."""
        return tf.constant(self.value, self.dtype)


class GivenVariable:
    """A variable as an argument, which the traced function captures; TensorFlow retraces for each of this class."""

    def __init__(self, variable: Variable) -> None:
        self._variable = variable

    def tensor(self) -> Any:
        """The variable."""
        return self._variable


def with_given_variables(arguments: Nest, known: dict[int, GivenVariable]) -> Any:
    """The structure with variables replaced; `known` keeps an object for each, by its id."""

    def leaf(value: Nest) -> Any:
        return known.setdefault(id(value), GivenVariable(value)) if isinstance(value, tf.Variable) else value

    if not any(isinstance(value, tf.Variable) for value in tf.nest.flatten(arguments)):
        return arguments
    return tf.nest.map_structure(leaf, arguments)


def bake(arguments: Nest, known: dict[tuple[Any, ...], Baked]) -> Any:
    """The structure with a Baked, kept in `known`, for each integer scalar tensor; None if it has no such tensor."""

    def leaf(value: Nest) -> Any:
        if not _is_integer_scalar(value):
            return value
        key = (int(value), value.dtype)
        return known.setdefault(key, Baked(*key))

    if not any(_is_integer_scalar(value) for value in tf.nest.flatten(arguments)):
        return None
    return tf.nest.map_structure(leaf, arguments)


def compilable(
    function: polymorphic_function.Function, given: dict[int, GivenVariable]
) -> polymorphic_function.Function:
    """Makes a tf.function that is compiled as a whole: arguments may be Baked, and operations that it returns are None.

    Variables among its arguments are GivenVariables; `given` keeps one for each variable among the defaults.
    """
    inner, options = function.python_function, function._experimental_autograph_options

    @autograph.autograph_artifact
    @collector_paused()
    def call(*arguments: Nest, **named: Nest) -> Any:
        only_for_programs()
        if any(isinstance(value, Baked | GivenVariable) for value in tf.nest.flatten((arguments, named))):
            arguments, named = tf.nest.map_structure(_tensor, (arguments, named))
        if function_autograph:
            conversion = converter.ConversionOptions(recursive=True, optional_features=options, user_requested=True)
            try:
                result = autograph.converted_call(inner, arguments, named, options=conversion)
            except IPUError as error:
                # AutoGraph would replace it by an error of its own class.
                vars(error).pop("ag_error_metadata", None)
                raise
        else:
            result = inner(*arguments, **named)
        if any(isinstance(value, tf.Operation) for value in tf.nest.flatten(result)):
            result = tf.nest.map_structure(_without_operation, result)
        return result

    function_autograph = function._autograph
    call.__name__ = getattr(inner, "__name__", type(inner).__name__)
    call.__doc__ = getattr(inner, "__doc__", None)
    signature = inspect.signature(inner)
    parameters = (p.replace(default=with_given_variables(p.default, given)) for p in signature.parameters.values())
    call.__signature__ = signature.replace(parameters=list(parameters))
    return tf.function(
        call,
        input_signature=function.input_signature,
        autograph=function_autograph,
        jit_compile=True,
        reduce_retracing=False,
    )


def _is_integer_scalar(value: Nest) -> bool:
    return tf.is_tensor(value) and value.dtype.is_integer and value.shape.rank == 0 and hasattr(value, "numpy")


def _tensor(value: Nest) -> Any:
    return value.tensor() if isinstance(value, Baked | GivenVariable) else value


def _without_operation(value: Nest) -> Any:
    return None if isinstance(value, tf.Operation) else value
