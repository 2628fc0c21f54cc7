"""simplify_shapes: each rule on the smallest module that needs it."""

import itertools

import numpy as np
import pytest

from engine.ir import SliceDimension, Window, WindowDimension
from engine.ir.builder import Builder
from engine.passes.rules.reshape import matching_groups
from engine.passes.simplify_shapes import simplify_shapes
from tests.passes.checking import alive, assert_same_results


def check(b, left, root=None):
    module = b.module(root)
    after = simplify_shapes(module)
    assert_same_results(module, after)
    assert alive(after) == left
    assert simplify_shapes(after) is after
    return after.entry.root


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ([(2, 3, 4)], []),
        ([(24,)], ["reshape"]),
        ([(6, 4), (3, 8), (24,)], ["reshape"]),
        ([(6, 4), (2, 3, 4)], []),
    ],
)
def test_reshapes(steps, left):
    b = Builder()
    x = b.parameter("f32", (2, 3, 4))
    for dimensions in steps:
        x = b.reshape(x, dimensions)
    check(b, left)


@pytest.mark.parametrize(
    ("dimensions", "permutations", "left"),
    [
        ((2, 3), [(0, 1)], []),
        ((2, 3), [(1, 0)], ["transpose"]),
        ((2, 3), [(1, 0), (1, 0)], []),
        ((2, 3, 4), [(1, 2, 0), (1, 2, 0)], ["transpose"]),
        ((2, 3, 4), [(1, 2, 0), (1, 2, 0), (1, 2, 0)], []),
        ((1, 3, 1), [(1, 0, 2)], ["reshape"]),
        ((1, 3, 1), [(2, 1, 0)], []),
        ((2, 1, 3), [(2, 1, 0)], ["transpose"]),
        ((0, 3), [(1, 0)], ["reshape"]),
    ],
)
def test_transposes(dimensions, permutations, left):
    b = Builder()
    x = b.parameter("f32", dimensions)
    for permutation in permutations:
        x = b.transpose(x, permutation)
    check(b, left)


def test_broadcast_forms():
    b = Builder()
    check(b, [], b.broadcast(b.parameter("f32", (2, 3)), (2, 3), (0, 1)))
    b = Builder()
    check(b, ["reshape"], b.broadcast(b.parameter("f32", (2, 3)), (2, 1, 3), (0, 2)))
    b = Builder()
    check(b, ["transpose", "broadcast"], b.broadcast(b.parameter("f32", (2, 3)), (3, 4, 2), (2, 0)))
    b = Builder()
    inner = b.broadcast(b.parameter("f32", (2,)), (2, 3), (0,))
    root = check(b, ["broadcast"], b.broadcast(inner, (4, 2, 3), (1, 2)))
    assert root["dimensions"] == (1,)
    b = Builder()
    root = check(b, ["reshape", "broadcast"], b.broadcast(b.parameter("f32", (2, 1)), (2, 1, 5), (0, 1)))
    assert root["dimensions"] == (0,)


@pytest.mark.parametrize(
    ("new", "left"),
    [
        ((2, 3, 1, 4), ["broadcast"]),
        ((6, 4), ["broadcast"]),
        ((2, 12), ["broadcast", "reshape"]),
        ((2, 3, 2, 2), ["reshape", "broadcast"]),
        ((24,), ["broadcast", "reshape"]),
    ],
)
def test_reshape_of_broadcast(new, left):
    b = Builder()
    spread = b.broadcast(b.parameter("f32", (4,)), (2, 3, 4), (2,))
    check(b, left, b.reshape(spread, new))


def test_reshape_of_scalar_broadcast_and_transposed_ones():
    b = Builder()
    check(b, ["broadcast"], b.reshape(b.broadcast(b.parameter("f32"), (4, 6), ()), (3, 8)))
    b = Builder()
    spread = b.broadcast(b.parameter("f32", (2, 3)), (2, 3, 4), (0, 1))
    check(b, ["transpose", "broadcast"], b.transpose(spread, (1, 2, 0)))
    b = Builder()
    root = check(b, ["iota"], b.transpose(b.iota("s32", (3, 5), 1), (1, 0)))
    assert root["iota_dimension"] == 0


