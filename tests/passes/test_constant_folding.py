"""constant_folding: small results become literals, splats stay broadcasts, and nothing big is made."""

import numpy as np
import pytest

from engine.ir.builder import Builder
from engine.passes.constant_folding import LARGEST_RESULT, constant_folding
from tests.passes.checking import SPECIAL, alive, assert_same_results


def folded_root(b, root=None):
    module = b.module(root)
    after = constant_folding(module)
    assert_same_results(module, after)
    assert constant_folding(after) is after
    return after.entry.root


def test_scalars():
    b = Builder()
    root = folded_root(b, b.add(b.constant(2.0), b.constant(3.5)))
    assert root.opcode == "constant" and root["literal"] == np.float32(5.5)


@pytest.mark.parametrize("opcode", ["add", "divide", "maximum", "power"])
def test_splats_stay_broadcasts_however_large(opcode):
    for one in SPECIAL:
        b = Builder()
        x, y = b.splat(one, (3000, 3000)), b.splat(-0.0, (3000, 3000))
        after = constant_folding(b.module(b.elementwise(opcode, x, y)))
        assert alive(after) == ["broadcast"]
        small = Builder()
        folded_root(small, small.elementwise(opcode, small.splat(one, (2, 2)), small.splat(-0.0, (2, 2))))


def test_predicate_of_constants():
    b = Builder()
    root = folded_root(b, b.compare(b.constant(32.0), b.constant(0.0), "EQ"))
    assert root["literal"].dtype == bool and not root["literal"]


@pytest.mark.parametrize("values", [[1.5] * 4, [0.0, -0.0], [np.nan, np.nan], [2.0]])
def test_literal_of_equal_bits_becomes_a_splat(values):
    b = Builder()
    root = folded_root(b, b.tuple(b.constant(values)))
    bits = {np.float32(v).tobytes() for v in values}
    assert root.operands[0].opcode == ("broadcast" if len(bits) == 1 and len(values) > 1 else "constant")


def test_moves_of_literals():
    b = Builder()
    x = b.constant(np.arange(24).reshape(2, 3, 4), "s32")
    x = b.transpose(b.reshape(x, (4, 6)), (1, 0))
    x = b.pad(b.slice(b.reverse(x, (0,)), (1, 5), (0, 4, 2)), b.constant(7, "s32"), (0, 1), (-1, 2, 1))
    assert folded_root(b, x).opcode == "constant"


def test_dot_and_reduction_of_literals():
    b = Builder()
    x = b.constant(np.arange(6).reshape(2, 3), "f32")
    product = b.dot(x, b.transpose(x, (1, 0)))
    root = folded_root(b, b.reduce(product, b.constant(0.0), (0, 1)))
    matrix = np.arange(6.0).reshape(2, 3)
    assert root["literal"] == (matrix @ matrix.T).sum()


def test_small_iotas_fold_into_what_reads_them_but_stay_themselves():
    b = Builder()
    counted = b.iota("s32", (3, 4), 1)
    module = b.module(b.tuple(counted, b.add(counted, counted)))
    after = constant_folding(module)
    assert_same_results(module, after)
    assert [result.opcode for result in after.results] == ["iota", "constant"]


@pytest.mark.parametrize(("size", "opcode"), [(LARGEST_RESULT, "constant"), (LARGEST_RESULT + 1, "multiply")])
def test_results_above_the_limit_are_left_alone(size, opcode):
    b = Builder()
    counted = b.iota("s32", (size,), 0)
    assert constant_folding(b.module(b.multiply(counted, counted))).entry.root.opcode == opcode


def test_random_numbers_and_parameters_are_not_constant():
    b = Builder()
    zero, one = b.constant(0.0), b.constant(1.0)
    noise = b.instruction("rng", b.splat(0.0, (3,)).array_shape, (zero, one), distribution="RNG_UNIFORM")
    module = b.module(b.add(noise, b.parameter("f32", (3,))))
    after = constant_folding(module)
    assert alive(after) == ["rng", "add"]


def test_no_elements():
    b = Builder()
    folded_root(b, b.add(b.splat(1.0, (0, 3)), b.splat(2.0, (0, 3))))
