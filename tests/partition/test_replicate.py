"""A program of R replicas gives the results of R threads on the definitions that synchronise at collectives."""

from __future__ import annotations

import json
from collections.abc import Set

import numpy as np
import pytest

from engine.errors import ConfigurationError
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
    is_collective,
)
from engine.ir.verifier import verify
from engine.partition.replicas import Replicated
from engine.partition.replicate import replicate
from tests.partition.replicas import Host, Replicas, collective, defined, device_call

COUNTS = [1, 2, 3, 4]
TOKEN = Shape("s32")


def group(size: int | None) -> str:
    return json.dumps({"replica_group_size": size})


def index_of(b: Builder) -> Instruction:
    return device_call(b, REPLICA_INDEX, [], [TOKEN])


def own_values(b: Builder, x: Instruction) -> Instruction:
    """Returns a value that differs on each replica: x times (its number + 1)."""
    number = b.add(index_of(b), b.constant(1, "s32"))
    scale = b.convert(number, x.array_shape.element_type)
    return b.multiply(x, b.broadcast(scale, x.array_shape.dimensions, ()))


def agree(
    module: Module, roles: list[str], replicas: int, arguments: list[np.ndarray], summed: Set[int] = frozenset()
) -> Replicated:
    """Compares program and threads in two runs: the results of replica 0, and the values of all replicas' variables.

    Of the variables numbered `summed`, all replicas but the first begin with zeros, and the result is the sum.
    """
    made = replicate(module, roles, replicas, summed=summed)
    verify(made.module)
    assert not any(is_collective(i) for c in made.module.computations() for i in c.instructions)
    oracle, host = Replicas(replicas), Host()
    own = [
        [0 * value if replica and number in summed else value for number, value in enumerate(arguments)]
        for replica in range(replicas)
    ]
    rows_of = {number: [values[number] for values in own] for number in made.rows}
    firsts = {number: [arguments[number]] if number in summed else [] for number in made.rows}
    joint = [*arguments, *(np.stack([*firsts[number], *rows]) for number, rows in rows_of.items())]
    for _ in range(2):
        expected = oracle.run(module, own)
        with defined(host.custom_call):
            received = evaluate(made.module, joint)
        sums = {module.aliases[number] for number in summed}
        for index, (one, other) in enumerate(zip(received, expected[0], strict=False)):
            np.testing.assert_array_equal(one, sum(each[index] for each in expected) if index in sums else other)
        for place, number in enumerate(made.rows):
            rows = received[len(expected[0]) + place]
            first = [received[module.aliases[number]]] if number in summed else []
            np.testing.assert_array_equal(rows, first + [results[module.aliases[number]] for results in expected])
        for number, result in module.aliases.items():
            for replica in range(replicas):
                own[replica][number] = expected[replica][result]
                if number not in made.rows and number not in summed:
                    np.testing.assert_array_equal(expected[replica][result], received[result])
        for number, result in made.module.aliases.items():
            joint[number] = received[result]
    handed = [np.stack(rows) if replicas > 1 else rows[0] for rows in zip(*oracle.rows, strict=True)]
    assert len(host.rows) == len(handed)
    for one, other in zip(host.rows, handed, strict=True):
        np.testing.assert_array_equal(one, other)
    return made


@pytest.mark.parametrize("replicas", COUNTS)
@pytest.mark.parametrize("target", [CROSS_REPLICA_SUM, CROSS_REPLICA_MEAN, ALL_GATHER])
@pytest.mark.parametrize("element_type", ["f32", "f16", "s32"])
def test_all_replicas_get_the_same(target: str, replicas: int, element_type: str) -> None:
    b = Builder()
    x = b.parameter(element_type, (2, 3))
    dimensions = (replicas, 2, 3) if target == ALL_GATHER else (2, 3)
    b.tuple(collective(b, target, own_values(b, x), dimensions, group(None)))
    value = np.arange(6).reshape(2, 3).astype(x.array_shape.dtype) * 3
    agree(b.module(), ["feed"], replicas, [value])


@pytest.mark.parametrize("target", [CROSS_REPLICA_SUM, CROSS_REPLICA_MEAN, ALL_GATHER])
@pytest.mark.parametrize(("replicas", "size"), [(4, 2), (4, 1), (4, 4), (2, 1), (3, 3), (6, 3)])
def test_groups_are_consecutive(target: str, replicas: int, size: int) -> None:
    b = Builder()
    x, held = b.parameter("f32", (5,)), b.parameter("f32", (size, 5) if target == ALL_GATHER else (5,))
    dimensions = held.array_shape.dimensions
    met = collective(b, target, own_values(b, x), dimensions, group(size))
    module = b.module(b.tuple(b.add(held, met)), {1: 0})
    start = np.zeros(dimensions, np.float32)
    made = agree(module, ["feed", "variable"], replicas, [np.float32([1, 2, -3, np.inf, 1e-3]), start])
    assert made.rows == ((1,) if size < replicas else ())


