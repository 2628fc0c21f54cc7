"""Random programs of loops, branches and collectives on replicas, against threads that synchronise."""

from __future__ import annotations

import json

import numpy as np
import pytest

from engine.ir import Computation, Instruction, Module, Shape, TupleShape
from engine.ir.builder import Builder
from engine.ir.device_operations import (
    ALL_GATHER,
    ALL_TO_ALL,
    ASSUME_EQUAL,
    CROSS_REPLICA_MEAN,
    CROSS_REPLICA_SUM,
    REDUCE_SCATTER,
    REPLICA_INDEX,
)
from tests.partition.replicas import collective, device_call
from tests.partition.test_replicate import agree

SIZE = 6
VECTOR = Shape("f32", (SIZE,))
ALL = json.dumps({"replica_group_size": None})


class Program:
    """Writes computations on vectors; each may use all earlier values."""

    def __init__(self, seed: int, replicas: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.replicas = replicas

    def module(self) -> Module:
        b = Builder("random")
        values = [b.parameter_of(VECTOR) for _ in range(4)]
        kept = self.block(b, list(values), depth=2, together=True)
        new = [kept[int(self.rng.integers(len(kept)))] for _ in range(3)]
        return b.module(b.tuple(*new, kept[-1]), {0: 0, 1: 1, 2: 2})

    def block(self, b: Builder, values: list[Instruction], depth: int, together: bool) -> list[Instruction]:
        for _ in range(int(self.rng.integers(3, 7))):
            kinds = ["mix", "mix", "own", "collective" if together else "mix"]
            kinds += ["branch", "loop"] if depth else []
            values.append(getattr(self, str(self.rng.choice(kinds)))(b, values, depth, together))
        return values

    def pick(self, values: list[Instruction]) -> Instruction:
        return values[int(self.rng.integers(max(0, len(values) - 6), len(values)))]

    def mix(self, b: Builder, values: list[Instruction], *_) -> Instruction:
        opcode = str(self.rng.choice(["add", "subtract", "multiply", "maximum"]))
        mixed = b.elementwise(opcode, self.pick(values), self.pick(values))
        return b.elementwise("clamp", b.constant(-3.0), mixed, b.constant(3.0))

    def own(self, b: Builder, values: list[Instruction], *_) -> Instruction:
        index = b.convert(device_call(b, REPLICA_INDEX, [], [Shape("s32")]), "f32")
        return b.add(self.pick(values), b.broadcast(index, (SIZE,), ()))

    def collective(self, b: Builder, values: list[Instruction], *_) -> Instruction:
        x, r = self.pick(values), self.replicas
        match str(self.rng.choice(["sum", "mean", "gather", "exchange", "scatter", "group", "equal"])):
            case "sum":
                return collective(b, CROSS_REPLICA_SUM, x, None, ALL)
            case "mean":
                return collective(b, CROSS_REPLICA_MEAN, x, None, ALL)
            case "gather":
                gathered = collective(b, ALL_GATHER, x, (r, SIZE), ALL)
                return b.reshape(b.slice(gathered, (r - 1, r), (0, SIZE)), (SIZE,))
            case "exchange":
                config = {"split_dimension": 0, "concat_dimension": 0, "number_of_replicas": r}
                return collective(b, ALL_TO_ALL, x, None, json.dumps(config))
            case "scatter":
                config = json.dumps({"operation": "ADD", "replica_group_size": r})
                part = collective(b, REDUCE_SCATTER, x, (SIZE // r,), config)
                return b.concatenate([part] * r, 0)
            case "group":
                size = int(self.rng.choice([n for n in range(1, r + 1) if r % n == 0]))
                return collective(b, CROSS_REPLICA_SUM, x, None, json.dumps({"replica_group_size": size}))
        return collective(b, ASSUME_EQUAL, x)

    def predicate(self, b: Builder, x: Instruction, equal: bool) -> Instruction:
        x = collective(b, ASSUME_EQUAL, x) if equal else x
        return b.compare(b.reduce(x, b.constant(0.0), (0,)), b.constant(float(self.rng.normal())), "GT")

    def branch(self, b: Builder, values: list[Instruction], depth: int, together: bool) -> Instruction:
        equal = together and bool(self.rng.integers(2))
        given = [self.pick(values) for _ in range(3)]
        branches = [self.inside("branch", given, depth, equal) for _ in range(2)]
        operand = b.tuple(*given)
        chosen = b.conditional(self.predicate(b, self.pick(values), equal), branches, [operand, operand])
        return b.add(b.get_tuple_element(chosen, 0), b.get_tuple_element(chosen, 1))

    def inside(self, name: str, given: list[Instruction], depth: int, together: bool) -> Computation:
        inner = Builder(name)
        operand = inner.parameter_of(TupleShape((VECTOR,) * len(given)))
        values = [inner.get_tuple_element(operand, k) for k in range(len(given))]
        values = self.block(inner, values, depth - 1, together)
        inner.tuple(values[-1], values[0])
        return inner.build()

    def loop(self, b: Builder, values: list[Instruction], depth: int, together: bool) -> Instruction:
        """Builds a loop of two to four iterations, or of fewer, by a sum that may differ between replicas."""
        counted = bool(self.rng.integers(2))
        given = [self.pick(values) for _ in range(3)]
        shape = TupleShape((Shape("s32"), TupleShape((VECTOR, VECTOR)), VECTOR))
        body, more = Builder("iteration"), Builder("more")
        state = body.parameter_of(shape)
        pair = body.get_tuple_element(state, 1)
        inner = [body.get_tuple_element(pair, 0), body.get_tuple_element(pair, 1), body.get_tuple_element(state, 2)]
        inner = self.block(body, inner, depth - 1, together and counted)
        count = body.add(body.get_tuple_element(state, 0), body.constant(1, "s32"))
        body.tuple(count, body.tuple(inner[-1], inner[int(self.rng.integers(3))]), inner[2])
        state = more.parameter_of(shape)
        limit = more.constant(int(self.rng.integers(2, 5)), "s32")
        goes_on = more.compare(more.get_tuple_element(state, 0), limit, "LT")
        if not counted:
            first = more.get_tuple_element(more.get_tuple_element(state, 1), 0)
            goes_on = more.elementwise("and", goes_on, self.predicate(more, first, False))
        initial = b.tuple(b.constant(0, "s32"), b.tuple(given[0], given[1]), given[2])
        made = b.instruction("while", shape, (initial,), (body.build(), more.build(goes_on)))
        pair = b.get_tuple_element(made, 1)
        return b.add(b.get_tuple_element(pair, 0), b.get_tuple_element(pair, 1))


@pytest.mark.sample(30)
@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    replicas = (1, 2, 3)[seed % 3]
    module = Program(seed, replicas).module()
    rng = np.random.default_rng(seed)
    arguments = [rng.normal(size=SIZE).astype(np.float32) for _ in range(4)]
    summed = frozenset({1}) if seed % 2 else frozenset()
    agree(module, ["variable", "variable", "variable", "feed"], replicas, arguments, summed)
