"""Seeds repeat what operations draw, with kernels that are kept and with those that are cleared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.keras import seeding


def drawn(seed: int) -> np.ndarray:
    tf.random.set_seed(seed)
    return np.stack([tf.random.uniform([4]), tf.random.normal([4]), tf.random.uniform([4], seed=3)])


def test_seeds_repeat_numbers_whatever_was_drawn_before() -> None:
    tf.random.uniform([4])
    seeding.begin(Path("another"))
    assert not seeding._drawn
    first = drawn(5)
    assert seeding._drawn
    np.testing.assert_array_equal(drawn(5), first)
    seeding.begin(Path("a third"))
    np.testing.assert_array_equal(drawn(5), first)
    assert (drawn(6) != first).all()


def test_operations_get_the_seeds_that_they_get_where_kernels_are_cleared() -> None:
    seeding.begin(Path("another"))
    tf.random.set_seed(5)
    kept = [seeding.context.internal_operation_seed() for _ in range(3)]
    assert not seeding._drawn
    seeding._set_global_seed(5)
    assert [seeding.context.internal_operation_seed() for _ in range(3)] == kept
