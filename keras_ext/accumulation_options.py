"""`set_gradient_accumulation_options`: the number of batches whose gradients a replica accumulates for an update."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from engine.errors import ConfigurationError
from engine.integers import checked_integer
from ipu._internal.compiler.marks import check_accumulator_type
from ipu._internal.compiler.storage import checked_storage
from ipu._internal.pipelining.options import REDUCTIONS, checked_reduction
from keras_ext.extension import Extension, check_names, options_of
from keras_ext.replication import replicas_of
from keras_ext.types import KerasModel, KerasOptimizer

logger = logging.getLogger("ipu")
STEPS = "gradient_accumulation_steps_per_replica"
REDUCTION = "gradient_accumulation_reduction_method"
ARGUMENTS = "gradient_accumulation_optimizer_kwargs"
SET_BY_KERAS = {
    **dict.fromkeys(("opt", "optimizer"), "the optimizer is that of compile()"),
    "num_mini_batches": f"the number of batches is {STEPS}",
    "experimental_normalize_gradients": f"{REDUCTION}='mean' does the same",
}
ACCEPTED = ("dtype", "offload_weight_update_variables", "replicated_optimizer_state_sharding", "name")


class AccumulationOptions(Extension):
    """The methods about gradient accumulation."""

    SAVED: ClassVar[dict[str, Any]] = {STEPS: None, REDUCTION: 0}
    UNSAVED: ClassVar[tuple[str, ...]] = (ARGUMENTS,)

    def set_gradient_accumulation_options(
        self: KerasModel,
        gradient_accumulation_steps_per_replica: int | None = None,
        gradient_accumulation_reduction_method: object = "sum",
        use_v2_gradient_accumulation_optimizer: bool = False,
        **gradient_accumulation_optimizer_kwargs: object,
    ) -> None:
        """Sets how `fit` accumulates gradients; `evaluate` and `predict` do not.

        Each replica takes that many batches with the same weights. Their gradients are reduced, summed over replicas
        and applied once.

        Args:
            gradient_accumulation_steps_per_replica: the batches that each replica takes with the same weights; None
                accumulates nothing.
            gradient_accumulation_reduction_method: "sum", "mean" or "running_mean" of a replica's gradients; those of
                replicas are summed.
            use_v2_gradient_accumulation_optimizer: accepted for Keras' optimizers: the numbers are the same.
            **gradient_accumulation_optimizer_kwargs: `dtype` is the type of accumulated gradients, or a function of
                the variable that returns it; an optimizer with its own apply_gradients or update_step gets gradients
                of this type. `reduction_method` is another name of the reduction. `offload_weight_update_variables`
                and `replicated_optimizer_state_sharding` only change the cost report: unless the first is False, the
                optimizer's state is in remote memory, and its transfers take cycles.

        Raises:
            ConfigurationError: for arguments out of range, and for those that Keras sets. It is a ValueError.
        """
        steps = checked_steps(gradient_accumulation_steps_per_replica)
        method = gradient_accumulation_optimizer_kwargs.pop("reduction_method", gradient_accumulation_reduction_method)
        reduction = checked_reduction(method)
        _check_arguments(gradient_accumulation_optimizer_kwargs)
        optimizer = getattr(self, "optimizer", None)
        if use_v2_gradient_accumulation_optimizer and optimizer is not None and not _is_keras_optimizer(optimizer):
            raise ConfigurationError(
                f"Expected a Keras optimizer with use_v2_gradient_accumulation_optimizer=True. Received: "
                f"{type(optimizer).__name__}. Leave the argument out: the numbers are the same."
            )
        options = options_of(self)
        options[STEPS], options[REDUCTION] = steps, REDUCTIONS.index(reduction)
        options[ARGUMENTS] = gradient_accumulation_optimizer_kwargs
        if steps is not None:
            replicas = replicas_of(self.distribute_strategy)
            logger.info(
                "Model %r: with a gradient accumulation of %d steps in each of %d replicas, the effective batch size "
                "is %d times that of the data set.",
                self.name,
                steps,
                replicas,
                steps * replicas,
            )


def checked_steps(steps: object) -> int | None:
    """Return an integer of at least 1, or None; raise ConfigurationError for anything else."""
    return None if steps is None else checked_integer(STEPS, steps)


def _check_arguments(arguments: dict[str, Any]) -> None:
    check_names("GradientAccumulationOptimizerV2", arguments, ACCEPTED, SET_BY_KERAS)
    checked_storage(arguments)
    check_accumulator_type(arguments.get("dtype"))


def _is_keras_optimizer(optimizer: KerasOptimizer) -> bool:
    return hasattr(optimizer, "apply_gradients") and hasattr(optimizer, "get_config")
