"""Turns a traced step into a step of all replicas, with the per-replica rows of variables."""

from __future__ import annotations

from dataclasses import replace

import tensorflow as tf

from engine.errors import ConfigurationError, StepCountError
from engine.ir.device_operations import OUTFEED, is_collective, queue_of, target_of
from engine.partition.batch_norm_groups import group_of, is_statistic
from engine.partition.processes import Processes
from engine.partition.replicate import replicate
from ipu._internal.compiler.accumulation import ReplicaRows, variable_numbers
from ipu._internal.compiler.batch_norm import OPTION, in_a_pipeline
from ipu._internal.compiler.trace import TracedStep
from ipu._internal.queues.registry import puts_replicas_together


class AccumulationLoopError(StepCountError, tf.errors.FailedPreconditionError):
    """Gradients are accumulated in a loop whose number of iterations is no multiple of the batches in an update."""

    def __init__(self, message: str) -> None:
        tf.errors.FailedPreconditionError.__init__(self, None, None, message)


def alone(traced: TracedStep, replicas: int, processes: Processes | None = None) -> TracedStep:
    """A step whose replicas run one after the other, so that they cannot synchronise.

    Raises ConfigurationError for collectives or shards with several replicas, and as _check_groups and _check_queues.
    """
    # One replica's statistics become calls between processes here; several replicas' are of one process.
    spans = processes is not None and (replicas == 1 or group_of(traced.module) == 1)
    _check_groups(traced, replicas * (processes.count if processes is not None and replicas == 1 else 1))
    collectives = (i for c in traced.module.computations() for i in c.instructions if is_collective(i))
    found = [i for i in collectives if not is_statistic(i)]
    if found and replicas > 1:
        raise ConfigurationError(
            f"Expected Keras models without operations between replicas: fit, evaluate and predict reduce gradients "
            f"and metrics over replicas themselves. Received: {target_of(found[0])} "
            f"({found[0].op_name or found[0].name}) with {replicas} replicas. Write the training loop in a tf.function "
            f"for IPUStrategy.run, or set auto_select_ipus = 1."
        )
    if traced.ipus > 1 and replicas > 1:
        raise ConfigurationError(
            f"Expected Keras models to be split over IPUs by pipeline stages. Received: ipu_shard over {traced.ipus} "
            f"IPUs in a model of {replicas} replicas. Use PipelineStage, write the training loop in a tf.function for "
            f"IPUStrategy.run, or set auto_select_ipus = 1."
        )
    _check_queues(traced, replicas)
    traced = replicated(traced, 1, processes, sums=False) if found or spans else traced
    return replace(traced, sequential=replicas)


def without_groups(traced: TracedStep, pipelined: bool = False) -> TracedStep:
    """A step, or micro-batch of a pipeline, whose replicas do not run together.

    Raises ConfigurationError for batch normalisations over groups of replicas.
    """
    if group_of(traced.module) == 1:
        return traced
    if pipelined:
        raise in_a_pipeline()
    raise ConfigurationError(
        f"Expected batch normalisation over several replicas in fit alone. Received: a layer called with "
        f"training=True in evaluate or predict, with statistics of {group_of(traced.module)} replicas. Set "
        f"{OPTION} = 1, and synchronized=False in layers."
    )


def _check_groups(traced: TracedStep, replicas: int) -> None:
    """Raises ConfigurationError for batch normalisations over groups that do not divide the replicas."""
    group = group_of(traced.module)
    if replicas % group:
        nearest = max(size for size in range(1, min(group, replicas) + 1) if replicas % size == 0)
        raise ConfigurationError(
            f"Expected {OPTION} to divide the number of replicas, {replicas}. Received: {group}. Nearest: {nearest}. "
            f"Layers with synchronized=True take the replicas of all processes."
        )


def _check_queues(traced: TracedStep, replicas: int) -> None:
    """Raises ConfigurationError for an outfeed in a loop or branch, where the rows of replicas would not alternate."""
    if replicas == 1:
        return
    pending, seen = [i for i in traced.module.entry.instructions if i.called], set()
    while pending:
        caller = pending.pop()
        for inside in (i for computation in caller.called for i in computation.instructions):
            is_in_sequence = target_of(inside) == OUTFEED and puts_replicas_together(queue_of(inside))
            if is_in_sequence and caller.opcode != "call":
                raise ConfigurationError(
                    f"Expected Keras models to enqueue once in each step where they have {replicas} replicas. "
                    f"Received: an enqueue to outfeed queue {queue_of(inside)!r} ({inside.op_name or inside.name}) "
                    f"inside a loop or a branch. Enqueue after it, or set auto_select_ipus = 1."
                )
            if inside.called and inside not in seen:
                seen.add(inside)
                pending.append(inside)


def replicated(traced: TracedStep, replicas: int, processes: Processes | None = None, sums: bool = True) -> TracedStep:
    """The step that `replicas` replicas execute together; for one replica, collectives are simplified.

    With `processes`, each process has `replicas` replicas, and collectives span the processes. If it `sums`, variables
    that are summed on read, as those of metrics are, show their sums over replicas.

    Raises ConfigurationError for replica groups that do not divide, and for collectives and queues in a loop or branch
    that only some replicas enter; AccumulationLoopError, a FailedPreconditionError, where gradients are accumulated
    outside of a loop or in one whose number of iterations is no multiple of the batches in an update.
    """
    numbers = variable_numbers(traced)
    names = {number: variable.name for number, variable in numbers.variables.items()}
    summed = numbers.summed if sums else set()
    try:
        made = replicate(traced.module, traced.roles, replicas, names, processes, summed)
    except StepCountError as error:
        raise AccumulationLoopError(str(error)) from error
    first = processes is None or processes.index == 0
    rows = [ReplicaRows(numbers.variables[n], replicas, n in summed, first) for n in made.rows]
    variables = [*traced.variables, *rows]
    traced = replace(traced, replicas=replicas, alone=traced, processes=processes)
    return replace(traced, module=made.module, roles=made.roles, variables=variables)
