"""Types of tensors, variables and structures of them, as TensorFlow and Keras have no stubs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

Nest: TypeAlias = Any
"""A leaf (tensor, array, spec, scalar), or a list, tuple or dictionary of nests, as `tf.nest` takes."""
TensorLike: TypeAlias = Any
"""An argument of `tf.convert_to_tensor`: a tensor, array, variable, number or list of numbers."""
Variable: TypeAlias = Any
"""A variable of TensorFlow or of a Keras."""
Optimizer: TypeAlias = Any
"""An optimizer of TensorFlow 1 or of a Keras."""
Function: TypeAlias = Callable[..., Any]
"""A Python function of tensors, or a tf.function."""


class OptimizerOutput(Protocol):
    """Result of the optimizer function of a pipeline: an `OptimizerFunctionOutput`."""

    opt: Optimizer
    loss: TensorLike
    compute_gradients_args: tuple[Any, ...]
    compute_gradients_kwargs: dict[str, Any]
    apply_gradients_args: tuple[Any, ...]
    apply_gradients_kwargs: dict[str, Any]
    variables: Sequence[Variable] | None
    tape: Any
    gradient_capture_context: Any
    captured_gradient_outfeed: Any
