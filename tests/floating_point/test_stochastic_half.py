"""The definition of stochastic rounding: random bits choose one of the two neighbours, the nearer one more often."""

from __future__ import annotations

from math import erfc, sqrt

import numpy as np
import pytest

from engine.ops.rounding import nearest_half, random_bits, stochastic_half

LARGEST = np.float32(65504)
LEAST = np.float32(2.0**-24)
EXACT = np.arange(2**16, dtype=np.uint16).view(np.float16)
RNG = np.random.default_rng(11)


def bits(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, count, np.uint32)


def of_all_magnitudes(count: int) -> np.ndarray:
    """f32 of both signs between the least subnormal half and the largest one."""
    return (RNG.choice([-1, 1], count) * np.exp2(RNG.uniform(-26, 15.99, count))).astype(np.float32)


def neighbours(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two halves around each x, in f64, found by NumPy's own rounding; where x is a half, x itself twice."""
    nearest = x.astype(np.float16)
    with np.errstate(over="ignore"):
        down, up = (np.nextafter(nearest, np.float16(end)) for end in (-np.inf, np.inf))
    below = np.where(nearest.astype(np.float64) > x, down, nearest)
    above = np.where(nearest.astype(np.float64) < x, up, nearest)
    return below.astype(np.float64), above.astype(np.float64)


def test_halves_stay_as_they_are() -> None:
    for seed in range(20):
        for overflow in ("infinity", "nan", "clip"):
            rounded = stochastic_half(EXACT.astype(np.float32), bits(EXACT.size, seed), overflow)
            is_nan = np.isnan(EXACT)
            np.testing.assert_array_equal(rounded[~is_nan].view(np.uint16), EXACT[~is_nan].view(np.uint16))
            assert np.isnan(rounded[is_nan]).all()


def test_a_number_becomes_one_of_its_neighbours() -> None:
    x = of_all_magnitudes(200_000)
    below, above = neighbours(x)
    rounded = stochastic_half(x, bits(x.size)).astype(np.float64)
    assert ((rounded == below) | (rounded == above)).all()
    between = below < above
    assert 0.4 < np.mean(rounded[between] == above[between]) < 0.6


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("exponent", [-14, -3, 0, 10, 15])
def test_probabilities_of_normal_halves_are_exact(exponent: int, negative: bool) -> None:
    """The share of thresholds that round x away from zero is exactly its position between two halves."""
    places = np.arange(2**13)
    x = (np.float32(1.0) + places * np.float32(2.0**-23)).astype(np.float32) * np.float32(2.0**exponent)
    x = -x if negative else x
    thresholds = (np.arange(2**13, dtype=np.uint32) << np.uint32(19)) + np.uint32(1 << 18)
    for place in (0, 1, 2, 4095, 4096, 8190, 8191):
        rounded = stochastic_half(np.full(thresholds.size, x[place]), thresholds).astype(np.float64)
        away = np.abs(rounded) > abs(float(x[0]))
        assert away.sum() == place
        assert rounded.mean() == float(x[place])


@pytest.mark.parametrize(
    "value", [1.0001, -3.14159, 0.1, 1e-5, -5.1e-7, 2.0**-24 * 0.3, 2.0**-14 * 0.99997, 1234.56, -65503.0]
)
def test_the_mean_is_the_number(value: float) -> None:
    """The mean is within 5 standard deviations: each of n results is one of two halves at a known distance."""
    count = 100_000
    x = np.full(count, value, np.float32)
    below, above = neighbours(x[:1])
    rounded = stochastic_half(x, random_bits(np.arange(count, dtype=np.uint32), np.uint32(77))).astype(np.float64)
    bound = 5 * float(above[0] - below[0]) / 2 / sqrt(count)
    assert abs(rounded.mean() - float(x[0])) <= bound
    assert np.unique(rounded).size == 2


def test_zeros_infinities_and_nans() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, LEAST, -LEAST, LARGEST, -LARGEST], np.float32)
    for seed in range(50):
        rounded = stochastic_half(x, bits(x.size, seed), "nan")
        np.testing.assert_array_equal(rounded, x.astype(np.float16))
        assert np.signbit(rounded).tolist() == np.signbit(x).tolist()


