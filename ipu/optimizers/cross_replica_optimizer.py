"""An optimizer that averages gradients over replicas."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu._internal.compiler.collectives import cross_replica_mean
from ipu._internal.compiler.replica_reduction import already_reduced
from ipu._internal.conversion import converted
from ipu._internal.names.namespace import public_names
from ipu.optimizers.ipu_optimizer import IpuOptimizer, Pairs

__all__ = ["CrossReplicaOptimizer"]
__getattr__, __dir__ = public_names(__name__, __all__)


class CrossReplicaOptimizer(IpuOptimizer):
    """An optimizer that averages gradients across IPU replicas (Python API, 18.15.1).

    Other optimizers sum them over replicas in the scope of an IPUStrategy, as all optimizers do in the scope of a
    tf.distribute strategy; this one replaces that sum.

    Args:
        opt: an existing `tf.compat.v1.train.Optimizer` to encapsulate.
        name: optional name prefix for the operations created when applying gradients; the class's name by default.

    Raises:
        ValueError: `opt` is no `tf.compat.v1.train.Optimizer`.
    """

    def apply_gradients(
        self, grads_and_vars: Pairs, global_step: tf.Tensor | None = None, name: str | None = None
    ) -> Any:
        """Applies the mean over replicas of each gradient with the wrapped optimizer.

        Args:
            grads_and_vars: pairs, as `compute_gradients` returns them.
            global_step: a variable to increment by one after the variables have been updated.
            name: optional name of the operation.

        Returns:
            An operation.

        Raises:
            ValueError: `grads_and_vars` has no gradient, or it is called outside of a function that runs on the IPU.
        """
        averaged = [(None if g is None else cross_replica_mean(g, name=self._name), v) for g, v in grads_and_vars]
        with already_reduced():
            return converted(self._opt.apply_gradients)(averaged, global_step=global_step, name=name)
