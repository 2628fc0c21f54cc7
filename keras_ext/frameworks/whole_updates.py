"""The methods by which optimizers apply gradients: while a step is traced, their gradients are marked.

The engine reduces marked gradients over the micro-batches of an update. So the outermost method marks them, Keras'
own or a user's override: each sees the gradients of a whole update, once, in the dtype of accumulators.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.compiler.function_trace import reduces_over_replicas
from ipu._internal.compiler.marks import as_of_variable, mark_gradient, note_updated_once, optimizing
from ipu._internal.compiler.replica_reduction import already_reduced, sums_of_replicas
from ipu._internal.compiler.variables import tracing
from keras_ext.frameworks.common import serves
from keras_ext.frameworks.indexed_slices import taken
from keras_ext.frameworks.traced_updates import applying
from keras_ext.origins import users_own
from keras_ext.types import KerasOptimizer, Tensor
from keras_ext.wrapping import Original, wrap

_WRAPPED = "_ipu_marks_gradients"
VariablesOf = Callable[[Any], Iterable[Any]]


@contextlib.contextmanager
def updating(
    optimizer: KerasOptimizer, gradients: Sequence[Any], variables: Sequence[Any], variables_of: VariablesOf
) -> Iterator[list[Any]]:
    """The marked gradients that a method of an optimizer takes in place of its own, one for each of `variables`."""
    _refuse_outside_of_run()
    given = taken(optimizer, gradients)
    with optimizing() as marks:
        if marks is not None:
            given = [mark_gradient(marks, gradient, v) for gradient, v in zip(given, variables, strict=True)]
        yield given
    # Keras 3 wraps TensorFlow's variable in its own.
    note_updated_once(getattr(each, "_value", each) for each in (*variables_of(optimizer), *variables))


def _refuse_outside_of_run() -> None:
    """Raises ConfigurationError in a strategy's scope outside of its `run`, where Keras finds no replica to update."""
    if tracing() or not tf.distribute.in_cross_replica_context() or not serves(tf.distribute.get_strategy()):
        return
    raise ConfigurationError(
        "Expected an optimizer's update in a function that strategy.run calls. Received: one in its scope alone. "
        "Call the step by strategy.run, or use ipu.accelerate(), in which loops of your own are TensorFlow's."
    )


def apply_pairs(
    variables_of: VariablesOf,
    takes: tuple[str, ...],
    apply: Original,
    optimizer: KerasOptimizer,
    grads_and_vars: Iterable[Any],
    *arguments: object,
    **named: object,
) -> Any:
    """Calls a method `apply` that takes pairs.

    `takes` names the methods that update one variable: unless one of them is a user's, `apply` gets gradients in the
    variables' dtypes. Empty means no casts.
    """
    pairs = [pair for pair in grads_and_vars if not _is_unknown_table(optimizer, pair[1])]
    variables = [variable for _, variable in pairs]
    with updating(optimizer, [gradient for gradient, _ in pairs], variables, variables_of) as gradients:
        given = _cast(optimizer, gradients, variables, takes)
        return apply(optimizer, list(zip(given, variables, strict=True)), *arguments, **named)


def apply_lists(
    variables_of: VariablesOf,
    takes: tuple[str, ...],
    apply: Original,
    optimizer: KerasOptimizer,
    grads: Iterable[Any],
    trainable_variables: Iterable[Tensor] | None = None,
    *arguments: object,
    **named: object,
) -> Any:
    """Calls a method `apply` that takes gradients, and variables or None; `takes` as for `apply_pairs`."""
    known = optimizer._trainable_variables if trainable_variables is None else list(trainable_variables)
    if trainable_variables is not None:
        kept = [k for k, variable in enumerate(known) if not _is_unknown_table(optimizer, variable)]
        grads, known = [list(grads)[k] for k in kept], [known[k] for k in kept]
    with updating(optimizer, list(grads), known, variables_of) as gradients, applying():
        given = _cast(optimizer, gradients, known, takes)
        return apply(optimizer, given, None if trainable_variables is None else known, *arguments, **named)


def apply_to_sums(
    apply: Original,
    optimizer: KerasOptimizer,
    grads: Iterable[Any],
    trainable_variables: Iterable[Tensor] | None = None,
) -> Any:
    """Calls Keras 3's `apply` with sums over replicas, in a function that runs on several.

    Keras 3 sums later, when each replica has clipped its own gradients and decided whether they are finite.
    """
    if not reduces_over_replicas():
        return apply(optimizer, grads, trainable_variables)
    sums = sums_of_replicas(list(grads))
    with already_reduced():
        return apply(optimizer, sums, trainable_variables)


def _is_unknown_table(optimizer: KerasOptimizer, variable: Tensor) -> bool:
    """Whether a variable is a host embedding's, made after the optimizer was built: the table is updated by itself."""
    is_built = getattr(optimizer, "built", getattr(optimizer, "_built", False))
    if getattr(variable, "of_table", None) is None or not is_built:
        return False
    key: Any = getattr(optimizer, "_var_key", None)
    known = getattr(optimizer, "_trainable_variables_indices", None) or getattr(optimizer, "_index_dict", None)
    return key is not None and known is not None and key(variable) not in known


def wrap_overrides(base: type, name: str, function: Callable[..., Any]) -> None:
    """Wraps a method at class level, once, in all classes derived from `base` that define it, or whose mixin does."""
    for kind in _derived(base):
        owner = next(owner for owner in kind.__mro__ if name in vars(owner))
        own = vars(owner)[name]
        if (owner is kind or not issubclass(owner, base)) and inspect.isfunction(own) and not hasattr(own, _WRAPPED):
            wrap_once(kind, name, function)


def wrap_once(kind: type, name: str, function: Callable[..., Any]) -> None:
    """Wraps a method so that `wrap_overrides` does not wrap it again."""
    wrap(kind, name, function)
    setattr(vars(kind)[name], _WRAPPED, True)


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
