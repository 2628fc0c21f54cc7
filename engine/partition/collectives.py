"""Collectives where all replicas are in one program: sums, concatenations and slices over the copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from engine.errors import ConfigurationError
from engine.ir import Instruction
from engine.ir.builder import Builder
from engine.ir.device_operations import (
    ALL_GATHER,
    ALL_TO_ALL,
    CROSS_REPLICA_MEAN,
    CROSS_REPLICA_SUM,
    REDUCE_SCATTER,
    config_of,
    target_of,
)
from engine.partition.processes import Processes

Copies = Sequence[Instruction]
"""One instruction for each replica."""


def synchronise(
    b: Builder, collective: Instruction, copies: Copies, processes: Processes | None = None
) -> list[Instruction]:
    """Each replica's result of a collective of all replicas' operands, in the order of the replicas.

    With `processes` the copies belong to one process, and groups may span processes: sums of all replicas are reduced
    inside each process first; other collectives gather the operands.

    Raises ConfigurationError if the replicas cannot be divided into the requested groups, or for an unknown operation.
    """
    if processes is not None:
        return _between_processes(b, collective, copies, processes)
    config, replicas = config_of(collective), len(copies)
    target = target_of(collective)
    if target == ALL_TO_ALL:
        if config["number_of_replicas"] != replicas:
            raise ConfigurationError(
                f"Expected the replication factor of all_to_all to be the number of replicas. Received: "
                f"{config['number_of_replicas']} for {_position(collective)}. Nearest: {replicas}."
            )
        return _all_to_all(b, copies, config["split_dimension"], config["concat_dimension"])
    size = config.get("replica_group_size") or replicas
    if size < 0 or replicas % size:
        raise ConfigurationError(
            f"Expected a replica group size that divides the number of replicas, {replicas}. Received: {size} for "
            f"{_position(collective)}. Nearest: {_nearest_divisor(replicas, size)}."
        )
    groups = [copies[start : start + size] for start in range(0, replicas, size)]
    if target == REDUCE_SCATTER:
        return [result for group in groups for result in _reduce_scatter(b, collective, config["operation"], group)]
    combined = {CROSS_REPLICA_SUM: _added, CROSS_REPLICA_MEAN: _mean, ALL_GATHER: stacked}[str(target)]
    return [result for group in groups for result in [combined(b, group)] * size]


def _between_processes(b: Builder, collective: Instruction, copies: Copies, processes: Processes) -> list[Instruction]:
    target, own = target_of(collective), len(copies)
    every = own * processes.count
    group = config_of(collective).get("replica_group_size") or every
    if target != ALL_TO_ALL and 0 < group <= own and own % group == 0:
        return synchronise(b, collective, copies)
    if group == every and target in (CROSS_REPLICA_SUM, CROSS_REPLICA_MEAN):
        if target == CROSS_REPLICA_MEAN and _is_narrow(copies):
            (mean,) = processes.summed(b, [_added(b, _shares(b, copies, every))])
            return [b.convert(mean, copies[0].array_shape.element_type)] * own
        added = total(b, copies, processes)
        return [_over(b, added, every) if target == CROSS_REPLICA_MEAN else added] * own
    rows = processes.gathered(b, stacked(b, copies))
    rows = b.reshape(rows, (every, *rows.array_shape.dimensions[2:]))
    results = synchronise(b, collective, [unstacked(b, rows, number) for number in range(every)])
    return results[processes.index * own : (processes.index + 1) * own]


def stacked(b: Builder, copies: Copies) -> Instruction:
    """The copies along a new first dimension."""
    rows = [b.reshape(copy, (1, *copy.array_shape.dimensions)) for copy in copies]
    return b.concatenate(rows, 0) if len(rows) > 1 else rows[0]


def unstacked(b: Builder, rows: Instruction, number: int) -> Instruction:
    """Copy number `number` among stacked copies."""
    dimensions = rows.array_shape.dimensions[1:]
    return b.reshape(b.slice(rows, (number, number + 1), *((0, size) for size in dimensions)), dimensions)


def total(b: Builder, copies: Copies, processes: Processes | None) -> Instruction:
    """The sum of the copies, and with `processes` of those of all processes."""
    added = _added(b, copies)
    return added if processes is None else processes.summed(b, [added])[0]


def _added(b: Builder, copies: Copies) -> Instruction:
    opcode = "or" if copies[0].array_shape.element_type == "pred" else "add"
    return _folded(b, opcode, copies)


def _folded(b: Builder, opcode: str, copies: Copies) -> Instruction:
    return reduce(lambda one, other: b.elementwise(opcode, one, other), copies)


def _mean(b: Builder, copies: Copies) -> Instruction:
    if len(copies) == 1:
        return copies[0]
    if _is_narrow(copies):
        return b.convert(_added(b, _shares(b, copies, len(copies))), copies[0].array_shape.element_type)
    return _over(b, _added(b, copies), len(copies))


def _is_narrow(copies: Copies) -> bool:
    return copies[0].array_shape.element_type in ("f16", "bf16")


def _shares(b: Builder, copies: Copies, count: int) -> Copies:
    """The copies of 16-bit floats, each divided by the count, in float32: their sum could overflow otherwise."""
    return [_over(b, b.convert(copy, "f32"), count) for copy in copies]


def _over(b: Builder, total: Instruction, count: int) -> Instruction:
    shape = total.array_shape
    return b.divide(total, b.splat(count, shape.dimensions, shape.element_type))


def _all_to_all(b: Builder, copies: Copies, split: int, joined: int) -> list[Instruction]:
    """Replica r has block r of every replica's operand."""
    size = copies[0].array_shape.dimensions[split] // len(copies)

    def block(copy: Instruction, number: int) -> Instruction:
        ranges = [(0, length) for length in copy.array_shape.dimensions]
        ranges[split] = (number * size, (number + 1) * size)
        return b.slice(copy, *ranges)

    if len(copies) == 1:
        return list(copies)
    return [b.concatenate([block(copy, number) for copy in copies], joined) for number in range(len(copies))]


