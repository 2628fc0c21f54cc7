"""Optimizers that apply a function to each gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu._internal.conversion import converted
from ipu._internal.names.namespace import public_names
from ipu.optimizers.ipu_optimizer import IpuOptimizer, Pairs

__all__ = ["MapGradientOptimizer"]
__getattr__, __dir__ = public_names(__name__, __all__)

Mapping = Callable[[Any, Any], Any]


class _Mapped(IpuOptimizer):
    """An optimizer that passes each gradient, with the value of its variable, to a function."""

    def __init__(
        self,
        wrapped_optimizer: tf.compat.v1.train.Optimizer,
        gradient_mapping_function: Mapping,
        name: str | None = None,
    ) -> None:
        super().__init__(wrapped_optimizer, name)
        self._gradient_mapping_function = gradient_mapping_function

    def _mapped(self, grads_and_vars: Pairs) -> list[tuple[Any, Any]]:
        mapped = converted(self._gradient_mapping_function)
        return [(mapped(gradient, var.value()), var) for gradient, var in grads_and_vars]


class MapGradientOptimizer(_Mapped):
    """Modifies computed gradients before they are passed to the wrapped optimizer (Python API, 18.15.1).

    Args:
        wrapped_optimizer: a `tf.compat.v1.train.Optimizer`.
        gradient_mapping_function: takes a gradient, None for a variable without one, and the value of its
            variable; returns the modified gradient.
        name: optional name prefix; the class's name by default.

    Raises:
        ValueError: `wrapped_optimizer` is no `tf.compat.v1.train.Optimizer`.
    """

    def compute_gradients(self, *args: object, **kwargs: object) -> list[tuple[Any, Any]]:
        """The (gradient, variable) pairs of the wrapped optimizer, each gradient modified."""
        return self._mapped(converted(self._opt.compute_gradients)(*args, **kwargs))


class MapGradientOptimizerInvertedChaining(_Mapped):
    """Modifies gradients when they are applied, after other optimizers have accumulated or reduced them.

    Args and errors are those of `MapGradientOptimizer`.
    """

    def apply_gradients(
        self, grads_and_vars: Pairs, global_step: tf.Tensor | None = None, name: str | None = None
    ) -> Any:
        """Applies the modified gradients with the wrapped optimizer.

        Args:
            grads_and_vars: pairs, as `compute_gradients` returns them.
            global_step: a variable to increment by one after the variables have been updated.
            name: optional name of the operation.

        Returns:
            An operation.
        """
        return converted(self._opt.apply_gradients)(self._mapped(grads_and_vars), global_step=global_step, name=name)
