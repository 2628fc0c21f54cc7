"""Random bits, batch normalisation and linear algebra."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import UnsupportedOperation
from engine.ir import Instruction, Shape, TupleShape
from engine.ir.builder import Builder
from engine.ops.generators import seed_rng
from engine.ops.random import philox
from tests.ops.running import run, run_module, same

random = np.random.default_rng(17)
ONES = 2**64 - 1


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ([0, 0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([ONES, ONES, ONES], [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ],
)
def test_philox_gives_its_published_words(state: list[int], words: list[int]) -> None:
    same(philox(np.array(state, np.uint64), 1), np.array([words], np.uint32))


def generated(state: np.ndarray, shape: Shape, algorithm: str = "RNG_PHILOX") -> tuple[np.ndarray, ...]:
    b = Builder()
    result = TupleShape((Shape("u64", (3,)), shape))
    b.instruction("rng-bit-generator", result, (b.parameter("u64", (3,)),), rng_algorithm=algorithm)
    return run_module(b.module(), state)


@pytest.mark.parametrize(("element_type", "blocks"), [("u8", 2), ("u16", 2), ("u32", 2), ("u64", 4)])
def test_bits_continue_from_the_next_state(element_type: str, blocks: int) -> None:
    state = np.array([5, ONES - 1, 8], np.uint64)
    after, bits = generated(state, Shape(element_type, (2, 4)))
    carry = int(blocks > 1)
    same(after, np.array([5, (ONES - 1 + blocks) % 2**64, 8 + carry], np.uint64))
    _, more = generated(after, Shape(element_type, (2, 4)))
    _, both = generated(state, Shape(element_type, (16,)))
    same(np.concatenate([bits.ravel(), more.ravel()]), both)


def test_other_generators_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperation, match="RNG_THREE_FRY"):
        generated(np.zeros(3, np.uint64), Shape("u32", (4,)), "RNG_THREE_FRY")


def drawn(distribution: str, first: float, second: float, shape: Shape) -> np.ndarray:
    b = Builder()
    scalars = [b.constant(v, shape.element_type) for v in (first, second)]
    b.instruction("rng", shape, scalars, distribution=distribution)
    return run_module(b.module())[0]


def test_hidden_generator_has_the_distribution_and_repeats_from_a_seed() -> None:
    seed_rng(3)
    uniform = drawn("RNG_UNIFORM", -1, 3, Shape("f32", (4000,)))
    assert -1 <= uniform.min() < uniform.max() < 3 and abs(uniform.mean() - 1) < 0.1
    normal = drawn("RNG_NORMAL", 2, 0.5, Shape("f32", (4000,)))
    assert abs(normal.mean() - 2) < 0.05 and abs(normal.std() - 0.5) < 0.05
    assert set(drawn("RNG_UNIFORM", 0, 3, Shape("s32", (100,)))) == {0, 1, 2}
    for half in ("f16", "bf16"):
        assert (drawn("RNG_UNIFORM", 0, 1, Shape(half, (5000,))).astype(np.float32) < 1).all()
    seed_rng(3)
    same(drawn("RNG_UNIFORM", -1, 3, Shape("f32", (4000,))), uniform)


def batch_norm(opcode: str, *operands: np.ndarray, feature_index: int) -> tuple[np.ndarray, ...]:
    b = Builder()
    parameters: list[Instruction] = [b.parameter("f32", o.shape) for o in operands]
    b.inferred(opcode, parameters, epsilon=1e-3, feature_index=feature_index)
    return run_module(b.module(), *operands)


@pytest.mark.parametrize("feature_index", [1, 3])
def test_batch_norm(feature_index: int) -> None:
    x, gradient = random.normal(size=(2, 4, 3, 5, 4)).astype(np.float32)
    features = x.shape[feature_index]
    scale, offset = random.normal(size=(2, features)).astype(np.float32)
    aligned = [-1 if d == feature_index else 1 for d in range(4)]
    axes = tuple(d for d in range(4) if d != feature_index)
    mean, variance = x.mean(axes), x.var(axes)
    y, *moments = batch_norm("batch-norm-training", x, scale, offset, feature_index=feature_index)
    expected = (x - mean.reshape(aligned)) / np.sqrt(variance + 1e-3).reshape(aligned) * scale.reshape(aligned)
    np.testing.assert_allclose(y, expected + offset.reshape(aligned), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moments, [mean, variance], rtol=1e-4, atol=1e-5)
    (inferred,) = batch_norm("batch-norm-inference", x, scale, offset, *moments, feature_index=feature_index)
    np.testing.assert_allclose(inferred, y, rtol=1e-5, atol=1e-6)
    of_x, of_scale, of_offset = batch_norm("batch-norm-grad", x, scale, *moments, gradient, feature_index=feature_index)
    np.testing.assert_allclose(of_offset, gradient.sum(axes), rtol=1e-4, atol=1e-5)
    step = 1e-2
    for which, derivative in ((0, of_x), (1, of_scale)):
        direction = random.normal(size=(x, scale)[which].shape).astype(np.float32)
        losses = []
        for sign in (1, -1):
            moved = [x, scale]
            moved[which] = moved[which] + np.float32(sign * step) * direction
            value, *_ = batch_norm("batch-norm-training", *moved, offset, feature_index=feature_index)
            losses.append(np.vdot(value.astype(np.float64), gradient))
        slope = (losses[0] - losses[1]) / (2 * step)
        np.testing.assert_allclose(np.vdot(derivative, direction), slope, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(lower: bool) -> None:
    root = random.normal(size=(2, 4, 4)).astype(np.float32)
    matrix = root @ np.swapaxes(root, 1, 2) + np.eye(4, dtype=np.float32)
    factor = run("cholesky", matrix, lower=lower)
    transposed = np.swapaxes(factor, 1, 2)
    np.testing.assert_allclose(factor @ transposed if lower else transposed @ factor, matrix, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(factor, np.tril(factor) if lower else np.triu(factor))
    assert np.isnan(run("cholesky", -np.eye(2, dtype=np.float32), lower=True)).all()


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("left_side", [True, False])
@pytest.mark.parametrize("unit_diagonal", [True, False])
@pytest.mark.parametrize("transpose_a", ["NO_TRANSPOSE", "TRANSPOSE"])
def test_triangular_solve(lower: bool, left_side: bool, unit_diagonal: bool, transpose_a: str) -> None:
    a = random.normal(size=(4, 4)) + 4 * np.eye(4)
    b = random.normal(size=(4, 2) if left_side else (2, 4))
    attributes = {
        "lower": lower,
        "left_side": left_side,
        "unit_diagonal": unit_diagonal,
        "transpose_a": transpose_a,
    }
    x = run("triangular-solve", a, b, result=Shape("f64", b.shape), **attributes)
    triangle = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        np.fill_diagonal(triangle, 1)
    matrix = triangle.T if transpose_a == "TRANSPOSE" else triangle
    np.testing.assert_allclose(matrix @ x if left_side else x @ matrix, b, rtol=1e-9, atol=1e-9)


def test_fourier_transforms_invert_each_other() -> None:
    x = random.normal(size=(2, 6, 8)).astype(np.float32)
    b = Builder()
    there = b.instruction(
        "fft", Shape("c64", (2, 6, 5)), (b.parameter("f32", x.shape),), fft_type="RFFT", fft_length=(6, 8)
    )
    b.instruction("fft", Shape("f32", x.shape), (there,), fft_type="IRFFT", fft_length=(6, 8))
    np.testing.assert_allclose(run_module(b.module(), x)[0], x, atol=1e-5)
