"""The methods by which optimizers apply gradients: while a step is traced, their gradients are marked.

The engine reduces marked gradients over the micro-batches of an update. So the outermost method marks them, Keras'
own or a user's override: each sees the gradients of a whole update, once, in the dtype of accumulators.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ipu._internal.compiler.marks import as_of_variable, mark_gradient, note_updated_once, optimizing
from keras_ext.frameworks.common import KerasFunction, dense
from keras_ext.types import KerasOptimizer, Tensor

KERAS = ("keras.", "tf_keras.", "tensorflow.")
"""Prefixes of the modules whose classes are not users'."""
_WRAPPED = "_ipu_marks_gradients"
Wrap = Callable[[KerasFunction], KerasFunction]
VariablesOf = Callable[[Any], Iterable[Any]]


@contextlib.contextmanager
def updating(
    optimizer: KerasOptimizer, gradients: Sequence[Any], variables: Sequence[Any], variables_of: VariablesOf
) -> Iterator[list[Any]]:
    """The marked gradients that a method of an optimizer takes in place of its own, one for each of `variables`."""
    given = [dense(gradient) for gradient in gradients]
    with optimizing() as marks:
        if marks is not None:
            given = [mark_gradient(marks, gradient, v) for gradient, v in zip(given, variables, strict=True)]
        yield given
    # Keras 3 wraps TensorFlow's variable in its own.
    note_updated_once(getattr(each, "_value", each) for each in (*variables_of(optimizer), *variables))


def applying_pairs(variables_of: VariablesOf, takes: tuple[str, ...] = ()) -> Wrap:
    """Wraps methods (self, grads_and_vars, ...).

    `takes` names the methods that update one variable: unless one of them is a user's, the wrapped method gets
    gradients in the variables' dtypes. Empty means no casts.
    """

    def wrap(apply: KerasFunction) -> KerasFunction:
        @functools.wraps(apply)
        def apply_pairs(
            self: KerasOptimizer, grads_and_vars: Iterable[Any], *arguments: object, **named: object
        ) -> Any:
            pairs = list(grads_and_vars)
            variables = [variable for _, variable in pairs]
            with updating(self, [gradient for gradient, _ in pairs], variables, variables_of) as gradients:
                given = _cast(self, gradients, variables, takes)
                return apply(self, list(zip(given, variables, strict=True)), *arguments, **named)

        return apply_pairs

    return wrap


def applying_lists(variables_of: VariablesOf, takes: tuple[str, ...] = ()) -> Wrap:
    """Wraps methods (self, grads, trainable_variables=None, ...); `takes` as for `applying_pairs`."""

    def wrap(apply: KerasFunction) -> KerasFunction:
        @functools.wraps(apply)
        def apply_lists(
            self: KerasOptimizer,
            grads: Iterable[Any],
            trainable_variables: Iterable[Tensor] | None = None,
            *arguments: object,
            **named: object,
        ) -> Any:
            known = self._trainable_variables if trainable_variables is None else list(trainable_variables)
            with updating(self, list(grads), known, variables_of) as gradients:
                given = _cast(self, gradients, known, takes)
                return apply(self, given, None if trainable_variables is None else known, *arguments, **named)

        return apply_lists

    return wrap


def wrap_overrides(base: type, name: str, wrap: Wrap) -> None:
    """Wraps a method at class level, once, in all classes derived from `base` that define it."""
    for kind in _derived(base):
        own = vars(kind).get(name)
        if inspect.isfunction(own) and not hasattr(own, _WRAPPED):
            setattr(kind, name, once(wrap(own)))


def once(method: KerasFunction) -> KerasFunction:
    """Marks a method so that `wrap_overrides` does not wrap it, and returns it."""
    setattr(method, _WRAPPED, True)
    return method


def users_own(kind: type, name: str) -> bool:
    """Whether a class inherits a method from a class that is not Keras' or TensorFlow's, or defines it."""
    owner = next((base for base in kind.__mro__ if name in vars(base)), None)
    return owner is not None and not owner.__module__.startswith(KERAS)


def _derived(base: type) -> Iterator[type]:
    kind: type
    for kind in base.__subclasses__():
        yield kind
        yield from _derived(kind)


def _cast(
    optimizer: KerasOptimizer, gradients: list[Any], variables: Sequence[Any], takes: tuple[str, ...]
) -> list[Any]:
    """The gradients in the dtype of the optimizer's update of one variable: a user's takes the accumulators' dtype."""
    if not takes or any(users_own(type(optimizer), name) for name in takes):
        return gradients
    return [as_of_variable(gradient, variable) for gradient, variable in zip(gradients, variables, strict=True)]
