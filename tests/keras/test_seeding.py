"""Seeds repeat operations' random numbers, whether kernels are kept or cleared."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.keras import seeding


def drawn(seed: int) -> np.ndarray:
    tf.random.set_seed(seed)
    return np.stack([tf.random.uniform([4]), tf.random.normal([4]), tf.random.uniform([4], seed=3)])


def test_seeds_repeat_numbers_whatever_was_drawn_before() -> None:
    tf.random.uniform([4])
    with seeding.kernels_kept():
        assert not seeding._drawn
        first = drawn(5)
        assert seeding._drawn
        np.testing.assert_array_equal(drawn(5), first)
    with seeding.kernels_kept():
        np.testing.assert_array_equal(drawn(5), first)
        assert (drawn(6) != first).all()


def test_operations_get_the_seeds_that_they_get_where_kernels_are_cleared() -> None:
    with seeding.kernels_kept():
        tf.random.set_seed(5)
        kept = [seeding.context.internal_operation_seed() for _ in range(3)]
        assert not seeding._drawn
        seeding._set_global_seed(5)
        assert [seeding.context.internal_operation_seed() for _ in range(3)] == kept


def test_other_files_have_seeds_of_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that a file has traced also count, as their kernels draw without a new operation."""
    monkeypatch.setattr(seeding.random_seed, "get_seed", seeding._get_seed)
    monkeypatch.setattr(seeding.context, "set_global_seed", seeding._set_global_seed)
    function = tf.function(lambda: tf.random.uniform([4], seed=3))

    def repeated() -> bool:
        tf.random.set_seed(5)
        first = function().numpy()
        tf.random.set_seed(5)
        return np.array_equal(function().numpy(), first)

    with seeding.kernels_kept():
        assert repeated()
    assert seeding.random_seed.get_seed is seeding._get_seed
    assert repeated()