def test_matching_groups_hold_the_same_elements():
    rng = np.random.default_rng(0)
    for _ in range(300):
        old = tuple(int(n) for n in rng.choice([1, 2, 3, 4, 6], rng.integers(0, 5)))
        factors = [p for n in old for p in ((2, 2) if n == 4 else (2, 3) if n == 6 else (n,))]
        cuts = sorted({0, len(factors), *(int(c) for c in rng.integers(0, len(factors) + 1, 2))})
        new = tuple(int(np.prod(factors[i:j])) for i, j in itertools.pairwise(cuts))
        groups = matching_groups(old, new)
        assert [d for group in groups for d in group[0]] == list(range(len(old)))
        assert [d for group in groups for d in group[1]] == list(range(len(new)))
        for old_group, new_group in groups:
            assert np.prod([old[d] for d in old_group]) == np.prod([new[d] for d in new_group])
    assert matching_groups((0, 2), (2, 0)) is None


def test_slices_of_slices():
    ranges = [(0, 11), (2, 9), (1, 10, 3), (3, 3), (4, 5)]
    for first, second in itertools.product(ranges, [(0, 1), (1, 2), (0, 2, 2), (0, 3, 2), (1, 1), (0, 0), (1, 3)]):
        b = Builder()
        once = b.slice(b.parameter("f32", (11,)), first)
        size = once.array_shape.dimensions[0]
        if max(second[:2]) <= size:
            module = b.module(b.slice(once, second))
            after = simplify_shapes(module)
            assert_same_results(module, after)
            assert alive(after).count("slice") <= 1


def test_slices_of_other_things():
    b = Builder()
    check(b, [], b.slice(b.parameter("f32", (4, 5)), (0, 4), (0, 5)))
    b = Builder()
    spread = b.broadcast(b.parameter("f32", (4,)), (3, 4), (1,))
    check(b, ["slice", "broadcast"], b.slice(spread, (0, 2), (1, 3)))
    b = Builder()
    spread = b.broadcast(b.parameter("f32", (4,)), (3, 4), (1,))
    check(b, ["broadcast"], b.slice(spread, (0, 2), (0, 4)))


@pytest.mark.parametrize(
    ("cut", "left"),
    [
        ((0, 3), []),
        ((3, 7), []),
        ((4, 6), ["slice"]),
        ((3, 7, 2), ["slice"]),
        ((2, 4), ["concatenate", "slice"]),
    ],
)
def test_slice_of_concatenate(cut, left):
    b = Builder()
    joined = b.concatenate([b.parameter("f32", (3,)), b.parameter("f32", (4,)), b.parameter("f32", (2,))], 0)
    check(b, left, b.slice(joined, cut))


@pytest.mark.parametrize("start", [-5, 0, 2, 3, 100])
def test_dynamic_slice_at_a_constant_is_clamped(start):
    b = Builder()
    x = b.parameter("f32", (5, 3))
    starts = (b.constant(start, "s32"), b.parameter("s32"))
    root = check(b, ["slice"], b.inferred("dynamic-slice", (x, *starts), dynamic_slice_sizes=(2, 3)))
    first = min(max(0, start), 3)
    assert root["slice_dimensions"][0] == SliceDimension(first, first + 2)


def test_dynamic_update_of_everything_and_nothing():
    b = Builder()
    x, update, start = b.parameter("f32", (4,)), b.parameter("f32", (4,)), b.parameter("s32")
    root = check(b, [], b.inferred("dynamic-update-slice", (x, update, start)))
    assert root["parameter_number"] == 1
    b = Builder()
    x, update, start = b.parameter("f32", (4,)), b.parameter("f32", (0,)), b.parameter("s32")
    root = check(b, [], b.inferred("dynamic-update-slice", (x, update, start)))
    assert root["parameter_number"] == 0


