"""No pass drops, repeats, merges or moves an infeed or an outfeed."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import prepare
from engine.errors import InternalError
from engine.ir import Computation, DotDimensionNumbers, Instruction, Module, Shape
from engine.ir.builder import Builder
from engine.ir.device_operations import QUEUES, queue_of, queue_operations
from engine.ir.properties import has_side_effect, is_repeatable
from engine.runtime.executable import Executable
from tests.engine.queue_programs import (
    TOKEN,
    Values,
    add_all,
    conditional,
    elements,
    exchange,
    infeed,
    made,
    outfeed,
    pack,
    repeat,
)

ROW = Shape("f32", (4, 3))


def order(module: Module) -> list[str]:
    """The queues in the order of their uses; the queues of a loop's body come where the loop is."""
    found: list[str] = []

    def walk(computation: Computation) -> None:
        for instruction in computation.instructions:
            if instruction.get("custom_call_target") in QUEUES:
                found.append(queue_of(instruction))
            for called in instruction.called:
                walk(called)

    walk(module.entry)
    return found


def same(module: Module, fed: dict[str, list[np.ndarray]]) -> None:
    """Tiles and definitions hand out the same rows, and the passes keep the order."""
    assert order(prepare(module, verify=True)) == order(module)
    expected, wanted = exchange("definitions", module, fed, slots=3)
    rows, variables = exchange("tiles", module, fed, slots=3)
    for name, leaves in expected.items():
        for ours, theirs in zip(rows[name], leaves, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(variables, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_queue_operation_acts_outside_even_if_it_is_not_declared_to() -> None:
    builder = Builder()
    token = builder.parameter_of(TOKEN)
    call = outfeed(builder, "out", [builder.constant(1.0)], token, declared=False)
    assert has_side_effect(call)
    assert not is_repeatable(call)


def test_equal_operations_on_the_first_token_are_not_merged_and_unused_ones_not_dropped() -> None:
    """Two infeeds read the same token, and one of them has no readers; two outfeeds have equal values."""
    builder = Builder()
    token = builder.parameter_of(TOKEN)
    first, _ = infeed(builder, "in", [ROW], token, declared=False)
    _, after = infeed(builder, "in", [ROW], token, declared=False)
    value = add_all(builder, builder.constant(0.0), first[0])
    for _ in range(2):
        outfeed(builder, "out", [value], after, declared=False)
    module = builder.module(pack(builder, [after]), {0: 0})
    assert sorted(order(prepare(module, verify=True))) == ["in", "in", "out", "out"]
    rows, _ = exchange("tiles", module, {"in": elements([ROW], 2)})
    assert len(rows["out"][0]) == 2


def test_a_loop_with_unread_results_enqueues_its_rows() -> None:
    """Later steps read only another element of the state, not the token."""
    builder = Builder()
    token = builder.parameter_of(TOKEN)

    def body(inner: Builder, state: Values) -> Values:
        count = inner.add(state[0], inner.constant(1.0))
        return [count, state[1], outfeed(inner, "out", [state[1], count], state[2])]

    count, _, _ = repeat(builder, 6, [builder.constant(0.0), builder.constant(7.0), token], body)
    module = builder.module(pack(builder, [count, token]), {0: 1})
    same(module, {})


def test_products_and_gradients_of_elements_stay_in_their_iterations() -> None:
    """Passes on loops must not compute for all iterations at once: x w before the loop, the sum of xᵀ y after it."""
    builder = Builder()
    total, weights = builder.parameter("f32", (3, 2)), builder.parameter("f32", (3, 2))
    token = builder.parameter_of(TOKEN)

    def body(inner: Builder, state: Values) -> Values:
        leaves, after = infeed(inner, "in", [ROW], state[2])
        hidden = inner.dot(leaves[0], state[1])
        hidden = inner.add(hidden, inner.splat(1.0, (4, 2)))
        gradient = inner.dot(leaves[0], hidden, DotDimensionNumbers((0,), (0,)))
        after = outfeed(inner, "out", [hidden], after)
        return [inner.add(state[0], gradient), state[1], after]

    results = repeat(builder, 5, [total, weights, token], body)
    module = builder.module(pack(builder, results), {0: 0, 1: 1, 2: 2})
    same(module, {"in": elements([ROW], 5)})


def test_a_constant_row_is_enqueued_in_each_iteration() -> None:
    builder = Builder()
    token = builder.parameter_of(TOKEN)

    def body(inner: Builder, state: Values) -> Values:
        return [outfeed(inner, "out", [inner.splat(2.0, (3,))], state[0])]

    same(builder.module(pack(builder, repeat(builder, 4, [token], body)), {0: 0}), {})


def test_a_branch_that_hands_something_out_stays_a_branch() -> None:
    builder = Builder()
    number, token = builder.parameter("f32"), builder.parameter_of(TOKEN)
    positive = builder.compare(number, builder.constant(0.0), "GT")

    def no(branch: Builder, values: Values) -> Values:
        return [outfeed(branch, "out", [branch.constant(2.0)], values[0])]

    def yes(branch: Builder, values: Values) -> Values:
        return [outfeed(branch, "out", [branch.constant(1.0)], values[0])]

    (after,) = conditional(builder, positive, [token], yes, no)
    module = builder.module(pack(builder, [number, after]), {0: 0, 1: 1})
    assert sum(1 for _ in queue_operations(prepare(module))) == 2
    rows, _ = exchange("tiles", module, {})
    np.testing.assert_array_equal(rows["out"][0], [2.0])


def test_elements_as_counters_say_nothing_about_the_number_of_iterations() -> None:
    """A loop whose limit is a number from the host, around one that adds numbers from the host to its counter."""
    builder = Builder()
    token = builder.parameter_of(TOKEN)

    def body(inner: Builder, state: Values) -> Values:
        leaves, after = infeed(inner, "in", [Shape("s32")], state[1])
        counter = inner.add(state[0], leaves[0])
        return [counter, outfeed(inner, "out", [counter], after)]

    (limit,), after = infeed(builder, "limits", [Shape("s32")], token)
    results = repeat(builder, limit, [builder.constant(0, "s32"), after], body)
    module = builder.module(pack(builder, [results[1]]), {0: 0})
    same(module, {"limits": [np.int32([3])], "in": [np.int32([5, 6, 7])]})


def test_a_dropped_token_in_a_body_is_refused() -> None:
    builder = Builder()
    token = builder.parameter_of(TOKEN)

    def body(inner: Builder, state: Values) -> Values:
        outfeed(inner, "lost", [inner.constant(1.0)], state[0])
        return [state[0]]

    module = builder.module(pack(builder, repeat(builder, 2, [token], body)), {0: 0})
    with pytest.raises(InternalError, match="'lost'.*results of body"):
        prepare(module)


def test_a_loss_is_enqueued_before_its_step_updates_in_place() -> None:
    """One step of gradient descent takes a batch and enqueues its loss, and keeps no second copy of the weights."""
    builder = Builder()
    weights, token = builder.parameter("f32", (64, 64)), builder.parameter_of(TOKEN)
    leaves, after = infeed(builder, "in", [Shape("f32", (8, 64))], token)
    hidden = builder.dot(leaves[0], weights)
    gradient = builder.dot(leaves[0], hidden, DotDimensionNumbers((0,), (0,)))
    new = builder.subtract(weights, builder.multiply(gradient, builder.splat(0.5, (64, 64))))
    loss = add_all(builder, builder.constant(0.0), hidden)
    after = outfeed(builder, "out", [loss], after)
    module = builder.module(pack(builder, [new, after]), {0: 0, 1: 1})
    executable = made("tiles", module)
    assert isinstance(executable, Executable)
    assert not [s.name for s in executable.program.compute_sets if s.name.endswith(".update")]
    same(module, {"in": elements([Shape("f32", (8, 64))], 1)})


def updating(waits_after: bool) -> Module:
    """Halves x, and then awaits an element if `waits_after`."""
    builder = Builder()
    x, token = builder.parameter("f32", (64, 64)), builder.parameter_of(TOKEN)
    new: Instruction = builder.multiply(x, builder.splat(0.5, (64, 64)))
    after = token
    if waits_after:
        leaves, after = infeed(builder, "in", [Shape("f32")], token)
        # The product places the update first in the order.
        total = builder.reduce(new, builder.constant(0.0), (0, 1))
        after = outfeed(builder, "out", [builder.add(total, leaves[0])], after)
    return builder.module(pack(builder, [new, after]), {0: 0, 1: 1})


def test_variables_are_updated_in_place_unless_a_wait_comes_after() -> None:
    """A step that ends while it waits must not have written a variable."""
    early, late = (made("tiles", updating(waits_after)) for waits_after in (False, True))
    assert isinstance(early, Executable)
    assert isinstance(late, Executable)
    x = late.program.variables[0]
    places = [at for at, s in enumerate(late.program.compute_sets) if any(span.buffer is x for span in s.writes)]
    leaves = [mark.position for mark in late.program.marks if mark.kind == "leave"]
    assert min(places) >= max(leaves)
    assert not [s for s in early.program.compute_sets if s.name.endswith(".update")]
