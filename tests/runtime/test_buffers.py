"""Device buffers: their contents, compared by bits."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from engine.ir import shape_of
from engine.runtime.buffers import ALIGNMENT, SLAB_BYTES, DeviceBuffer, aligned_zeros


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


def test_zeros_are_apart_and_on_lines() -> None:
    sizes = [1, 63, 64, 1 << 15, (1 << 15) + 1, 1 << 20, 3_000_001, (1 << 22) - 1, 1 << 22, 5_000_000] * 3
    made = [aligned_zeros(size) for size in sizes]
    for number, (array, size) in enumerate(zip(made, sizes, strict=True)):
        assert array.shape == (size,) and array.dtype == np.uint8 and array.ctypes.data % ALIGNMENT == 0
        assert not array.any()
        array[:] = number + 1
    for number, array in enumerate(made):
        assert (array == number + 1).all()


def test_memory_is_given_back_with_the_last_array_cut_from_it() -> None:
    first, second = aligned_zeros(1 << 20), aligned_zeros(1 << 20)
    slabs = {id(each.base): weakref.ref(each.base) for each in (first, second) if each.base is not None}
    for _ in range(SLAB_BYTES >> 20):
        aligned_zeros(1 << 20)
    del first, second
    assert slabs and all(each() is None for each in slabs.values())
