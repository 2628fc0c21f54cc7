"""Compute sets that copy feeds from arrays of the host before a step, and results to them after it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.codelets.rows import encode_infeed, encode_outfeed, infeed, outfeed
from engine.program.program import Address, Buffer, ComputeSet, Partition, Span
from engine.program.work.codelet_work import CodeletWork


def infeed_set(buffer: Buffer, block: np.ndarray, readers: Iterable[ComputeSet] = ()) -> ComputeSet:
    """Copies a step's rows of the array that a feed block points to, to the buffer of a feed.

    Units are rows, or columns if the first of the `readers` that reads the buffer has units of these.
    """
    shape = buffer.shape
    batch = shape.dimensions[0] if shape.rank else 1
    row_elements = shape.elements // batch if batch else 0
    row_bytes = row_elements * shape.dtype.itemsize
    found = next((s.partition for each in readers for s in each.reads if s.buffer is buffer), None)
    if found is not None and (found.inner, found.extent) == (1, row_elements) and found.grain < row_elements:
        partition, unit_bytes = found, found.grain * shape.dtype.itemsize
    else:
        partition, unit_bytes = Partition(max(row_elements, 1), max(batch, 1), 1), row_bytes
    parameters, units = encode_infeed(block.ctypes.data, Address(buffer), batch, row_bytes, unit_bytes)
    span = Span(buffer, partition)
    return ComputeSet(
        f"infeed {buffer.index}",
        CodeletWork(infeed, parameters),
        units,
        [],
        [span],
    )


def outfeed_set(buffer: Buffer, block: np.ndarray) -> ComputeSet:
    """Copies a result to a step's slot of the array that a feed block points to."""
    parameters, units = encode_outfeed(block.ctypes.data, Address(buffer), buffer.shape.bytes)
    return ComputeSet(f"outfeed {buffer.name}", CodeletWork(outfeed, parameters), units, [Span(buffer)], [])
