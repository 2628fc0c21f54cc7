"""Custom calls of the device: queues to and from the host, calls of its functions, and collectives between replicas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from engine.frozen import frozen
from engine.ir.module import Instruction, Module
from engine.ir.shape import Shape

INFEED = "ipu.infeed"
"""(token) -> (element leaves..., token); config {"queue": name}."""
OUTFEED = "ipu.outfeed"
"""(leaves..., token) -> token; config {"queue": name}."""
HOST_FUNCTION = "ipu.host_function"
"""(arrays..., token) -> (arrays..., token): calls a function of the host; config {"function": key, "name": text}.

A function without side effect runs any time after its operands, whatever its token, if an instruction needs its
results.
"""
VERTEX = "ipu.vertex"
"""(arrays...) -> (arrays...): a vertex of the user's own on each slice; config as in `engine.ir.vertices`."""
FIRST_OF_EQUAL = "ipu.first_of_equal"
"""(ids [n]) -> s32 [n]: the first position of an id equal to each id."""
CROSS_REPLICA_SUM = "ipu.cross_replica_sum"
BATCH_NORM = "batch_norm"
"""Marks, in the config of a cross-replica sum, a statistic of a batch normalisation."""
CROSS_REPLICA_MEAN = "ipu.cross_replica_mean"
ALL_GATHER = "ipu.all_gather"
ALL_TO_ALL = "ipu.all_to_all"
REDUCE_SCATTER = "ipu.reduce_scatter"
REPLICA_INDEX = "ipu.replica_index"
ASSUME_EQUAL = "ipu.assume_equal"
ACCUMULATION_ITERATION = "ipu.accumulation_iteration"
"""A mark that returns its operand: gradients are accumulated here; config {"num_mini_batches": n}."""
PIPELINE_ITERATION = "ipu.pipeline_iteration"
"""A mark that returns its operand: the body of the enclosing loop, one micro-batch, is to become a pipeline."""
UPDATED_ONCE = "ipu.updated_once"
"""A mark that returns its operand: the new value of a variable that changes once in each execution of a pipeline."""
RECOMPUTATION_CHECKPOINT = "ipu.recomputation_checkpoint"
"""A mark that returns its operand, which is stored where the rest of its stage or step is recomputed."""
CHECKPOINT = "RECOMPUTATION_CHECKPOINT"
"""The frontend attribute of a marked value, once marks are removed."""
OUTLINED = "ipu.outlined"
"""(arguments...) -> results: a call of an outlined function's body; config {"body": key, "call": n, "gradient": bool}.

Programs are imported with a `call` in its place.
"""

TOKEN = Shape("s32")
"""The shape of tokens, which order custom calls: the last operand, and the last result."""
QUEUES = frozenset({INFEED, OUTFEED})
"""Targets ordered by a token. They are not replaced."""
COLLECTIVES = frozenset(
    {
        CROSS_REPLICA_SUM,
        CROSS_REPLICA_MEAN,
        ALL_GATHER,
        ALL_TO_ALL,
        REDUCE_SCATTER,
        REPLICA_INDEX,
        ASSUME_EQUAL,
        ACCUMULATION_ITERATION,
    }
)
"""Targets that are replaced before a module is compiled."""

Direction = Literal["infeed", "outfeed"]


@frozen
class QueueSignature:
    """Direction of one queue between program and host, and shapes of the leaves of its elements."""

    direction: Direction
    shapes: tuple[Shape, ...]


def target_of(instruction: Instruction) -> str | None:
    """The target of a custom call; None for any other instruction."""
    return instruction.get("custom_call_target") if instruction.opcode == "custom-call" else None


def config_of(instruction: Instruction) -> dict[str, Any]:
    """The configuration of one of these custom calls, empty if it has none."""
    text = instruction.get("backend_config", "")
    return dict(json.loads(text)) if text else {}


def is_checkpoint(instruction: Instruction) -> bool:
    """Whether a value is marked to be stored rather than recomputed."""
    return CHECKPOINT in instruction.get("frontend_attributes", {})


def is_queue(instruction: Instruction) -> bool:
    """Whether an instruction is an infeed or an outfeed."""
    return target_of(instruction) in QUEUES


def is_host_function(instruction: Instruction) -> bool:
    """Whether an instruction calls a function of the host."""
    return target_of(instruction) == HOST_FUNCTION


def is_vertex(instruction: Instruction) -> bool:
    """Whether an instruction runs a vertex of the user's own."""
    return target_of(instruction) == VERTEX


def calls_of_host_functions(module: Module) -> Iterator[Instruction]:
    """All calls of functions of the host in a module."""
    return (i for i in module.instructions() if is_host_function(i))


def is_collective(instruction: Instruction) -> bool:
    """Whether an instruction is an operation between replicas."""
    return target_of(instruction) in COLLECTIVES


def queue_of(instruction: Instruction) -> str:
    """The name of the queue of an infeed or an outfeed."""
    return str(config_of(instruction)["queue"])


def queue_signature(instruction: Instruction) -> QueueSignature:
    """The direction and leaves of an infeed or an outfeed."""
    if target_of(instruction) == INFEED:
        return QueueSignature("infeed", instruction.tuple_shapes[:-1])
    return QueueSignature("outfeed", tuple(operand.array_shape for operand in instruction.operands[:-1]))


def queue_operations(module: Module) -> Iterator[Instruction]:
    """All infeeds and outfeeds of a module, including those in loops and branches."""
    return (i for i in module.instructions() if is_queue(i))


def queue_signatures(module: Module) -> dict[str, QueueSignature]:
    """The queues of a module by name: direction, and the shapes of an element's leaves."""
    return {queue_of(each): queue_signature(each) for each in queue_operations(module)}
