"""Groups of instructions: whether two may join, compared with a search of all paths between them."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from engine.ir import Computation, Instruction, ScatterDimensionNumbers
from engine.ir.builder import Builder, binary_computation
from engine.passes.fuse import fuse
from engine.passes.groups import Group, Groups

Node = Group | Instruction


def random_computation(generator: random.Random, instructions: int) -> Computation:
    b = Builder()
    made = [b.parameter("f32", (2,))]
    for _ in range(instructions):
        made.append(b.add(*generator.choices(made[-8:], k=2)))
    return b.module(b.tuple(*made)).entry


def third_between(groups: Groups, start: Group, goal: Group) -> bool:
    """Whether a path from `start` to `goal` goes through another node of the graph of groups."""

    def node(instruction: Instruction) -> Node:
        return groups.of.get(instruction, instruction)

    users: dict[Node, set[Node]] = {}
    for each in groups.instructions:
        for operand in each.operands:
            users.setdefault(node(operand), set()).add(node(each))
    reached: set[Node] = set()
    left = [each for each in users.get(start, ()) if each is not start and each is not goal]
    while left:
        if (at := left.pop()) is goal:
            return True
        if at not in reached:
            reached.add(at)
            left += users.get(at, ())
    return False


def absorbable(groups: Groups, computation: Computation) -> list[tuple[Instruction, Group]]:
    """Instructions outside of groups whose users are all in one group, with the group."""
    found = []
    for each in computation.instructions:
        users = {groups.of.get(user) for user in computation.instructions if each in user.operands}
        if each not in groups.of and len(users) == 1 and (group := users.pop()) is not None:
            found.append((each, group))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_joining_is_what_a_search_of_all_paths_allows(seed: int) -> None:
    generator = random.Random(seed)
    computation = random_computation(generator, 26)
    groups = Groups(computation)
    adds = [each for each in computation.instructions if each.opcode == "add"]
    for each in generator.sample(adds, 20):
        groups.start(each, (2,))
    refused = 0
    for _ in range(150):
        if generator.random() < 0.1 and (known := absorbable(groups, computation)):
            instruction, group = generator.choice(known)
            groups.join(group, groups.start(instruction, group.loops))
        a, b = generator.choices(list(groups), k=2)
        allowed = a is not b and not third_between(groups, a, b) and not third_between(groups, b, a)
        assert groups.may_join(a, b) == allowed
        refused += a is not b and not allowed
        if allowed and generator.random() < 0.3:
            groups.join(a, b)
    assert refused > 5


@pytest.mark.parametrize(("product_between", "expected"), [(False, 1), (True, 2)])
def test_readers_of_sums_of_rows_join(product_between: bool, expected: int) -> None:
    b = Builder()
    shape = (64, 64)
    numbers = ScatterDimensionNumbers((1,), (0,), (0,), 1)
    operands = b.splat(0.0, shape), b.parameter("s32", (5,)), b.parameter("f32", (5, 64))
    body = binary_computation("add", "f32")
    added = b.instruction("scatter", operands[0].shape, operands, (body,), scatter_dimension_numbers=numbers)
    x, y = b.parameter("f32", shape), b.parameter("f32", shape)
    first = b.add(added, x)
    second = b.multiply(added, b.dot(first, y) if product_between else y)
    fused = fuse(b.module(b.tuple(first, second)))
    assert Counter(i.opcode for i in fused.entry.instructions)["fusion"] == expected