@pytest.mark.parametrize("replicas", COUNTS)
@pytest.mark.parametrize(("split", "joined"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_all_to_all(replicas: int, split: int, joined: int) -> None:
    b = Builder()
    x, held = b.parameter("f32", (12, 24)), [12, 24]
    held[split] //= replicas
    held[joined] *= replicas
    config = {"split_dimension": split, "concat_dimension": joined, "number_of_replicas": replicas}
    variable = b.parameter("f32", tuple(held))
    met = collective(b, ALL_TO_ALL, own_values(b, x), tuple(held), json.dumps(config))
    module = b.module(b.tuple(b.add(met, variable)), {1: 0})
    value = np.random.default_rng(replicas).normal(size=(12, 24)).astype(np.float32)
    made = agree(module, ["feed", "variable"], replicas, [value, np.zeros(held, np.float32)])
    assert bool(made.rows) == (replicas > 1)


OPERATIONS = ["ADD", "MUL", "MIN", "MAX", "LOGICAL_AND", "LOGICAL_OR", "SQUARE_ADD", "LOCAL", "MEAN"]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("replicas", "size", "length"), [(1, None, 3), (2, None, 3), (3, 3, 7), (4, 2, 5), (4, 0, 1)])
def test_reduce_scatter(operation: str, replicas: int, size: int | None, length: int) -> None:
    b = Builder()
    held = -(-length // (size or replicas))
    x, variable = b.parameter("f32", (length,)), b.parameter("f32", (held,))
    config = json.dumps({"operation": operation, "replica_group_size": size})
    met = collective(b, REDUCE_SCATTER, own_values(b, x), (held,), config)
    module = b.module(b.tuple(b.add(met, variable)), {1: 0})
    value = np.float32([0, 2, -3, 4, 5, -6, 7])[:length]
    agree(module, ["feed", "variable"], replicas, [value, np.zeros(held, np.float32)])


@pytest.mark.parametrize("replicas", COUNTS)
def test_what_does_not_differ_is_there_once(replicas: int) -> None:
    b = Builder()
    x, weights = b.parameter("f32", (4, 4)), b.parameter("f32", (4, 4))
    same = b.dot(x, weights)
    gradient = collective(b, CROSS_REPLICA_MEAN, own_values(b, same), None, group(None))
    module = b.module(b.tuple(b.subtract(weights, gradient)), {1: 0})
    made = agree(module, ["feed", "variable"], replicas, [np.eye(4, dtype=np.float32) * 0.5] * 2)
    assert made.rows == ()
    assert [i.opcode for i in made.module.entry.instructions].count("dot") == 1


def loop(b: Builder, initial: list[Instruction], iteration, more) -> Instruction:
    shape = TupleShape(tuple(each.shape for each in initial))
    body, condition = Builder("iteration"), Builder("more")
    parts = body.parameter_of(shape)
    body.tuple(*iteration(body, [body.get_tuple_element(parts, k) for k in range(len(initial))]))
    parts = condition.parameter_of(shape)
    more(condition, [condition.get_tuple_element(parts, k) for k in range(len(initial))])
    return b.instruction("while", shape, (b.tuple(*initial),), (body.build(), condition.build()))


def fewer_than(count: int):
    return lambda b, state: b.compare(state[0], b.constant(count, "s32"), "LT")


@pytest.mark.parametrize("replicas", COUNTS)
def test_a_loop_over_queues_with_a_shared_and_an_own_variable(replicas: int) -> None:
    b = Builder()
    token, weights, statistic = b.parameter("s32"), b.parameter("f32", (3,)), b.parameter("f32", (3,))

    def iteration(b: Builder, state: list[Instruction]) -> list[Instruction]:
        count, token, weights, statistic, idle = state
        taken = device_call(b, INFEED, [token], [Shape("f32", (3,)), TOKEN], '{"queue": "in"}')
        x = b.get_tuple_element(taken, 0)
        gradient = collective(b, CROSS_REPLICA_SUM, b.multiply(x, weights), None, group(None))
        weights = b.subtract(weights, gradient)
        statistic = b.add(statistic, x)
        token = device_call(b, OUTFEED, [statistic, b.get_tuple_element(taken, 1)], [TOKEN], '{"queue": "out"}')
        return [b.add(count, b.constant(1, "s32")), token, weights, statistic, idle]

    made_loop = loop(b, [b.constant(0, "s32"), token, weights, statistic, statistic], iteration, fewer_than(5))
    parts = [b.get_tuple_element(made_loop, k) for k in range(5)]
    module = b.module(b.tuple(parts[1], parts[2], parts[3], parts[4]), {0: 0, 1: 1, 2: 2})
    rng = np.random.default_rng(0)
    elements = [rng.normal(size=3).astype(np.float32) * np.float32(0.1) for _ in range(10 * replicas)]
    start = [np.int32(0), rng.normal(size=3).astype(np.float32), np.zeros(3, np.float32)]
    arguments = [np.asarray(each) for each in start]
    if replicas > 1:
        # Tokens count executions: the program's one count stands for all replicas.
        made = replicate(module, ["variable"] * 3, replicas)
        assert made.rows == (2,)
        assert made.module.aliases == {0: 0, 1: 1, 2: 2, 3: 4}
    check_queues(module, replicas, arguments, elements)


def check_queues(module: Module, replicas: int, arguments: list[np.ndarray], elements: list[np.ndarray]) -> None:
    made = replicate(module, ["variable"] * len(arguments), replicas)
    verify(made.module)
    oracle, host = Replicas(replicas, elements), Host(elements)
    expected = oracle.run(module, [arguments] * replicas)
    joint = [*arguments, *(np.stack([arguments[number]] * replicas) for number in made.rows)]
    with defined(host.custom_call):
        received = evaluate(made.module, joint)
    for index in (1, 2):
        np.testing.assert_array_equal(received[index], expected[0][index])
    for place, number in enumerate(made.rows):
        own = [results[module.aliases[number]] for results in expected]
        np.testing.assert_array_equal(received[len(expected[0]) + place], own)
    rows = [np.stack(each) if replicas > 1 else each[0] for each in zip(*oracle.rows, strict=True)]
    assert host.taken == len(rows) * replicas
    np.testing.assert_array_equal(host.rows, rows)


@pytest.mark.parametrize("replicas", COUNTS)
def test_loops_with_own_numbers_of_iterations(replicas: int) -> None:
    b = Builder()
    x = b.parameter("f32", (2,))
    limit = b.parameter("f32")

    def iteration(b: Builder, state: list[Instruction]) -> list[Instruction]:
        count, value, total = state
        return [b.add(count, b.constant(1, "s32")), value, b.add(total, value)]

    own = b.add(index_of(b), b.constant(2, "s32"))
    rounds = b.convert(own, "f32")
    made_loop = loop(
        b, [b.constant(0, "s32"), x, b.broadcast(rounds, (2,), ())], iteration, lambda c, state: _sum_below(c, state[2])
    )
    results = [b.get_tuple_element(made_loop, k) for k in range(3)]
    shared = collective(b, CROSS_REPLICA_SUM, results[2], None, group(None))
    module = b.module(b.tuple(*results, shared, b.add(limit, b.convert(results[0], "f32"))), {1: 4})
    made = agree(module, ["feed", "variable"], replicas, [np.float32([1, 0.25]), np.float32(0)])
    assert made.rows == ((1,) if replicas > 1 else ())


def _sum_below(b: Builder, x: Instruction) -> Instruction:
    total = b.reduce(x, b.constant(0.0), (0,))
    return b.compare(total, b.constant(20.0), "LT")


@pytest.mark.parametrize("replicas", COUNTS)
@pytest.mark.parametrize("inner", [False, True])
def test_branches(replicas: int, inner: bool) -> None:
    """One predicate differs between replicas; another one does not, and its branch has a collective."""
    b = Builder()
    x, total = b.parameter("f32", (3,)), b.parameter("f32", (3,))
    own = own_values(b, x)
    yes, no = Builder("yes"), Builder("no")
    given = yes.parameter("f32", (3,))
    yes.multiply(given, given)
    given = no.parameter_of(TupleShape((Shape("f32", (3,)), Shape("f32", (3,)))))
    no.subtract(no.get_tuple_element(given, 0), no.get_tuple_element(given, 1))
    if inner:
        first = b.reduce(x, b.constant(0.0), (0,))
    else:
        first = b.reduce(own, b.constant(0.0), (0,))
    predicate = b.compare(first, b.constant(7.0), "GT")
    chosen = b.conditional(predicate, [yes.build(), no.build()], [own, b.tuple(x, own)])
    module = b.module(b.tuple(b.add(total, chosen), chosen), {1: 0})
    made = agree(module, ["feed", "variable"], replicas, [np.float32([1, 2, 3]), np.zeros(3, np.float32)])
    branches = sum(i.opcode == "conditional" for i in made.module.entry.instructions)
    assert branches == (1 if inner else replicas)


@pytest.mark.parametrize("replicas", COUNTS)
def test_a_branch_that_all_take_may_hold_a_collective(replicas: int) -> None:
    b = Builder()
    x = b.parameter("f32", (3,))
    own = own_values(b, x)
    yes, no = Builder("yes"), Builder("no")
    collective(yes, CROSS_REPLICA_SUM, yes.parameter("f32", (3,)), None, group(None))
    no.elementwise("negate", no.parameter("f32", (3,)))
    first = b.reduce(own, b.constant(0.0), (0,))
    equal = collective(b, ASSUME_EQUAL, first)
    chosen = b.conditional(b.compare(equal, b.constant(5.0), "GT"), [yes.build(), no.build()], [own, own])
    b.tuple(chosen)
    agree(b.module(), ["feed"], replicas, [np.float32([1, 2, 3])])


@pytest.mark.parametrize("replicas", [2, 4])
def test_collectives_where_only_some_replicas_come_are_refused(replicas: int) -> None:
    b = Builder()
    x = b.parameter("f32", (3,))
    yes, no = Builder("yes"), Builder("no")
    collective(yes, CROSS_REPLICA_SUM, yes.parameter("f32", (3,)), None, group(None))
    no.elementwise("negate", no.parameter("f32", (3,)))
    predicate = b.compare(index_of(b), b.constant(1, "s32"), "LT")
    b.tuple(b.conditional(predicate, [yes.build(), no.build()], [x, x]))
    with pytest.raises(ConfigurationError, match="assume_equal_across_replicas"):
        replicate(b.module(), ["feed"], replicas)
    assert replicate(b.module(), ["feed"], 1).rows == ()


def random_module(from_variable: bool) -> tuple[Module, list[str]]:
    b = Builder()
    seed, total = b.parameter("u64", (3,)), b.parameter("u32", (8,))
    shape = TupleShape((Shape("u64", (3,)), Shape("u32", (8,))))
    drawn = b.instruction("rng-bit-generator", shape, (seed,), rng_algorithm="RNG_PHILOX")
    bits = b.get_tuple_element(drawn, 1)
    module = b.module(b.tuple(bits, b.get_tuple_element(drawn, 0), b.add(total, bits)), {1: 2})
    if from_variable:
        module.aliases[0] = 1
    return module, ["variable" if from_variable else "feed", "variable"]


@pytest.mark.parametrize("replicas", COUNTS)
def test_replicas_draw_their_own_numbers_from_a_shared_state(replicas: int) -> None:
    module, roles = random_module(from_variable=True)
    arguments = [np.array([7, 1, 2], np.uint64), np.zeros(8, np.uint32)]
    made = agree(module, roles, replicas, arguments)
    assert made.rows == ((1,) if replicas > 1 else ())
    if replicas > 1:
        rows = evaluate(made.module, [*arguments, np.zeros((replicas, 8), np.uint32)])[3]
        assert len(np.unique(rows, axis=0)) == replicas


def test_a_seed_that_is_an_argument_gives_all_replicas_the_same() -> None:
    module, roles = random_module(from_variable=False)
    made = replicate(module, roles, 4)
    assert made.rows == ()
    arguments = [np.array([7, 1, 2], np.uint64), np.zeros(8, np.uint32)]
    for one, other in zip(evaluate(made.module, arguments), evaluate(module, arguments), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("target", "config", "words"),
    [
        (CROSS_REPLICA_SUM, group(3), "divides the number of replicas, 4.*Received: 3.*Nearest: 2"),
        (ALL_GATHER, group(8), "Nearest: 4"),
        (REDUCE_SCATTER, '{"operation": "AVERAGE"}', "AVERAGE.*Nearest: 'ADD'"),
        (ALL_TO_ALL, '{"split_dimension": 0, "concat_dimension": 0, "number_of_replicas": 2}', "Nearest: 4"),
    ],
)
def test_wrong_groups_are_refused(target: str, config: str, words: str) -> None:
    b = Builder()
    b.tuple(collective(b, target, own_values(b, b.parameter("f32", (4,))), None, config))
    with pytest.raises(ConfigurationError, match=words):
        replicate(b.module(), ["feed"], 4)


def test_no_replicas_are_refused() -> None:
    b = Builder()
    b.tuple(b.parameter("f32"))
    with pytest.raises(ConfigurationError, match="Nearest: 1"):
        replicate(b.module(), ["feed"], 0)