@pytest.mark.parametrize(
    ("config", "left"),
    [
        (((0, 0), (0, 0)), []),
        (((-1, 0), (0, -2)), ["slice"]),
        (((0, 0, 1), (0, 0)), ["pad"]),
        (((1, -1), (0, 0)), ["pad"]),
    ],
)
def test_pad(config, left):
    b = Builder()
    check(b, left, b.pad(b.parameter("f32", (3, 4)), b.constant(1.5), *config))


def test_pad_of_a_splat_looks_at_the_sign_of_zero():
    for inside, outside, left in [(0.0, 0.0, ["broadcast"]), (0.0, -0.0, ["broadcast", "pad"])]:
        b = Builder()
        check(b, left, b.pad(b.splat(inside, (3,)), b.constant(outside), (1, 2, 1)))


def test_concatenate_and_reverse():
    b = Builder()
    check(b, [], b.concatenate([b.parameter("f32", (3,)), b.parameter("f32", (0,))], 0))
    b = Builder()
    check(b, [], b.concatenate([b.parameter("f32", (3, 2))], 1))
    b = Builder()
    check(b, ["broadcast"], b.concatenate([b.splat(1.0, (2,)), b.splat(1.0, (3,))], 0))
    b = Builder()
    check(b, [], b.reverse(b.parameter("f32", (1, 3)), (0,)))
    b = Builder()
    x = b.parameter("f32", (2, 3, 4))
    root = check(b, ["reverse"], b.reverse(b.reverse(x, (0, 1)), (1, 2)))
    assert root["dimensions"] == (0, 2)
    b = Builder()
    check(b, ["broadcast"], b.reverse(b.broadcast(b.parameter("f32", (3,)), (2, 3), (1,)), (0,)))


def test_what_hands_on_its_operand():
    b = Builder()
    x = b.elementwise("copy", b.convert(b.parameter("f32", (3,)), "f32"))
    bits = b.inferred("bitcast-convert", (x,), hint=x.array_shape.with_type("s32"))
    x = b.inferred("bitcast-convert", (bits,), hint=x.array_shape)
    x = b.get_tuple_element(b.tuple(x, x), 1)
    check(b, [], b.elementwise("optimization-barrier", x))


@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("initial", [0.0, 1.0, -np.inf, np.inf, 2.5])
def test_reduction_of_single_elements(opcode, initial):
    neutral = {"add": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}[opcode]
    b = Builder()
    reduced = b.reduce(b.parameter("f32", (3, 1, 4)), b.constant(initial), (1,), opcode)
    module = b.module(reduced)
    after = simplify_shapes(module)
    assert_same_results(module, after, tolerance=0.0)
    assert alive(after) == (["reshape"] if initial == neutral else ["broadcast", "reshape", opcode])


def test_reduction_of_one_and_of_more_elements():
    b = Builder()
    root = check(b, ["reshape", "reduce"], b.reduce(b.parameter("s32", (3, 1, 4)), b.constant(0, "s32"), (1, 2)))
    assert root["dimensions"] == (1,)
    b = Builder()
    check(b, [], b.reduce(b.parameter("s32", (3,)), b.constant(0, "s32"), ()))


@pytest.mark.parametrize("permutation", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("reduced", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_reduction_of_a_transpose(permutation, reduced):
    b = Builder()
    x = b.transpose(b.parameter("f32", (2, 3, 4)), permutation)
    module = b.module(b.reduce(x, b.constant(0.0), reduced))
    after = simplify_shapes(module)
    assert_same_results(module, after, tolerance=1e-5)
    left = [d for n, d in enumerate(permutation) if n not in reduced]
    assert ("transpose" in alive(after)) == (left != sorted(left))


def test_window_of_one_element():
    one: Window = (WindowDimension(1), WindowDimension(1))
    b = Builder()
    check(b, [], b.reduce_window(b.parameter("s32", (3, 4)), b.constant(0, "s32"), one))
    b = Builder()
    moved = (WindowDimension(1, padding_low=1, padding_high=-1), WindowDimension(1))
    check(b, ["reduce-window"], b.reduce_window(b.parameter("s32", (3, 4)), b.constant(0, "s32"), moved))
