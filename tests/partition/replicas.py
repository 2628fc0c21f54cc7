"""The oracle of replication: R threads, which run replicas by the NumPy definitions and synchronise at collectives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from engine.evaluate import evaluate
from engine.ir import Instruction, Module, Shape, TupleShape
from engine.ir.builder import Builder
from engine.ir.device_operations import (
    ALL_GATHER,
    ALL_TO_ALL,
    ASSUME_EQUAL,
    CROSS_REPLICA_MEAN,
    CROSS_REPLICA_SUM,
    INFEED,
    OUTFEED,
    REDUCE_SCATTER,
    REPLICA_INDEX,
    config_of,
    target_of,
)
from engine.ops.registry import DEFINITIONS, Value
from engine.partition.replica_copies import FOLD
from tests.interrupting import PATIENCE_SECONDS


def device_call(
    b: Builder, target: str, operands: Sequence[Instruction], shapes: Sequence[Shape], config: str = "{}"
) -> Instruction:
    """A custom call of the device, with a tuple of results if there are several."""
    shape = shapes[0] if len(shapes) == 1 else TupleShape(tuple(shapes))
    return b.instruction(
        "custom-call",
        shape,
        tuple(operands),
        custom_call_target=target,
        backend_config=config,
        custom_call_has_side_effect=target in (INFEED, OUTFEED),
    )


def collective(b: Builder, target: str, x: Instruction, dimensions=None, config: str = "{}") -> Instruction:
    """A collective of one operand."""
    shape = x.array_shape if dimensions is None else x.array_shape.with_dimensions(dimensions)
    return device_call(b, target, [x], [shape], config)


@dataclass
class Replicas:
    """State that replicas share: an infeed's elements, an outfeed's rows, and a table where they exchange values."""

    count: int
    elements: Sequence[np.ndarray] = ()
    rows: list[list[np.ndarray]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.count)
        self.table: list[np.ndarray | None] = [None] * self.count
        self.local = threading.local()
        self.iterations = [0] * self.count
        self.rows = [[] for _ in range(self.count)]

    def run(self, module: Module, arguments: Sequence[list[np.ndarray]]) -> list[tuple[np.ndarray, ...]]:
        """Each replica's results for its arguments."""
        results: list[tuple[np.ndarray, ...] | None] = [None] * self.count
        errors: list[BaseException] = []

        def replica(number: int) -> None:
            self.local.number = number
            try:
                results[number] = evaluate(module, arguments[number])
            except BaseException as error:  # noqa: BLE001 - told to the test's thread
                errors.append(error)
                self.barrier.abort()

        with defined(self.custom_call, self.random_bits):
            threads = [threading.Thread(target=replica, args=(number,)) for number in range(self.count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]
        return [each for each in results if each is not None]

    def meet(self, x: np.ndarray) -> list[np.ndarray]:
        """The values that all replicas have for a collective's operand."""
        self.barrier.wait(PATIENCE_SECONDS)
        self.table[self.local.number] = x
        self.barrier.wait(PATIENCE_SECONDS)
        values = list(self.table)
        self.barrier.wait(PATIENCE_SECONDS)
        return values  # type: ignore[return-value]

    def random_bits(self, instruction: Instruction, operands: list[np.ndarray]) -> Value:
        state = operands[0].copy()
        fold = np.array([self.local.number * FOLD % 2**64], np.uint64)
        state[:1] ^= fold
        following, bits = ORIGINAL["rng-bit-generator"](instruction, [state])
        following = following.copy()
        following[:1] ^= fold
        return following, bits

    def custom_call(self, instruction: Instruction, operands: list[np.ndarray]) -> Value:
        target, config, number = target_of(instruction), config_of(instruction), self.local.number
        if target == REPLICA_INDEX:
            return np.array(number, np.int32)
        if target == ASSUME_EQUAL:
            return self.meet(operands[0])[0]
        if target == INFEED:
            element = self.elements[self.iterations[number] * self.count + number]
            self.iterations[number] += 1
            return element, np.asarray(operands[-1] + np.int32(1))
        if target == OUTFEED:
            self.rows[number].append(operands[0])
            return np.asarray(operands[-1] + np.int32(1))
        values = self.meet(operands[0])
        if target == ALL_TO_ALL:
            blocks = [np.split(v, self.count, config["split_dimension"])[number] for v in values]
            return np.concatenate(blocks, config["concat_dimension"])
        size = config.get("replica_group_size") or self.count
        group = values[number // size * size : number // size * size + size]
        if target == ALL_GATHER:
            return np.stack(group)
        total = group[0]
        if target in (CROSS_REPLICA_SUM, CROSS_REPLICA_MEAN):
            for value in group[1:]:
                total = total + value
            return (
                (total / np.asarray(size, total.dtype)).astype(total.dtype) if target == CROSS_REPLICA_MEAN else total
            )
        assert target == REDUCE_SCATTER
        return scattered(config["operation"], group, number % size, values[number])


def scattered(operation: str, group: Sequence[np.ndarray], place: int, own: np.ndarray) -> np.ndarray:
    """One replica's slice."""
    table = np.stack(group)
    functions: dict[str, Callable[[], np.ndarray]] = {
        "ADD": lambda: table.sum(0, dtype=table.dtype),
        "MUL": lambda: table.prod(0, dtype=table.dtype),
        "MIN": lambda: table.min(0),
        "MAX": lambda: table.max(0),
        "LOGICAL_AND": lambda: (table != 0).all(0).astype(table.dtype),
        "LOGICAL_OR": lambda: (table != 0).any(0).astype(table.dtype),
        "SQUARE_ADD": lambda: (table * table).sum(0, dtype=table.dtype),
        "MEAN": lambda: table.mean(0, dtype=table.dtype),
        "LOCAL": lambda: own,
    }
    whole = functions[operation]()
    size = -(-len(whole) // len(group))
    padded = np.zeros(size * len(group), whole.dtype)
    padded[: len(whole)] = whole
    return padded[place * size : (place + 1) * size]


ORIGINAL = dict(DEFINITIONS)


@contextmanager
def defined(custom_call, random_bits=None) -> Iterator[None]:
    """Other definitions for a while."""
    before = {name: DEFINITIONS.get(name) for name in ("custom-call", "rng-bit-generator")}
    DEFINITIONS["custom-call"] = custom_call
    if random_bits is not None:
        DEFINITIONS["rng-bit-generator"] = random_bits
    try:
        yield
    finally:
        for name, function in before.items():
            if function is None:
                DEFINITIONS.pop(name)
            else:
                DEFINITIONS[name] = function


@dataclass
class Host:
    """The queues of a replicated program, which takes elements one after another."""

    elements: Sequence[np.ndarray] = ()
    taken: int = 0
    rows: list[np.ndarray] = field(default_factory=list)

    def custom_call(self, instruction: Instruction, operands: list[np.ndarray]) -> Value:
        if target_of(instruction) == INFEED:
            self.taken += 1
            return self.elements[self.taken - 1], np.asarray(operands[-1] + np.int32(1))
        assert target_of(instruction) == OUTFEED, instruction
        self.rows.append(operands[0])
        return np.asarray(operands[-1] + np.int32(1))
