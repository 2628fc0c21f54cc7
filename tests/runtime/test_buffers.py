"""Device buffers: what they hold, compared by its bits."""

from __future__ import annotations

import numpy as np
import pytest

from engine.ir import shape_of
from engine.runtime.buffers import DeviceBuffer


def holding(value: np.ndarray) -> DeviceBuffer:
    buffer = DeviceBuffer(shape_of(value))
    buffer.write(value)
    return buffer


@pytest.mark.parametrize("dtype", ["f4", "f2", "u1", "i8", "?"])
@pytest.mark.parametrize("shape", [(), (3,), (5, 7), (0,), (8, 2)])
def test_begins_with(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    first = np.asarray(rng.integers(0, 2, shape)).astype(dtype)
    rows = np.stack([first, rng.integers(0, 2, shape).astype(dtype)])
    assert holding(rows).begins_with(holding(first))
    if first.size:
        last = tuple(size - 1 for size in shape)
        other = first.copy()
        other[last] = not first[last]
        assert not holding(rows).begins_with(holding(other))


def test_bits_are_compared() -> None:
    special = np.float32([np.nan, -0.0, np.inf])
    rows = holding(np.stack([special, special]))
    assert rows.begins_with(holding(special))
    assert not rows.begins_with(holding(np.float32([np.nan, 0.0, np.inf])))
