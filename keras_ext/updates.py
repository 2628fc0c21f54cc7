"""Batches of a training run as whole updates: checks before it begins, and while it runs."""

from __future__ import annotations

from dataclasses import replace

from engine.errors import AccumulationStepError
from engine.partition.accumulation import Accumulation
from keras_ext.epochs.feeds import BatchSource
from keras_ext.replication import one_run, refuse_partial_batch


def check_batches(partial: tuple[int, int] | None, accumulation: Accumulation, replicas: int) -> None:
    """Raises StepCountError for data with a partial batch, where replicas or an update take several batches.

    `partial` has the rows of the partial batch and of the others; None if all are equal, or nothing is known.
    """
    if accumulation.steps > 1 or replicas > 1:
        refuse_partial_batch(partial, _cause(accumulation.steps, replicas))


def check_executions(steps: int | None, per_execution: int, accumulation: Accumulation) -> None:
    """Raises AccumulationStepError for executions that are no whole number of updates.

    `steps` are those each replica makes in an epoch, executed `per_execution` at a time, and then the rest; None if
    they are not known or divide into whole executions.
    """
    each = accumulation.steps
    if steps is not None and (steps < per_execution or per_execution % each == 0):
        if steps % each:
            raise _epoch_error(steps, accumulation)
    elif per_execution % each:
        raise AccumulationStepError(
            f"Expected steps_per_execution to be a multiple of gradient_accumulation_steps_per_replica. Received: "
            f"steps_per_execution={per_execution}, gradient_accumulation_steps_per_replica={each}. Nearest legal "
            f"values of steps_per_execution: {_nearest(per_execution, each)}."
        )


def as_updates(taken: list[BatchSource], accumulation: Accumulation) -> list[BatchSource]:
    """Counts the steps of feeds in updates.

    Raises StepCountError for batches of several shapes, AccumulationStepError for steps that `accumulation` does not
    divide.
    """
    if accumulation.micro_batches == 1:
        return taken
    batches = one_run(taken, _cause(accumulation.steps, accumulation.replicas))
    if batches.steps % accumulation.micro_batches and batches.error is None:
        raise _execution_error(batches.steps, accumulation)
    updates = batches.steps // accumulation.micro_batches
    if updates == 0 and batches.error is not None:
        raise batches.error
    return [replace(batches, steps=updates)]


def _execution_error(batches: int, accumulation: Accumulation) -> AccumulationStepError:
    micro_batches = accumulation.micro_batches
    error = (
        f"Expected a multiple of {micro_batches} batches in an execution, as many as an update takes: "
        f"gradient_accumulation_steps_per_replica={accumulation.steps}, replicas={accumulation.replicas}. Received: "
        f"{batches}. Nearest legal numbers: {_nearest(batches, micro_batches)}. "
    )
    if batches == 1:
        return AccumulationStepError(
            error + "train_on_batch gives one: call fit on the batches of an update instead, or set "
            "gradient_accumulation_steps_per_replica = 1 and auto_select_ipus = 1."
        )
    return AccumulationStepError(
        error + "Change steps_per_execution, or the number of batches in an epoch (steps_per_epoch, or take() of the "
        "data set)."
    )


def _epoch_error(steps: int, accumulation: Accumulation) -> AccumulationStepError:
    replicas, nearest = accumulation.replicas, _nearest(steps, accumulation.steps)
    of_batches = _nearest(steps, accumulation.steps, replicas)
    batches = "" if replicas == 1 else f" ({of_batches} batches for all {replicas} replicas)"
    return AccumulationStepError(
        f"Expected the steps of an epoch to be a multiple of gradient_accumulation_steps_per_replica. Received: "
        f"{steps} steps, gradient_accumulation_steps_per_replica={accumulation.steps}. Nearest legal numbers of "
        f"steps: {nearest}{batches}. Change steps_per_epoch, or take() as many batches of the data set."
    )


def _nearest(number: int, each: int, factor: int = 1) -> str:
    below, above = number // each * each * factor, -(-number // each) * each * factor
    return f"{below} or {above}" if below else f"{above}"


def _cause(steps: int, replicas: int) -> str:
    counts = ((steps, "accumulation steps"), (replicas, "replicas"))
    return " and ".join(f"{count} {what}" for count, what in counts if count > 1)
