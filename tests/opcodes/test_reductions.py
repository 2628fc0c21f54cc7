"""reduce and reduce-window: any body, any number of arrays, any window with negative padding and dilations."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.ir import Computation, Instruction, Shape, TupleShape, WindowDimension
from engine.ir.builder import Builder, binary_computation
from engine.ir.structured_shape_rules import window_count
from tests.engine.running import check
from tests.exploring import examples
from tests.opcodes.choices import Choices, whole_numbers

KINDS = ("f32", "s32", "f64", "f16", "bf16", "u8", "s64", "pred", "c64")
OPERATIONS = {
    "pred": ("and", "or", "xor"),
    "c64": ("add",),
    "u8": ("add", "maximum", "minimum", "and", "or", "xor"),
    "s32": ("add", "multiply", "maximum", "minimum", "xor"),
}


def of_single_operation(c: Choices, kind: str) -> Computation:
    return binary_computation(c.choose(OPERATIONS.get(kind, ("add", "maximum", "minimum"))), kind)


def extreme_and_place(kinds: tuple[str, ...], direction: str) -> Computation:
    """A body for the extreme of the first array, with the others' elements at its place; of equal ones the first."""
    b = Builder("extreme")
    old = [b.parameter(kind) for kind in kinds]
    new = [b.parameter(kind) for kind in kinds]
    keep = b.elementwise("or", b.compare(old[0], new[0], direction), b.compare(old[0], new[0], "EQ"))
    least = b.select(b.compare(old[1], new[1], "LT"), old[1], new[1])
    place = b.select(b.compare(old[0], new[0], "EQ"), least, b.select(keep, old[1], new[1]))
    rest = [b.elementwise("xor", old[k], new[k]) for k in range(2, len(kinds))]
    return b.build(b.tuple(b.select(keep, old[0], new[0]), place, *rest))


def body_and_kinds(c: Choices) -> tuple[Computation, tuple[str, ...]]:
    """A body that is associative and commutative, as XLA asks for."""
    if c.boolean():
        kind = c.choose(KINDS)
        return of_single_operation(c, kind), (kind,)
    kinds = (c.choose(("f32", "f16", "s32", "f64")), c.choose(("s32", "s64", "u8")), *(["u32"] * c.integer(0, 1)))
    return extreme_and_place(kinds, c.choose(("GT", "LT"))), kinds


def initial(b: Builder, kind: str, opcode: str, c: Choices) -> Instruction:
    """The initial value: the identity as a constant, or any value."""
    if opcode in ("add", "or", "xor") and c.boolean():
        return b.constant(0, kind)
    return b.parameter(kind)


@settings(max_examples=examples(120, 10))
@given(st.data())
def test_reduce(data: st.DataObject) -> None:
    c = Choices(data)
    shape = c.shape(0, 4)
    body, kinds = body_and_kinds(c)
    b = Builder()
    arrays = [b.parameter(kind, shape) for kind in kinds]
    starts = [initial(b, kind, body.root.opcode, c) for kind in kinds]
    order = c.order(len(shape))
    seen = [b.transpose(x, order) for x in arrays] if c.boolean() else arrays
    made = b.inferred("reduce", (*seen, *starts), (body,), dimensions=c.subset(len(shape)))
    if len(kinds) > 1:
        made = b.tuple(*(b.get_tuple_element(made, k) for k in range(len(kinds))))
    rng = c.random()
    check(b.module(made), [whole_numbers(rng, p.array_shape) for p in b.build().parameters])


def window_dimension(c: Choices) -> WindowDimension:
    return WindowDimension(
        size=c.integer(1, 3),
        stride=c.integer(1, 3),
        padding_low=c.integer(-2, 3),
        padding_high=c.integer(-2, 3),
        window_dilation=c.integer(1, 2),
        base_dilation=c.integer(1, 2),
    )


@settings(max_examples=examples(120, 12))
@given(st.data())
def test_reduce_window(data: st.DataObject) -> None:
    c = Choices(data)
    shape = tuple(min(n, 7) for n in c.shape(1, 3))
    body, kinds = body_and_kinds(c)
    window = tuple(window_dimension(c) for _ in shape)
    counts = tuple(window_count(n, w) for n, w in zip(shape, window, strict=True))
    assume(all(n >= 0 for n in counts))
    b = Builder()
    arrays = [b.parameter(kind, shape) for kind in kinds]
    starts = [initial(b, kind, body.root.opcode, c) for kind in kinds]
    shapes = tuple(Shape(kind, counts) for kind in kinds)
    result = shapes[0] if len(kinds) == 1 else TupleShape(shapes)
    made = b.instruction("reduce-window", result, (*arrays, *starts), (body,), window=window)
    if len(kinds) > 1:
        made = b.tuple(*(b.get_tuple_element(made, k) for k in range(len(kinds))))
    rng = c.random()
    check(b.module(made), [whole_numbers(rng, p.array_shape) for p in b.build().parameters])
