"""Functions that an export takes: their parameters' names, their signatures, and their results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.serving.errors import ExportTypeError
from ipu._internal.types import Function, Nest


@dataclass(frozen=True)
class Step:
    """A function of tensors with its signature: `specs` has one named tf.TensorSpec for each argument.

    `function` takes the tensors by position and returns any structure of tensors.
    """

    function: Callable[..., Any]
    specs: tuple[tf.TensorSpec, ...]
    what: str
    source: Any = None
    """The original function, for the objects that it refers to."""

    def flat(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
        """The function's results, as a list in the order of tf.nest. Raises ConfigurationError if there are none."""
        results = [each for each in tf.nest.flatten(self.function(*tensors)) if each is not None]
        if not results:
            raise ConfigurationError(f"Expected the {self.what} to return tensors. Received: none.")
        return [tf.convert_to_tensor(each) for each in results]


def checked_step(function: Function, signature: Nest, what: str, dataset: tf.data.Dataset | None = None) -> Step:
    """A function with the signature given, that of the elements of `dataset`, or its own if it is a tf.function.

    Raises ConfigurationError, a ValueError, for no signature or two, an empty one, one of another length than the
    function has arguments, or one of dynamic shapes; ExportTypeError, a TypeError, for anything
    but lists of tf.TensorSpec, data sets and functions.
    """
    if not callable(function):
        raise ExportTypeError(f"Expected the {what} to be a function. Received: {function!r}.")
    if signature is not None and dataset is not None:
        raise ConfigurationError(f"Expected one of a signature of the {what} and input_dataset. Received: both.")
    if signature is None and dataset is not None:
        signature = signature_of(dataset, function)
    if signature is None:
        signature = getattr(function, "input_signature", None)
    if signature is None:
        raise ConfigurationError(
            f"Expected a signature of the {what}. Received: none, and the function is no tf.function with an "
            f"input_signature. Pass a list with a tf.TensorSpec for each argument."
        )
    specs = _checked_specs(signature, what)
    names = parameter_names(function, len(specs), what)
    named = (tf.TensorSpec(spec.shape, spec.dtype, name) for spec, name in zip(specs, names, strict=True))
    return Step(traceable(function), tuple(named), what, function)


def parameter_names(function: Function, count: int, what: str) -> list[str]:
    """The names of the `count` arguments of a function. Raises ConfigurationError if it takes another number."""
    inner = getattr(function, "python_function", function)
    kinds = inspect.Parameter
    names: list[str] = []
    optional = 0
    for parameter in inspect.signature(inner).parameters.values():
        if parameter.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
            optional += parameter.default is not kinds.empty
        elif parameter.kind is kinds.VAR_POSITIONAL:
            names += [f"{parameter.name}_{number}" for number in range(count - len(names))]
    if not len(names) - optional <= count <= len(names):
        raise ConfigurationError(
            f"Expected a signature with an element for each argument of the {what}: {', '.join(names) or 'none'}. "
            f"Received: {count} elements."
        )
    return names[:count]


def traceable(function: Function) -> Callable[..., Any]:
    """The function, retraced at each call: traces of a tf.function for other purposes are not reused."""
    inner = getattr(function, "python_function", None)
    return _retracing(function) if inner is None else _retracing(inner, getattr(function, "_autograph", True))


def _retracing(function: Callable[..., Any], autograph: bool = True) -> Callable[..., Any]:
    def call(*tensors: tf.Tensor) -> Any:
        return tf.function(function, autograph=autograph)(*tensors)

    return call


def signature_of(dataset: tf.data.Dataset, function: Callable[..., Any]) -> list[Any]:
    """The specs of a data set's elements, one for each argument of the function.

    Specs of a dictionary keyed by the arguments' names are in the order of the arguments. Raises ExportTypeError for
    anything but a data set.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise ExportTypeError(f"Expected input_dataset to be a tf.data.Dataset. Received: {dataset!r}.")
    element = dataset.element_spec
    if isinstance(element, dict):
        names = list(inspect.signature(getattr(function, "python_function", function)).parameters)
        return [element[name] for name in (names if set(names) == set(element) else element)]
    return list(element) if isinstance(element, tuple | list) else [element]


def _checked_specs(signature: Nest, what: str) -> Sequence[tf.TensorSpec]:
    if not isinstance(signature, list | tuple):
        raise ExportTypeError(
            f"Expected the signature of the {what} to be a list or tuple of tf.TensorSpec. Received: {signature!r} of "
            f"type {type(signature).__name__}."
        )
    if not signature:
        raise ConfigurationError(
            f"Expected the signature of the {what} to have an element for each argument. Received: an empty one."
        )
    for number, spec in enumerate(signature):
        if not isinstance(spec, tf.TensorSpec):
            raise ExportTypeError(
                f"Expected the signature of the {what} to be of tf.TensorSpec. Received: {spec!r} of type "
                f"{type(spec).__name__} at {number}."
            )
        if not spec.shape.is_fully_defined():
            raise ConfigurationError(
                f"Expected static shapes in the signature of the {what}. Received: {spec.shape} at {number}. Give "
                f"every size; of a data set, batch it with drop_remainder=True."
            )
    return signature


def check_match(received: Sequence[tf.TensorSpec], expected: Sequence[tf.TensorSpec], giver: str, taker: str) -> None:
    """Raises ConfigurationError unless the results of one step match the arguments of the next one."""
    if len(received) != len(expected):
        raise ConfigurationError(
            f"Expected as many outputs of the {giver} as the {taker} has inputs: {len(expected)}. Received: "
            f"{len(received)}."
        )
    for number, (one, other) in enumerate(zip(received, expected, strict=True)):
        if one.dtype != other.dtype or not one.shape.is_compatible_with(other.shape):
            raise ConfigurationError(
                f"Expected output {number} of the {giver} to be what the {taker} takes: {other.dtype.name} "
                f"{other.shape}. Received: {one.dtype.name} {one.shape}."
            )