def test_far_below_the_least_half_is_zero_with_its_sign() -> None:
    x = np.array([1e-30, -1e-30, 1e-40, -1e-40], np.float32)
    for word in (0, 2**32 - 1):
        rounded = stochastic_half(x, np.full(4, word, np.uint32))
        assert rounded.tolist() == [0, 0, 0, 0]
        assert np.signbit(rounded).tolist() == [False, True, False, True]


@pytest.mark.parametrize(("overflow", "expected"), [("infinity", np.inf), ("clip", 65504.0), ("nan", np.nan)])
def test_overflow(overflow: str, expected: float) -> None:
    always_up, always_down = np.zeros(4, np.uint32), np.full(4, 2**32 - 1, np.uint32)
    x = np.array([65504.5, 65535.0, 65536.0, 3.4e38], np.float32)
    np.testing.assert_array_equal(stochastic_half(x, always_up, overflow), np.full(4, expected, np.float16))
    np.testing.assert_array_equal(stochastic_half(-x, always_up, overflow), np.full(4, -expected, np.float16))
    # Between the largest half and the next power of two, both are possible.
    np.testing.assert_array_equal(stochastic_half(x, always_down, overflow)[:2], np.float16([65504, 65504]))
    np.testing.assert_array_equal(stochastic_half(x, always_down, overflow)[2:], np.full(2, expected, np.float16))


@pytest.mark.parametrize(("overflow", "expected"), [("infinity", np.inf), ("clip", 65504.0), ("nan", np.nan)])
def test_overflow_to_the_nearest(overflow: str, expected: float) -> None:
    x = np.array([65504.0, 65519.9, 65520.0, 1e38, np.inf, np.nan, 1.0005, -7e4], np.float32)
    with np.errstate(over="ignore"):
        wanted = x.astype(np.float16)
    wanted[[2, 3]], wanted[7] = expected, -expected
    np.testing.assert_array_equal(nearest_half(x, overflow), wanted)
    np.testing.assert_array_equal(nearest_half(x.astype(np.float64), overflow), wanted)


def p_value(z: float) -> float:
    return erfc(abs(z) / sqrt(2))


def uniform(index: np.ndarray, key: int) -> np.ndarray:
    return random_bits(index, np.uint32(key)) / 2.0**32 - 0.5


@pytest.mark.parametrize("first", [0, 1 << 16, 1 << 22])
def test_bits_are_uniform(first: int) -> None:
    """Chi-squared over 64 bins has mean 63 and variance 126: its mean over 200 keys stays within 5 sigma."""
    index = np.arange(first, first + 2**15, dtype=np.uint32)
    statistics = []
    for key in bits(200, 3):
        counts = np.bincount(random_bits(index, key) >> np.uint32(26), minlength=64)
        statistics.append(((counts - 512) ** 2 / 512).sum())
    assert abs(np.mean(statistics) - 63) < 5 * sqrt(126 / 200)


def test_elements_and_keys_have_nothing_to_do_with_each_other() -> None:
    """Correlations of some hundreds of pairs, scaled to variance 1, stay within chance."""
    index = np.arange(2**15, dtype=np.uint32)
    keys = bits(64, 5)
    scores = []
    for one, other in zip(keys[:32], keys[32:], strict=True):
        u = uniform(index, int(one))
        scores.append(np.mean(u * uniform(index, int(other))) * 12 * sqrt(u.size))
        scores += [np.mean(u[:-lag] * u[lag:]) * 12 * sqrt(u.size - lag) for lag in (1, 2, 3, 64, 512, 784)]
    assert min(p_value(z) for z in scores) * len(scores) > 1e-3
    assert 0.8 < np.std(scores) < 1.2
