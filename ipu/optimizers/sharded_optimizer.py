"""An optimizer whose updates are on the shards of their variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from ipu import sharding
from ipu._internal.conversion import converted
from ipu._internal.names.namespace import public_names
from ipu._internal.types import TensorLike, Variable
from ipu.optimizers.ipu_optimizer import IpuOptimizer, Pairs

__all__ = ["ShardedOptimizer"]
__getattr__, __dir__ = public_names(__name__, __all__)


class ShardedOptimizer(IpuOptimizer):
    """Puts gradients on the shards of their forward operations, and updates on those of their variables (18.15.1).

    All shards are one device here, so results are those of the wrapped optimizer.

    Args:
        optimizer: the `tf.compat.v1.train.Optimizer` to wrap.

    Raises:
        ValueError: `optimizer` is no `tf.compat.v1.train.Optimizer`.
    """

    def __init__(self, optimizer: tf.compat.v1.train.Optimizer) -> None:
        super().__init__(optimizer, "ShardedOptimizer")

    def compute_gradients(
        self, loss: TensorLike, var_list: Iterable[Variable] | None = None, **kwargs: object
    ) -> list[tuple[Any, Any]]:
        """The (gradient, variable) pairs of the wrapped optimizer, their operations on their forward pass's shards.

        Args:
            loss: the tensor to differentiate.
            var_list: the variables; needed inside a tf.function.
            **kwargs: further arguments of the wrapped optimizer's method.

        Returns:
            A list of (gradient, variable).
        """
        kwargs["colocate_gradients_with_ops"] = True
        pairs = converted(self._opt.compute_gradients)(loss, var_list=var_list, **kwargs)
        self._propagate()
        return pairs

    def apply_gradients(
        self, grads_and_vars: Pairs, global_step: tf.Tensor | None = None, name: str | None = None
    ) -> Any:
        """Applies gradients with the wrapped optimizer.

        Args:
            grads_and_vars: pairs, as `compute_gradients` returns them.
            global_step: a variable to increment by one after the variables have been updated.
            name: optional name of the operation.

        Returns:
            An operation.

        Raises:
            ValueError: `grads_and_vars` has no gradient.
        """
        applied = converted(self._opt.apply_gradients)(grads_and_vars, global_step=global_step, name=name)
        self._propagate()
        return applied

    @staticmethod
    def _propagate() -> None:
        if not tf.executing_eagerly():
            sharding.propagate_sharding(tf.compat.v1.get_default_graph())
