"""Vertices for several operations: activation functions as XLA writes them, softmax and norms in half floats."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

import pytest

from engine.compile import build_program
from engine.ir import Instruction, Shape
from engine.ir.builder import Builder
from engine.profile.exchange import Layouts
from engine.profile.program_estimate import estimate
from engine.profile.vertices import loop_of, work_of
from engine.program.program import Program
from engine.target import target

MK2 = target("ipu2")
SHAPE = (1024, 4096)
ROWS = (2048, 196)
Form = Callable[[Builder, Instruction, Callable[[float], Instruction]], Instruction]


def gelu_erf(b: Builder, x: Instruction, number: Callable[[float], Instruction]) -> Instruction:
    whole = b.add(number(1.0), b.elementwise("erf", b.multiply(x, number(1 / sqrt(2)))))
    return b.multiply(b.multiply(number(0.5), x), whole)


def gelu_tanh(b: Builder, x: Instruction, number: Callable[[float], Instruction]) -> Instruction:
    cube = b.multiply(b.multiply(x, x), b.multiply(x, number(0.044715)))
    inner = b.elementwise("tanh", b.multiply(number(sqrt(2 / pi)), b.add(x, cube)))
    return b.multiply(b.multiply(number(0.5), x), b.add(number(1.0), inner))


def gelu_gradient(b: Builder, x: Instruction, number: Callable[[float], Instruction]) -> Instruction:
    density = b.multiply(
        number(1 / sqrt(2 * pi)), b.elementwise("exponential", b.multiply(number(-0.5), b.multiply(x, x)))
    )
    whole = b.multiply(number(0.5), b.add(number(1.0), b.elementwise("erf", b.multiply(x, number(1 / sqrt(2))))))
    return b.add(whole, b.multiply(x, density))


def swish(b: Builder, x: Instruction, number: Callable[[float], Instruction]) -> Instruction:
    return b.multiply(x, b.elementwise("logistic", x))


def relu(b: Builder, x: Instruction, number: Callable[[float], Instruction]) -> Instruction:
    return b.elementwise("maximum", x, number(0.0))


def quick_gelu(b: Builder, x: Instruction, number: Callable[[float], Instruction]) -> Instruction:
    return b.multiply(x, b.elementwise("logistic", b.multiply(number(1.702), x)))


def tanh_of_square(b: Builder, x: Instruction, number: Callable[[float], Instruction]) -> Instruction:
    return b.elementwise("tanh", b.multiply(x, x))


def program_of(form: Form, kind: str) -> Program:
    b = Builder(form.__name__)
    x = b.parameter(kind, SHAPE)
    return build_program(b.module(b.tuple(form(b, x, lambda value: b.splat(value, SHAPE, kind)))), ["feed"], {})


@pytest.mark.parametrize("kind", ["f16", "f32"])
@pytest.mark.parametrize(
    ("form", "vertex"),
    [
        (gelu_erf, "gelu"),
        (gelu_tanh, "gelu"),
        (gelu_gradient, "gelu-gradient"),
        (swish, "swish"),
        (relu, "relu"),
    ],
)
def test_an_activation_written_out_is_one_vertex(form: Form, vertex: str, kind: str) -> None:
    (compute_set,) = program_of(form, kind).compute_sets
    assert work_of(compute_set).operations == ((vertex, kind),)


@pytest.mark.parametrize(
    ("form", "vertices"), [(quick_gelu, {"logistic", "multiply"}), (tanh_of_square, {"tanh", "multiply"})]
)
def test_functions_that_only_look_alike_stay_their_operations(form: Form, vertices: set[str]) -> None:
    (compute_set,) = program_of(form, "f32").compute_sets
    assert {opcode for opcode, _ in work_of(compute_set).operations} == vertices


def test_a_gelu_of_half_floats_takes_five_cycles_for_each_vector() -> None:
    found = estimate(program_of(gelu_erf, "f16"), MK2)
    # poplibs' formula gives 3,771 for 1,024 x 4,096 elements on 1,472 tiles.
    assert found.compute == pytest.approx(3771, rel=0.02)
    assert found.costs[0].operation.flop == 5 * 1024 * 4096


@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_gradients_of_activations_multiply_too(kind: str) -> None:
    b = Builder("gradients")
    x, dy = b.parameter(kind, SHAPE), b.parameter(kind, SHAPE)
    zero, one = b.splat(0.0, SHAPE, kind), b.splat(1.0, SHAPE, kind)
    through_relu = b.select(b.compare(x, zero, "GT"), dy, zero)
    through_tanh = b.multiply(dy, b.subtract(one, b.multiply(x, x)))
    through_gelu = b.multiply(dy, gelu_gradient(b, x, lambda value: b.splat(value, SHAPE, kind)))
    program = build_program(b.module(b.tuple(through_relu, through_tanh, through_gelu)), ["feed", "feed"], {})
    found = sorted(opcode for each in program.compute_sets for opcode, _ in work_of(each).operations)
    assert found == ["gelu-gradient", "relu-gradient", "tanh-gradient"]


def distributed_gelu(
    b: Builder, x: Instruction, dy: Instruction, number: Callable[[float], Instruction]
) -> Instruction:
    """Gelu's derivative with erfc, as Keras' layers have it: the gradient is a factor of both parts."""
    scaled = b.multiply(b.elementwise("negate", x), number(sqrt(0.5)))
    first = b.multiply(number(0.5), b.multiply(dy, b.subtract(number(1.0), b.elementwise("erf", scaled))))
    density = b.elementwise("exponential", b.elementwise("negate", b.multiply(scaled, scaled)))
    return b.add(first, b.multiply(b.multiply(b.multiply(x, dy), number(1 / sqrt(2 * pi))), density))


def distributed_logistic(
    b: Builder, x: Instruction, dy: Instruction, number: Callable[[float], Instruction]
) -> Instruction:
    return b.multiply(b.multiply(dy, x), b.subtract(number(1.0), x))


def product_and_sum(b: Builder, x: Instruction, dy: Instruction, number: Callable[[float], Instruction]) -> Instruction:
    return b.add(b.multiply(dy, x), dy)


@pytest.mark.parametrize("kind", ["f16", "f32"])
@pytest.mark.parametrize(
    ("form", "vertices"),
    [
        (distributed_gelu, ["gelu-gradient"]),
        (distributed_logistic, ["logistic-gradient"]),
        (product_and_sum, ["add", "multiply"]),
    ],
)
def test_gradients_that_are_factors_of_each_part(form: Callable, vertices: list[str], kind: str) -> None:
    b = Builder(form.__name__)
    x, dy = b.parameter(kind, SHAPE), b.parameter(kind, SHAPE)
    made = form(b, x, dy, lambda value: b.splat(value, SHAPE, kind))
    (compute_set,) = build_program(b.module(b.tuple(made)), ["feed", "feed"], {}).compute_sets
    assert sorted(opcode for opcode, _ in work_of(compute_set).operations) == vertices


def test_operations_on_a_small_array_are_cheap_although_it_is_broadcast() -> None:
    b = Builder("broadcast")
    x, scale = b.parameter("f32", SHAPE), b.parameter("f32", (4096,))
    root = b.elementwise("sqrt", b.add(scale, b.splat(1e-3, (4096,))))
    program = build_program(b.module(b.tuple(b.multiply(x, b.broadcast(root, SHAPE, (1,))))), ["feed", "feed"], {})
    works = [work_of(each) for each in program.compute_sets]
    large = [operation for work in works if work.points == 1024 * 4096 for operation in work.operations]
    assert large == [("multiply", "f32")]
    assert sum(work.points == 4096 or bool(work.smaller) for work in works) == 1


def converted(b: Builder, x: Instruction, kind: str) -> Instruction:
    shape = x.array_shape
    return x if shape.element_type == kind else b.instruction("convert", Shape(kind, shape.dimensions), (x,))


def spread(b: Builder, x: Instruction) -> Instruction:
    return b.broadcast(x, (*x.array_shape.dimensions, 196), (0,))


def softmax(b: Builder, x: Instruction) -> Instruction:
    most = b.reduce(x, b.constant(float("-inf")), (1,), "maximum")
    powers = b.elementwise("exponential", b.subtract(x, spread(b, most)))
    return b.divide(powers, spread(b, b.reduce(powers, b.constant(0.0), (1,))))


def layer_norm(b: Builder, x: Instruction) -> Instruction:
    share = b.splat(1 / 196, (2048,))
    mean = b.multiply(b.reduce(x, b.constant(0.0), (1,)), share)
    centred = b.subtract(x, spread(b, mean))
    variance = b.multiply(b.reduce(b.multiply(centred, centred), b.constant(0.0), (1,)), share)
    inverse = b.elementwise("rsqrt", b.add(variance, b.splat(1e-3, (2048,))))
    return b.multiply(centred, spread(b, inverse))


def exponentials(b: Builder, x: Instruction) -> Instruction:
    return b.elementwise("exponential", b.multiply(x, x))


def kinds_of(form: Callable[[Builder, Instruction], Instruction], given: str, wanted: str) -> set[tuple[str, str]]:
    b = Builder(form.__name__)
    x = converted(b, b.parameter(given, ROWS), "f32")
    program = build_program(b.module(b.tuple(converted(b, form(b, x), wanted))), ["feed"], {})
    return large_operations(program)


def large_operations(program: Program) -> set[tuple[str, str]]:
    """The vertices of a program at each element of arrays of ROWS."""
    library = Layouts(program.compute_sets).library
    works = [work_of(each, library) for each in program.compute_sets]
    return {operation for work in works if work.points == 2048 * 196 for operation in work.operations}


@pytest.mark.parametrize("form", [softmax, layer_norm])
def test_softmax_and_norms_of_half_floats_are_computed_in_them(form: Callable) -> None:
    found = kinds_of(form, "f16", "f16")
    assert {kind for _, kind in found} == {"f16"}
    assert not {"convert", "divide"} & {opcode for opcode, _ in found}


@pytest.mark.parametrize(
    ("form", "given", "wanted"),
    [(softmax, "f32", "f32"), (softmax, "f16", "f32"), (layer_norm, "f32", "f16"), (exponentials, "f16", "f16")],
)
def test_values_that_enter_or_leave_in_fp32_stay_in_fp32(form: Callable, given: str, wanted: str) -> None:
    found = kinds_of(form, given, wanted)
    assert ("exponential" if form is not layer_norm else "subtract", "f32") in found


@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_a_softmax_of_any_type_multiplies_with_the_inverse_of_its_sums(kind: str) -> None:
    """Keras' attention with half floats converts nothing. The sum may be stored before the quotient reads it."""
    b = Builder("softmax")
    x = b.parameter(kind, ROWS)
    most = b.reduce(x, b.constant(float("-inf"), kind), (1,), "maximum")
    powers = b.elementwise("exponential", b.subtract(x, spread(b, most)))
    sums = converted(b, b.reduce(converted(b, powers, "f32"), b.constant(0.0), (1,)), kind)
    program = build_program(b.module(b.tuple(b.divide(powers, spread(b, sums)))), ["feed"], {})
    assert {"multiply", "exponential"} <= {opcode for opcode, _ in large_operations(program)}
    assert "divide" not in {opcode for opcode, _ in large_operations(program)}


