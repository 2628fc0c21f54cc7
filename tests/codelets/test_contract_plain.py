"""The contraction codelets of the other element types against their definition in NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from engine.codelets.products.contract_f32 import contract_f32
from engine.codelets.products.contract_plain import contract_for
from engine.errors import UnsupportedOperation
from engine.ir.shape import NUMPY_TYPES
from engine.machine_code.processor import rounds_to_bf16
from engine.program.product_units import check_multiplied
from tests.codelets.contractions import contract_units, encode_contract
from tests.codelets.guarded_scratch import GuardedScratch

PAIRS = [
    ("f64", "f64"),
    ("s32", "s32"),
    ("u64", "u64"),
    ("s8", "s8"),
    ("s8", "s32"),
    ("u8", "s32"),
    ("f16", "f16"),
    ("f16", "f32"),
    ("bf16", "bf16"),
    pytest.param("bf16", "f32", marks=pytest.mark.explore),
    ("f32", "f64"),
    ("c64", "c64"),
    ("c128", "c128"),
]


def naive(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Batched [batch, row, k] x [batch, k, column], summed in a type that holds all or wraps around."""
    exact = {"f": np.float64, "c": np.complex128, "V": np.float64}.get(c.dtype.kind, np.int64)
    total = np.einsum("bmk,bkn->bmn", a.astype(exact), b.astype(exact))
    return total.astype(c.dtype)


def values(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind in "iu":
        lowest, highest = max(np.iinfo(dtype).min, -(2**31)), min(np.iinfo(dtype).max, 2**31)
        return random.integers(lowest, highest, shape, dtype=np.int64).astype(dtype)
    real = random.standard_normal(shape)
    return (real + 1j * random.standard_normal(shape) if dtype.kind == "c" else real).astype(dtype)


def run(a: np.ndarray, b: np.ndarray, c: np.ndarray, cuts: int = 1) -> np.ndarray:
    names = {dtype: name for name, dtype in NUMPY_TYPES.items()}
    element_type, result_type = names[a.dtype], names[c.dtype]
    c = c.copy()
    tables = {
        "row_a": np.arange(a.shape[1]) * a.strides[1],
        "row_c": np.arange(c.shape[1]) * c.strides[1],
        "k_a": np.arange(a.shape[2]) * a.strides[2],
        "k_b": np.arange(b.shape[1]) * b.strides[1],
        "batch_a": np.arange(len(a)) * a.strides[0],
        "batch_b": np.arange(len(b)) * b.strides[0],
        "batch_c": np.arange(len(c)) * c.strides[0],
    }
    parameters = encode_contract(
        a=a.ctypes.data,
        b=b.ctypes.data,
        c=c.ctypes.data,
        **tables,
        columns=c.shape[2],
        stride_b=b.strides[2],
        rows_per_unit=4,
        columns_per_unit=64,
        operand_type=element_type,
    )
    codelet, space = contract_for(element_type, result_type)
    scratch = GuardedScratch(space.bytes)
    edges = np.linspace(0, contract_units(parameters), cuts + 1).astype(int).tolist()
    for lo, hi in zip(edges[:-1], edges[1:], strict=True):
        codelet(parameters.words.ctypes.data, lo, hi, scratch.address)
    scratch.check(space)
    return c


@pytest.mark.parametrize(("element_type", "result_type"), PAIRS)
def test_against_numpy(element_type: str, result_type: str) -> None:
    random = np.random.default_rng(len(element_type))
    dtype, result = NUMPY_TYPES[element_type], NUMPY_TYPES[result_type]
    half = "16" in result_type
    tolerance = {"bf16": 1e-2, "f16": 2e-3}.get(result_type, 1e-5 if result_type in ("f32", "c64") else 1e-12)
    sizes = ((1, 1, 1, 1), (2, 7, 70, 13), (3, 4, 5, 0), (2, 9, 300, 33), (0, 2, 2, 2))
    for batches, rows, columns, k in sizes:
        for transposed in (False, True):
            a = values(random, (batches, rows, k), dtype)
            b = values(random, (batches, columns, k) if transposed else (batches, k, columns), dtype)
            b = b.transpose(0, 2, 1) if transposed else b
            c = values(random, (batches, rows, columns), result)
            actual, expected = run(a, b, c, cuts=3), naive(a, b, c)
            if result.kind in "iu":
                assert np.array_equal(actual, expected)
            else:
                wide = np.complex128 if result.kind == "c" else np.float64
                atol = 1e-2 if half else tolerance * 10
                np.testing.assert_allclose(actual.astype(wide), expected.astype(wide), rtol=tolerance, atol=atol)


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)])
def test_halves_round_to_nearest_even(dtype: np.dtype) -> None:
    """x times 1 is x for every half, though denormal bfloat16 may become zero; float32 sums round as in NumPy."""
    every = np.arange(2**16, dtype=np.uint16).view(dtype).reshape(1, -1, 1)
    one = np.ones((1, 1, 1), dtype)
    product = run(every, one, np.zeros(every.shape, dtype))
    with np.errstate(invalid="ignore"):  # ARM signals some NaNs
        wide = every.astype(np.float32)
    assert np.array_equal(np.isnan(product.astype(np.float32)), np.isnan(wide))
    same = ~np.isnan(wide)
    if dtype != np.float16 and rounds_to_bf16():
        denormal = np.abs(wide) < np.finfo(np.float32).tiny
        assert np.array_equal(product[denormal], np.zeros_like(product[denormal]))
        same &= ~denormal
    assert np.array_equal(product.view(np.uint16)[same] & 0x7FFF, every.view(np.uint16)[same] & 0x7FFF)
    random = np.random.default_rng(0)
    a, b = (values(random, shape, dtype) for shape in ((1, 200, 2), (1, 2, 50)))
    exact = np.einsum("bmk,bkn->bmn", a.astype(np.float64), b.astype(np.float64)).astype(np.float32)
    rounded = exact.astype(dtype)
    assert (run(a, b, np.zeros((1, 200, 50), dtype)) == rounded).mean() > 0.999


def test_nan_and_infinity() -> None:
    a = np.array([[[1.0, np.nan], [np.inf, 1.0], [np.inf, -np.inf]]])
    result = run(a, np.ones((1, 2, 3)), np.zeros((1, 3, 3)))[0]
    assert np.isnan(result[0]).all() and (result[1] == np.inf).all() and np.isnan(result[2]).all()


def test_float32_is_the_fast_codelet() -> None:
    assert contract_for("f32")[0] is contract_f32
    assert contract_for("f64")[0] is contract_for("f64", "f64")[0]


def test_types_that_cannot_be_multiplied() -> None:
    for pair in (("pred", "pred"), ("c64", "f32")):
        with pytest.raises(UnsupportedOperation, match="Expected"):
            check_multiplied(*pair)
