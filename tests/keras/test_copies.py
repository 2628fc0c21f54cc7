"""Batches of Python iterators are copied to memory of their own, once."""

from __future__ import annotations

import numpy as np
import pytest

from keras_ext.epochs import copies
from keras_ext.epochs.feeds import take


@pytest.mark.parametrize("most_bytes", [0, 100, 2**26])
def test_copies_are_joined_and_share_nothing_with_their_sources(
    most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "MOST_BYTES", most_bytes)
    rng = np.random.default_rng(2)
    given = []
    for rows in (2, 2, 1, 0, 0, 3, 2, 2, 2):
        first, second = rng.random((2, rows, 3), np.float32)
        given.append((first, {"b": second[:, ::2], "a": rng.integers(0, 9, (4, 2))}, np.float32(rows)))
    taken = take(iter(given), 20)
    assert [batches.steps for batches in taken] == [2, 1, 2, 1, 3]
    expected = iter(given)
    for batches in taken:
        run = [next(expected) for _ in range(batches.steps)]
        columns = zip(*((x, y["a"], y["b"], np.reshape(scalar, 1)) for x, y, scalar in run), strict=True)
        for feed, column in zip(batches.feeds, columns, strict=True):
            np.testing.assert_array_equal(feed.array, np.concatenate(column))
            assert feed.array.dtype == column[0].dtype
            assert not any(np.shares_memory(feed.array, array) for array in column)


def test_copies_of_one_shape_are_joined_without_another_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(np, "concatenate")
    batches = [(np.full((2, 3), number), np.full((2, 3), -number)) for number in range(5)]
    [taken] = take(iter(batches), 8)
    assert [feed.array[::2, 0].tolist() for feed in taken.feeds] == [[0, 1, 2, 3, 4], [0, -1, -2, -3, -4]]
