"""The pass that expands batch normalizations gives the results of the definition."""

from __future__ import annotations

import numpy as np
import pytest

from engine.evaluate import evaluate
from engine.ir import Module, Shape, TupleShape
from engine.ir.builder import Builder
from engine.passes.dead_code import dead_code
from engine.passes.expand_batch_norm import expand_batch_norm
from tests.engine.running import check, fast
from tests.passes.checking import alive, assert_same_results, simplified

SHAPES = [((2, 5, 4, 3), 3), ((6, 7), 1), ((3, 4, 5), 1), ((5, 8), 0), ((1, 1, 1, 4), 3), ((130, 9), 1)]
OPERANDS = {"training": 2, "inference": 4, "grad": 3}


def normalization(kind: str, opcode: str, dimensions: tuple[int, ...], feature: int, epsilon: float = 1e-3) -> Module:
    """Builds a normalization of parameters of one element type, in the order of the operation's operands."""
    b = Builder()
    operand = b.parameter(kind, dimensions)
    vectors = [b.parameter(kind, (dimensions[feature],)) for _ in range(OPERANDS[opcode])]
    operands = [operand, *vectors]
    if opcode == "grad":
        operands.append(b.parameter(kind, dimensions))
    if opcode != "training":
        # Squares, as a variance is not negative.
        at = 4 if opcode == "inference" else 3
        operands[at] = b.multiply(operands[at], operands[at])
    made = b.inferred(f"batch-norm-{opcode}", operands, epsilon=epsilon, feature_index=feature)
    if opcode == "inference":
        return b.module(made)
    return b.module(b.tuple(*(b.get_tuple_element(made, k) for k in range(3))))


@pytest.mark.parametrize("opcode", OPERANDS)
@pytest.mark.parametrize(("dimensions", "feature"), SHAPES)
def test_means_what_the_operation_means(opcode: str, dimensions: tuple[int, ...], feature: int) -> None:
    for kind, tolerance in (("f32", 1e-5), ("f64", 1e-12), ("f16", 2e-3), ("bf16", 1.6e-2)):
        module = normalization(kind, opcode, dimensions, feature)
        after = expand_batch_norm(module)
        assert not any("batch-norm" in each for each in alive(after))
        assert_same_results(module, after, tolerance=tolerance)


@pytest.mark.sample(3)
@pytest.mark.parametrize("opcode", OPERANDS)
@pytest.mark.parametrize("kind", ["f32", "f64", "f16"])
def test_runs_on_the_engine(opcode: str, kind: str) -> None:
    for dimensions, feature in SHAPES:
        check(normalization(kind, opcode, dimensions, feature), tolerance=2e-5)


def test_epsilon_counts() -> None:
    for epsilon in (0.0, 1e-5, 1.0):
        module = normalization("f32", "training", (9, 3), 1, epsilon)
        assert_same_results(module, expand_batch_norm(module), tolerance=1e-5)


def test_a_large_mean_costs_no_digits() -> None:
    """The mean of squares minus the squared mean would be mostly rounding errors."""
    module = normalization("f32", "training", (4096, 2), 1)
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(4096, 2)) + 1000).astype(np.float32)
    ones, zeros = np.ones(2, np.float32), np.zeros(2, np.float32)
    (normalized, mean, variance), _ = fast(module, [values, ones, zeros])
    exact = values.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean(0), rtol=2e-6)
    np.testing.assert_allclose(variance, exact.var(0), rtol=1e-4)
    np.testing.assert_allclose(normalized, (exact - exact.mean(0)) / exact.std(0), atol=3e-3)


def test_halves_are_computed_in_f32() -> None:
    """Halves cannot hold the sum of 4096 ones, nor the square of 300."""
    module = normalization("f16", "training", (4096, 1), 1)
    values = np.where(np.arange(4096) % 2, 300, -300).reshape(4096, 1).astype(np.float16)
    results = evaluate(expand_batch_norm(module), [values, np.ones(1, np.float16), np.ones(1, np.float16)])
    np.testing.assert_array_equal(results[0], np.where(values > 0, 2, 0).astype(np.float16))
    assert results[1] == 0
    assert np.isinf(results[2])


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_nothing_to_normalize() -> None:
    for opcode in OPERANDS:
        module = normalization("f32", opcode, (0, 3), 1)
        assert_same_results(module, expand_batch_norm(module), tolerance=0)


def test_mixed_types_come_back_as_they_were() -> None:
    b = Builder()
    operand = b.parameter("f16", (6, 4))
    made = b.inferred(
        *("batch-norm-training", (operand, b.parameter("f32", (4,)), b.parameter("f32", (4,)))),
        epsilon=1e-3,
        feature_index=1,
    )
    assert made.shape == TupleShape((Shape("f16", (6, 4)), Shape("f32", (4,)), Shape("f32", (4,))))
    module = b.module(b.tuple(*(b.get_tuple_element(made, k) for k in range(3))))
    assert_same_results(module, expand_batch_norm(module), tolerance=2e-3)


def test_unread_results_are_not_computed() -> None:
    b = Builder()
    operands = [b.parameter("f32", (6, 4)), *(b.parameter("f32", (4,)) for _ in range(3)), b.parameter("f32", (6, 4))]
    made = b.inferred("batch-norm-grad", operands, epsilon=1e-3, feature_index=1)
    after = simplified(b.module(b.get_tuple_element(made, 2)))
    assert alive(after) == ["reduce"]


def test_other_modules_stay_as_they_are() -> None:
    b = Builder()
    module = b.module(b.elementwise("negate", b.parameter("f32", (3,))))
    assert expand_batch_norm(module) is module
    assert dead_code(module) is module
