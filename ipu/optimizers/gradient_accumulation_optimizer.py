"""Optimizers that accumulate the gradients of several batches before each update."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from engine.integers import checked_integer
from engine.partition.storage import Storage
from ipu._internal.accumulators import Accumulators, AccumulatorType
from ipu._internal.compiler.accumulation_iterations import accumulation_iteration
from ipu._internal.compiler.optimizer_state import note_optimizer_state
from ipu._internal.compiler.storage import OFFLOADS_STATE, SHARDS_STATE, checked_storage
from ipu._internal.conversion import converted
from ipu._internal.name_scopes import in_present_scope
from ipu._internal.names.namespace import public_names
from ipu._internal.pipelining.options import checked_reduction
from ipu._internal.types import Optimizer
from ipu.gradient_accumulation import GradientAccumulationReductionMethod
from ipu.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from ipu.optimizers.ipu_optimizer import IpuOptimizer, Pairs

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer",
    "CrossReplicaGradientAccumulationOptimizerV2",
    "GradientAccumulationOptimizer",
    "GradientAccumulationOptimizerV2",
]
__getattr__, __dir__ = public_names(__name__, __all__)

ADDITIVE = (tf.compat.v1.train.GradientDescentOptimizer, tf.compat.v1.train.MomentumOptimizer)
"""Optimizers that GradientAccumulationOptimizer applies only once for each update."""
ON_TILES = Storage(offload_weight_update_variables=False)


class _Accumulating(IpuOptimizer):
    """Applies the accumulated gradients with the wrapped optimizer after the last batch of each update."""

    _averages = False
    """Whether the accumulated gradients are averaged over replicas."""

    def __init__(
        self,
        opt: tf.compat.v1.train.Optimizer,
        num_mini_batches: int,
        dtype: AccumulatorType,
        reduction_method: object,
        name: str | None,
        storage: Storage = ON_TILES,
    ) -> None:
        super().__init__(CrossReplicaOptimizer(opt) if self._averages else opt, name)
        self._storage = storage
        self._num_mini_batches = checked_integer("num_mini_batches", num_mini_batches)
        reduction = checked_reduction(reduction_method)
        self._accumulators = Accumulators(self._num_mini_batches, dtype, reduction, self._name)

    def apply_gradients(
        self, grads_and_vars: Pairs, global_step: tf.Tensor | None = None, name: str | None = None
    ) -> Any:
        """Accumulates gradients; after the last batch the wrapped optimizer applies them.

        Args:
            grads_and_vars: pairs, as `compute_gradients` returns them.
            global_step: a variable to increment by one after the variables have been updated.
            name: optional name of the operation.

        Returns:
            An operation.

        Raises:
            ValueError: `grads_and_vars` has no gradient.
        """
        pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
        if not pairs:
            raise ValueError("No gradients provided for any variable.")
        count = self._accumulators.begin([variable for _, variable in pairs])
        sums = [(self._accumulators.add(variable, gradient, count), variable) for gradient, variable in pairs]
        last = tf.equal(accumulation_iteration(count, self._num_mini_batches), self._num_mini_batches - 1)
        applied = self._apply(last, sums, global_step, name)
        self._accumulators.end(count)
        inner = _innermost(self._opt)
        note_optimizer_state(
            inner.get_name(), inner.variables(), self._accumulators.sums, self._storage, self._num_mini_batches
        )
        return tf.group(applied, name=name or self._name)

    def _apply(
        self, last: tf.Tensor, sums: list[tuple[Any, Any]], global_step: tf.Tensor | None, name: str | None
    ) -> Any:
        """The update, which is executed only after the last batch."""

        def update() -> tf.Tensor:
            applied = converted(self._opt.apply_gradients)(sums, global_step=global_step, name=name)
            with tf.control_dependencies([applied]):
                return tf.constant(True)

        return tf.cond(last, in_present_scope(update), lambda: tf.constant(False), name="")


class GradientAccumulationOptimizerV2(_Accumulating):
    """Accumulates the gradients of `num_mini_batches` batches before each weight update (Python API, 18.15.1).

    It must be used in a training loop of a multiple of `num_mini_batches` iterations. The wrapped optimizer sees one
    step for each update: momenta, counts of steps and `global_step` advance once.

    Args:
        opt: an existing `tf.compat.v1.train.Optimizer` to encapsulate.
        num_mini_batches: number of mini-batches the gradients will be accumulated for.
        offload_weight_update_variables: whether variables that only the update uses (momenta) are in remote memory, in
            the cost report of the function: there they take no tile memory between updates, and their transfers take
            cycles. None stands for True if the system has remote buffers (training a model, section 6.7). Results do
            not change.
        replicated_optimizer_state_sharding: whether each replica stores a shard of the offloaded state; None is the
            value given for `offload_weight_update_variables`.
        dtype: the data type of the accumulators: None for the variable's type, a DType, or a function that takes the
            variable and returns one. The wrapped optimizer gets gradients of that type.
        name: optional name prefix for the operations created when applying gradients; the class's name by default.
        reduction_method: a `GradientAccumulationReductionMethod` or its name; gradients are summed by default.

    Raises:
        ValueError: `num_mini_batches` is no positive integer, or `opt` is no `tf.compat.v1.train.Optimizer`; an option
            is neither True, False nor None, or state is sharded but not offloaded.
        FailedPreconditionError: (when the program is built) it is used outside of a loop, or in one whose iterations
            are no multiple of `num_mini_batches`.
    """

    def __init__(
        self,
        opt: tf.compat.v1.train.Optimizer,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool | None = False,
        dtype: AccumulatorType = None,
        name: str | None = None,
        reduction_method: object = GradientAccumulationReductionMethod.SUM,
    ) -> None:
        given = {OFFLOADS_STATE: offload_weight_update_variables, SHARDS_STATE: replicated_optimizer_state_sharding}
        super().__init__(opt, num_mini_batches, dtype, reduction_method, name, checked_storage(given))


class CrossReplicaGradientAccumulationOptimizerV2(GradientAccumulationOptimizerV2):
    """Accumulates gradients on each replica, and averages them over replicas once before each update.

    Arguments and errors are those of `GradientAccumulationOptimizerV2` (Python API, 18.15.1).

    Args:
        opt: an existing `tf.compat.v1.train.Optimizer` to encapsulate.
        num_mini_batches: number of mini-batches the gradients will be accumulated for.
        offload_weight_update_variables: whether the cost report has momenta in remote memory.
        replicated_optimizer_state_sharding: whether the cost report has a shard of the momenta on each replica.
        dtype: the data type of the accumulators: None for the variable's, a DType, or a function of the variable.
        name: optional name prefix for the operations created when applying gradients; the class's name by default.
        reduction_method: a `GradientAccumulationReductionMethod` or its name; gradients are summed by default.
    """

    _averages = True


class GradientAccumulationOptimizer(_Accumulating):
    """Accumulates gradients for optimizers on which gradients of zero have no effect (Python API, 18.15.1).

    The wrapped optimizer is applied in every iteration, with zeros in all but the last of an update, except
    GradientDescentOptimizer and MomentumOptimizer: these are applied in the last one only, so that momenta decay once
    for each update. `global_step` counts iterations.

    Args:
        opt: an existing GradientDescentOptimizer or MomentumOptimizer to encapsulate.
        num_mini_batches: number of mini-batches the gradients will be accumulated for.
        verify_usage: whether all other optimizers are refused; use GradientAccumulationOptimizerV2 for them.
        name: optional name prefix for the operations created when applying gradients; the class's name by default.

    Raises:
        ValueError: `num_mini_batches` is no positive integer, or `opt` is no `tf.compat.v1.train.Optimizer`.
        FailedPreconditionError: gradients are applied with another optimizer and `verify_usage`; or (when the program
            is built) it is used outside of a loop, or in one whose iterations are no multiple of `num_mini_batches`.
    """

    def __init__(
        self,
        opt: tf.compat.v1.train.Optimizer,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(opt, num_mini_batches, None, GradientAccumulationReductionMethod.SUM, name)
        self._verify_usage = verify_usage

    def _apply(
        self, last: tf.Tensor, sums: list[tuple[Any, Any]], global_step: tf.Tensor | None, name: str | None
    ) -> Any:
        if isinstance(inner := _innermost(self._opt), ADDITIVE):
            applied = super()._apply(last, sums, None, name)
            if global_step is None:
                return applied
            with tf.control_dependencies([applied]):
                return global_step.assign_add(tf.ones([], global_step.dtype), read_value=False)
        if self._verify_usage:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                f"Expected GradientDescentOptimizer or MomentumOptimizer in {type(self).__name__}. Received: "
                f"{type(inner).__name__}. Use {type(self).__name__}V2, or set verify_usage=False to apply gradients of "
                f"zero between updates.",
            )
        gradients = [(tf.where(last, total, tf.zeros_like(total)), variable) for total, variable in sums]
        return converted(self._opt.apply_gradients)(gradients, global_step=global_step, name=name)


class CrossReplicaGradientAccumulationOptimizer(GradientAccumulationOptimizer):
    """Accumulates gradients on each replica, and averages them over replicas once before each update.

    Arguments and errors are those of `GradientAccumulationOptimizer` (Python API, 18.15.1).

    Args:
        opt: an existing GradientDescentOptimizer or MomentumOptimizer to encapsulate.
        num_mini_batches: number of mini-batches the gradients will be accumulated for.
        verify_usage: whether all others are refused; use CrossReplicaGradientAccumulationOptimizerV2 for them.
        name: optional name prefix for the operations created when applying gradients; the class's name by default.
    """

    _averages = True


def _innermost(optimizer: Optimizer) -> Any:
    while isinstance(optimizer, IpuOptimizer):
        optimizer = optimizer._opt
    return optimizer