def _is_true(b: Builder, copy: Instruction) -> Instruction:
    shape = copy.array_shape
    return b.compare(copy, b.splat(0, shape.dimensions, shape.element_type), "NE")


OPERATIONS: dict[str, tuple[str, Callable[[Builder, Instruction], Instruction] | None]] = {
    "ADD": ("add", None),
    "MUL": ("multiply", None),
    "MIN": ("minimum", None),
    "MAX": ("maximum", None),
    "LOGICAL_AND": ("and", _is_true),
    "LOGICAL_OR": ("or", _is_true),
    "SQUARE_ADD": ("add", lambda b, copy: b.multiply(copy, copy)),
}
"""The operations of reduce-scatter: the opcode that combines two copies, and the function applied to each before."""


def _reduce_scatter(b: Builder, collective: Instruction, operation: str, copies: Copies) -> list[Instruction]:
    """Replica r has slice r of the reduced operands; LOCAL takes the slice from its own operand."""
    if operation == "LOCAL":
        wholes = list(copies)
    else:
        wholes = [_reduced(b, collective, operation, copies)] * len(copies)
    (length,) = wholes[0].array_shape.dimensions
    size = -(-length // len(copies))
    missing = size * len(copies) - length
    if missing:
        zero = b.constant(np.zeros((), wholes[0].array_shape.dtype), wholes[0].array_shape.element_type)
        wholes = [b.pad(whole, zero, (0, missing)) for whole in wholes]
    return [b.slice(whole, (r * size, (r + 1) * size)) for r, whole in enumerate(wholes)]


def _reduced(b: Builder, collective: Instruction, operation: str, copies: Copies) -> Instruction:
    if operation == "MEAN":
        return _mean(b, copies)
    if operation not in OPERATIONS:
        raise ConfigurationError(
            f"Expected an operation of reduce_scatter among {', '.join([*OPERATIONS, 'MEAN', 'LOCAL'])}. Received: "
            f"{operation!r} for {_position(collective)}. Nearest: 'ADD'."
        )
    opcode, before = OPERATIONS[operation]
    total = _folded(b, opcode, [before(b, copy) for copy in copies] if before else copies)
    same = total.shape == copies[0].shape
    return total if same else b.convert(total, copies[0].array_shape.element_type)


def _nearest_divisor(number: int, wanted: int) -> int:
    divisors = [each for each in range(1, number + 1) if number % each == 0]
    return min(divisors, key=lambda each: abs(each - wanted))


def _position(instruction: Instruction) -> str:
    return instruction.op_name or instruction.name
