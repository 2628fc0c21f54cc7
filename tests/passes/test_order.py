"""schedule and peak_liveness."""

import numpy as np
import pytest

from engine.errors import InternalError
from engine.ir import Shape, TupleShape
from engine.ir.builder import Builder
from engine.ir.verifier import verify
from engine.passes.liveness import peak_liveness
from engine.passes.order import order_loops, schedule
from tests.passes.random_modules import RandomModule


def naive_peak(computation):
    """The bytes at each instruction of all earlier results that a later one, or the root, still reads."""
    moving = {"parameter", "constant", "iota", "broadcast", "reshape", "get-tuple-element", "tuple"}

    def owners(instruction):
        if instruction.opcode not in moving:
            return {instruction}
        return {owner for operand in instruction.operands for owner in owners(operand)}

    order = [i for i in computation.instructions if i.opcode not in moving]
    kept = owners(computation.root)
    last = {i: n for n, i in enumerate(order)}
    for n, instruction in enumerate(order):
        for operand in instruction.operands:
            last.update(dict.fromkeys(owners(operand), n))
    size = {i: sum(s.bytes for s in i.tuple_shapes) for i in order}
    peaks = [sum(size[i] for i in order[: n + 1] if last[i] >= n or i in kept) for n in range(len(order))]
    return max(peaks, default=0)


def test_peak_liveness_against_the_definition():
    for seed in range(60):
        for sums in (False, True):
            computation = RandomModule(seed, sums=sums).module().entry
            assert peak_liveness(computation) == naive_peak(computation)


def test_schedule_never_needs_more_and_keeps_every_instruction():
    for seed in range(60):
        module = RandomModule(seed).module()
        after = schedule(module)
        verify(after)
        assert set(after.entry.instructions) == set(module.entry.instructions)
        assert after.entry.root is module.entry.root
        assert peak_liveness(after.entry) <= peak_liveness(module.entry)


def training_step(layers, *, size=10):
    """All gradients first, then all updates, which is the order of a traced program."""
    b = Builder()
    weights = [b.parameter("f32", (size, size)) for _ in range(layers)]
    error = b.parameter("f32", (size, size))
    gradients = []
    for weight in reversed(weights):
        gradients.insert(0, b.dot(error, error))
        error = b.dot(error, weight)
    updates = [b.subtract(w, g) for w, g in zip(weights, gradients, strict=True)]
    return b.module(b.tuple(*updates, error), aliases={k: k for k in range(layers)})


def test_updates_follow_their_gradients():
    module = training_step(8)
    after = schedule(module)
    order = after.entry.instructions
    for update in after.results[:-1]:
        gradient = update.operands[1]
        assert order.index(update) - order.index(gradient) == 1
    size = module.entry.parameters[0].array_shape.bytes
    in_place = [after.results[k] for k in range(8)]
    assert peak_liveness(module.entry, in_place) >= 9 * size
    assert peak_liveness(after.entry, in_place) <= 3 * size


def test_result_in_place_takes_no_memory():
    b = Builder()
    x, y = b.parameter("f32", (100,)), b.parameter("f32", (100,))
    computation = b.build(b.add(x, y))
    assert peak_liveness(computation) == 400
    assert peak_liveness(computation, [computation.root]) == 0


def test_one_of_several_results_in_place_takes_no_memory():
    b = Builder()
    x = b.parameter("f32", (100,))
    both = b.instruction("conditional", TupleShape((Shape("f32", (100,)), Shape("f32", (50,)))), (x,))
    first, second = (b.get_tuple_element(both, k) for k in range(2))
    computation = b.build(b.tuple(first, second))
    assert peak_liveness(computation) == 600
    assert peak_liveness(computation, [first]) == 200
    assert peak_liveness(computation, [first, second, second]) == 0


def test_view_keeps_what_it_views_alive():
    b = Builder()
    x = b.parameter("f32", (10, 10))
    made = b.elementwise("negate", x)
    view = b.reshape(made, (100,))
    other = b.elementwise("exponential", x)
    b.add(b.reshape(other, (100,)), view)
    assert peak_liveness(b.build()) == 3 * 400


