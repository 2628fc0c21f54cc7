"""The matrices of Winograd's convolutions: with exact fractions, transformed products are the convolution."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from engine.codelets.convolutions import cook_toom


@pytest.mark.parametrize(("outputs", "taps"), [(2, 2), (3, 2), (4, 2), (2, 3), (4, 3), (5, 3), (4, 4), (3, 5)])
def test_products_of_transforms_are_the_convolution(outputs: int, taps: int) -> None:
    side, rng = outputs + taps - 1, np.random.default_rng(0)
    d, g = (np.array([Fraction(int(each)) for each in rng.integers(-9, 10, n)]) for n in (side, taps))
    inputs, kernel = cook_toom.of_inputs(side), cook_toom.of_taps(side, taps)
    products = cook_toom.of_products(side, outputs)
    made = np.array(products) @ ((np.array(kernel) @ g) * (np.array(inputs) @ d))
    assert made.tolist() == [sum(g * d[i : i + taps]) for i in range(outputs)]
    # The gradient by the kernel has the transposed transforms.
    y = np.array([Fraction(int(each)) for each in rng.integers(-9, 10, outputs)])
    gradients, sums = cook_toom.transposed(products), cook_toom.transposed(kernel)
    made = np.array(sums) @ ((np.array(gradients) @ y) * (np.array(inputs) @ d))
    assert made.tolist() == [sum(y * d[i : i + outputs]) for i in range(taps)]