def test_other_quotients_by_sums_stay_quotients() -> None:
    b = Builder("shares")
    x = b.parameter("f32", ROWS)
    program = build_program(b.module(b.tuple(b.divide(x, spread(b, b.reduce(x, b.constant(0.0), (1,)))))), ["feed"], {})
    assert ("divide", "f32") in large_operations(program)


def test_cycles_of_a_softmax_follow_from_its_parts() -> None:
    """Maximum, subtraction, exponential, sum, product with the inverse: 1 + 3 + 4 + 1 + 3 slots for four elements."""
    slots = sum(loop_of(opcode, "f16")[0] for opcode in ("reduce", "subtract", "exponential", "reduce", "multiply"))
    assert slots == 12
    shape = (6 * 1472, 196)
    b = Builder("softmax")
    x = converted(b, b.parameter("f16", shape), "f32")
    program = build_program(b.module(b.tuple(converted(b, softmax(b, x), "f16"))), ["feed"], {})
    whole = estimate(program, MK2).compute
    assert whole == pytest.approx(6 * 196 / 4 * slots, rel=0.2)  # each worker has a row


@pytest.mark.parametrize(("given", "item"), [("f16", 2), ("f32", 4)])
def test_arrays_of_a_softmax_of_half_floats_are_stored_in_them(given: str, item: int) -> None:
    b = Builder("softmax")
    x = converted(b, b.parameter(given, ROWS), "f32")
    program = build_program(b.module(b.tuple(converted(b, softmax(b, x), given))), ["feed"], {})
    held = {t.shape: t.bytes for t in estimate(program, MK2).liveness if t.category == "activations"}
    assert held["f32[2048,196]"] == 2048 * 196 * item  # the exponentials
    assert held["f32[2048]"] == 2048 * 4  # their sums, in fp32