def test_constants_and_broadcasts_come_right_before_their_user():
    b = Builder()
    spread = b.splat(2.0, (4,))
    x = b.parameter("f32", (4,))
    module = b.module(b.multiply(b.elementwise("exponential", b.elementwise("negate", x)), spread))
    order = [i.opcode for i in schedule(module).entry.instructions]
    assert order == ["parameter", "negate", "exponential", "constant", "broadcast", "multiply"]


def test_extra_edges_are_kept():
    rng = np.random.default_rng(0)
    for seed in range(40):
        module = RandomModule(seed).module()
        instructions = module.entry.instructions
        before = {}
        for _ in range(6):
            early, late = sorted(int(n) for n in rng.integers(0, len(instructions), 2))
            if early != late:
                before.setdefault(instructions[late], []).append(instructions[early])
        after = schedule(module, before)
        verify(after)
        place = {instruction: n for n, instruction in enumerate(after.entry.instructions)}
        free = {"parameter", "constant", "iota", "broadcast", "reshape", "get-tuple-element", "tuple"}
        for late, earlier in before.items():
            if late.opcode not in free:
                assert all(place[early] < place[late] for early in earlier if early.opcode not in free)


def test_reader_of_a_weight_comes_before_its_update():
    b = Builder()
    weight, gradient = b.parameter("f32", (50,)), b.parameter("f32", (50,))
    update = b.subtract(weight, gradient)
    reader = b.reduce(b.multiply(weight, weight), b.constant(0.0), (0,))
    module = b.module(b.tuple(update, reader), aliases={0: 0})
    order = schedule(module, {update: [reader.operands[0]]}).entry.instructions
    assert order.index(reader.operands[0]) < order.index(update)


def test_edges_that_contradict_the_data_are_refused():
    b = Builder()
    first = b.elementwise("negate", b.parameter("f32"))
    last = b.elementwise("abs", first)
    with pytest.raises(InternalError, match="without a cycle"):
        schedule(b.module(last), {first: [last]})


def test_long_chain_needs_no_recursion():
    b = Builder()
    x = b.parameter("f32")
    for _ in range(5000):
        x = b.elementwise("negate", x)
    assert len(schedule(b.module()).entry.instructions) == 5001


def test_gradients_of_a_loop_are_summed_before_the_next_are_made():
    """All gradients first, then all sums: the body is reordered, and its draws keep their order."""
    layers, shape = 6, (10, 10)
    body = Builder("body")
    state = body.parameter_of(TupleShape((Shape("s32", ()), *[Shape("f32", shape)] * (layers + 2))))
    number, x, drawn, *sums = (body.get_tuple_element(state, k) for k in range(layers + 3))
    bounds = body.constant(0.0), body.constant(1.0)
    draws = [body.instruction("rng", Shape("f32", shape), bounds, distribution="RNG_UNIFORM") for _ in range(2)]
    errors = [x]
    for _ in range(layers):
        errors.append(body.elementwise("tanh", errors[-1]))
    added = [body.add(total, body.dot(e, e)) for total, e in zip(sums, errors[1:], strict=True)]
    one = body.add(number, body.constant(1, "s32"))
    made = body.build(body.tuple(one, x, body.subtract(draws[0], draws[1]), *added))
    condition = Builder("condition")
    count = condition.get_tuple_element(condition.parameter_of(state.shape), 0)
    more = condition.build(condition.compare(count, condition.constant(3, "s32"), "LT"))
    b = Builder()
    initial = b.parameter_of(state.shape)
    module = b.module(b.instruction("while", state.shape, (initial,), called=(made, more)))
    after = order_loops(module)
    verify(after)
    (ordered,) = [i.called[0] for i in after.entry.instructions if i.opcode == "while"]
    assert peak_liveness(ordered) <= 0.9 * peak_liveness(made)
    assert [i.name for i in ordered.instructions if i.opcode == "rng"] == [each.name for each in draws]
