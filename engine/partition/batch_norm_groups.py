"""Batch normalisation over groups of replicas: its sums over a batch become sums over the batches of a group.

A statistic is a cross-replica sum marked as one (see `is_statistic`). It is all-reduced in the forward and backward
pass; the gradients of scale and offset are sums over the replica's own batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import numpy as np

from engine.ir import Instruction, Module
from engine.ir.device_operations import BATCH_NORM, CROSS_REPLICA_SUM, config_of, target_of
from engine.passes import construct
from engine.passes.expand_batch_norm import Normalization, gradients, training
from engine.passes.inline_calls import inline_calls
from engine.passes.rewriting import make, rewrite
from engine.passes.splats import splat_value

TRAINING = ("batch-norm-training", "batch-norm-grad")
VARIANCE = 2
"""Tuple index of the variance among the results of batch-norm-training."""


def over_groups(module: Module, group: int) -> Module:
    """The module with the statistics of batch-norm-training and -grad taken over groups of `group` replicas."""
    if group == 1 or not any(i.opcode in TRAINING for i in module.instructions()):
        return module
    # Unbiased variances first: afterwards their source is no longer known.
    module = rewrite(module, lambda _, each: _unbiased(each, group) if each.opcode == "multiply" else None)
    return inline_calls(rewrite(module, lambda _, each: _expanded(each, group) if each.opcode in TRAINING else None))


def statistics(module: Module) -> Iterator[Instruction]:
    """The cross-replica sums that are statistics, in loops and branches too."""
    return (i for i in module.instructions() if is_statistic(i))


def is_statistic(instruction: Instruction) -> bool:
    """Whether an instruction is a statistic of a group."""
    return target_of(instruction) == CROSS_REPLICA_SUM and bool(config_of(instruction).get(BATCH_NORM))


def group_of(module: Module) -> int:
    """The number of replicas that share statistics, 1 for a module without any."""
    return max((config_of(i)["replica_group_size"] for i in statistics(module)), default=1)


def for_one(module: Module) -> Module:
    """The module of one replica alone: the same computation without the exchange."""
    return rewrite(module, lambda _, each: each.operands[0] if is_statistic(each) else None)


class _OverGroup(Normalization):
    """Normalisation whose means are over the batches of a group."""

    def __init__(self, instruction: Instruction, group: int) -> None:
        super().__init__(instruction)
        self.group = group
        self.count *= group

    def together(self, own: Instruction) -> Instruction:
        """The sum over the group's replicas."""
        config = json.dumps({"replica_group_size": self.group, BATCH_NORM: True})
        return make(
            self.like,
            *("custom-call", own.shape, (own,)),
            custom_call_target=CROSS_REPLICA_SUM,
            backend_config=config,
            custom_call_has_side_effect=False,
        )


def _expanded(instruction: Instruction, group: int) -> Instruction:
    expand = training if instruction.opcode == "batch-norm-training" else gradients
    return expand(instruction, partial(_OverGroup, group=group))


def _unbiased(product: Instruction, group: int) -> Instruction | None:
    """TensorFlow's n / (n - 1) times a variance of n elements, with the n of the whole group."""
    for variance, factor in (product.operands, product.operands[::-1]):
        if variance.opcode != "get-tuple-element" or variance["tuple_index"] != VARIANCE:
            continue
        (source,) = variance.operands
        if source.opcode != "batch-norm-training" or (value := splat_value(factor)) is None:
            continue
        count = Normalization(source).count
        if value != np.array(count / max(1, count - 1), value.dtype):
            continue
        elements = count * group
        unbiased = construct.splat_of(product, elements / (elements - 1), product.array_shape)
        return construct.elementwise(product, "multiply", variance, unbiased)
    return None
