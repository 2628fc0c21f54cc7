"""fft: all four transforms, of any length, over one to three dimensions."""

from __future__ import annotations

import numpy as np
import pytest

from engine.evaluate import evaluate
from engine.ir import Module, Shape
from engine.ir.builder import Builder
from engine.program.fourier_plan import COMPLEX, fourier_plan, radices_of
from tests.engine.running import check, fast, random_array
from tests.exploring import sample

CASES = [
    *(((), (1,)), ((3,), (2,)), ((2,), (12,)), ((), (97,)), ((5,), (64,)), ((2, 2), (37,)), ((3,), (67,))),
    *(((60,), (500,)), ((), (4, 6)), ((2,), (5, 9)), ((2,), (3, 8, 10)), ((), (7, 41, 2)), ((), (2048,))),
    *(((0,), (8,)), ((2,), (143,)), ((37,), (66,)), ((19,), (256,)), ((2,), (10, 17)), ((17,), (25,)), ((33,), (8,))),
]


def fft_module(name: str, batch: tuple[int, ...], lengths: tuple[int, ...], double: bool = False) -> Module:
    real, complex_type = ("f64", "c128") if double else ("f32", "c64")
    full, half = (*batch, *lengths), (*batch, *lengths[:-1], lengths[-1] // 2 + 1)
    given = Shape(real, full) if name == "RFFT" else Shape(complex_type, half if name == "IRFFT" else full)
    made = Shape(real, full) if name == "IRFFT" else Shape(complex_type, half if name == "RFFT" else full)
    b = Builder()
    return b.module(
        b.instruction("fft", made, (b.parameter_of(given),), fft_type=name, fft_length=lengths),
    )


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize("double", [False, True])
def test_transforms(name: str, double: bool) -> None:
    rng = np.random.default_rng(0)
    for batch, lengths in sample(CASES, 10):
        module = fft_module(name, batch, lengths, double)
        check(module, [random_array(rng, module.entry.parameters[0].array_shape)], 1e-13 if double else 5e-7)


def test_every_length_up_to_150() -> None:
    """Results are in double precision, so that rounding cannot hide a wrong root."""
    rng = np.random.default_rng(1)
    for length in sample(range(1, 151), 60):
        module = fft_module("FFT", (2,), (length,), double=True)
        x = random_array(rng, module.entry.parameters[0].array_shape)
        ((result,), _) = fast(module, [x])
        (expected,) = evaluate(module, [x])
        assert np.abs(result - expected).max() <= 2e-14 * np.abs(expected).max(), length


def test_lengths_with_a_large_prime_become_powers_of_two() -> None:
    assert np.prod(radices_of(360) or ()) == 360
    assert radices_of(1) == () and radices_of(13) == (13,) and radices_of(17) is None
    plan = fourier_plan(37, (COMPLEX, COMPLEX), "c64")
    assert plan.transformed == 128 and np.prod(plan.radices) == 128
    assert plan.computed == "f64"


def test_imaginary_parts_that_a_real_signal_cannot_have_do_not_count() -> None:
    module = fft_module("IRFFT", (), (8,))
    spectrum = np.array([1 + 5j, 2 - 1j, 0.5, -1j, 3 + 7j], np.complex64)
    ((result,), _) = fast(module, [spectrum])
    np.testing.assert_allclose(result, np.fft.irfft(spectrum, 8), atol=1e-6)


def test_between_other_operations() -> None:
    """A convolution by spectra, where elementwise operations feed and read the transforms."""
    b = Builder()
    x, kernel = b.parameter("f32", (3, 10)), b.parameter("f32", (3, 10))
    half = Shape("c64", (3, 6))
    spectra = [
        b.instruction("fft", half, (b.reverse(v, (1,)),), fft_type="RFFT", fft_length=(10,)) for v in (x, kernel)
    ]
    product = b.multiply(*spectra)
    b.instruction("fft", Shape("f32", (3, 10)), (product,), fft_type="IRFFT", fft_length=(10,))
    check(b.module(), tolerance=1e-6)


def in_float32(name: str, x: np.ndarray, length: int) -> np.ndarray:
    """NumPy's transform in float32; NumPy 2.4 computes unscaled ones in float64, so they are made from scaled ones."""
    if name == "IRFFT":
        return np.fft.irfft(x, n=length)
    if name == "IFFT":
        return np.fft.ifft(x)
    spectrum = np.fft.ifft(x.astype(np.complex64).conj()).conj() * np.float32(length)
    return spectrum if name == "FFT" else spectrum[..., : length // 2 + 1]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["FFT", "IFFT", "RFFT", "IRFFT"])
def test_single_precision_errs_no_more_than_others(name: str) -> None:
    """TensorFlow uses NumPy's transforms of float32. Real lines of even length have one more rounding."""
    rng = np.random.default_rng(2)
    for length in sample([64, 100, 37, 512, 17, 243, 1000, 4096], 5):
        module = fft_module(name, (40,), (length,))
        x = random_array(rng, module.entry.parameters[0].array_shape)
        ((result,), _) = fast(module, [x])
        transform = getattr(np.fft, name.lower())
        length_of = {"n": length} if name == "IRFFT" else {}
        wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
        expected = transform(wide, **length_of)
        ours, others = (np.linalg.norm(each - expected) for each in (result, in_float32(name, x, length)))
        assert others > 0 and ours <= (1.2 if "R" in name else 1.1) * others, length


def test_equal_lines_have_equal_bits_in_every_unit_and_lane() -> None:
    x = random_array(np.random.default_rng(3), Shape("c64", (1, 240)))
    module = fft_module("FFT", (300,), (240,))
    ((result,), _) = fast(module, [np.repeat(x, 300, 0)])
    assert all(line.tobytes() == result[0].tobytes() for line in result)
