"""Batches of a training run as whole updates."""

from __future__ import annotations

from engine.errors import StepCountError
from engine.partition.accumulation import Accumulation
from keras_ext.epochs.feeds import Batches
from keras_ext.replication import refuse_unequal


class AccumulationStepError(StepCountError, RuntimeError):
    """Steps of an execution that are no whole number of updates; RuntimeError is what programs for IPUs catch."""


def as_updates(taken: list[Batches], accumulation: Accumulation) -> list[Batches]:
    """The same feeds, counted in updates.

    Raises StepCountError for batches of several shapes, AccumulationStepError for steps that `accumulation` does not
    divide.
    """
    if accumulation.micro_batches == 1:
        return taken
    refuse_unequal(taken, f"{accumulation.steps} accumulation steps and {accumulation.replicas} replicas")
    (batches,) = taken
    if batches.steps % accumulation.replicas:
        raise StepCountError(
            f"Expected a batch for each of {accumulation.replicas} replicas. Received: {batches.steps} (train_on_batch "
            f"gives one). Use fit, or set auto_select_ipus = 1."
        )
    steps = batches.steps // accumulation.replicas
    if steps % accumulation.steps:
        raise _indivisible(steps, accumulation)
    return [Batches(batches.signature, batches.steps // accumulation.micro_batches, batches.feeds)]


def _indivisible(steps: int, accumulation: Accumulation) -> AccumulationStepError:
    each = accumulation.steps
    below, above = steps // each * each, -(-steps // each) * each
    nearest = f"{below} or {above}" if below else f"{above}"
    return AccumulationStepError(
        f"Expected the steps of an execution to be a multiple of gradient_accumulation_steps_per_replica. Received: "
        f"{steps} steps (steps_per_execution, or what an epoch leaves for its last execution), "
        f"gradient_accumulation_steps_per_replica={each}. Nearest legal numbers of steps: {nearest}. Change "
        f"steps_per_execution, or give an epoch a multiple of {accumulation.micro_batches} batches (steps_per_epoch, "
        f"or take() of the data set)."
    )
