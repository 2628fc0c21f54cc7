"""Compute sets that copy feeds from arrays of the host before a step, and results to them after it."""

from __future__ import annotations

import numpy as np

from engine.codelets.host.rows import encode_infeed, encode_outfeed, infeed, outfeed
from engine.codelets.language.encoded import CodeletWork, Encoded
from engine.program.program import Address, Buffer, ComputeSet, Partition, Span


def infeed_set(buffer: Buffer, block: np.ndarray) -> ComputeSet:
    """A compute set that copies a step's rows from the array of a feed block to the buffer of a feed."""
    shape = buffer.shape
    batch = shape.dimensions[0] if shape.rank else 1
    row_elements = shape.elements // batch if batch else 0
    row_bytes = row_elements * shape.dtype.itemsize
    parameters, units = encode_infeed(block.ctypes.data, Address(buffer), batch, row_bytes)
    span = Span(buffer, Partition(max(row_elements, 1), max(batch, 1), 1))
    return ComputeSet(
        f"infeed {buffer.index}",
        CodeletWork(infeed, parameters),
        units,
        [],
        [span],
    )


def outfeed_set(buffer: Buffer, block: np.ndarray) -> ComputeSet:
    """A compute set that copies a result to a step's slot in the array of a feed block."""
    parameters, units = encode_outfeed(block.ctypes.data, Address(buffer), buffer.shape.bytes)
    return ComputeSet(f"outfeed {buffer.name}", CodeletWork(outfeed, parameters), units, [Span(buffer)], [])


def encoded_feeds(sets: list[ComputeSet]) -> list[Encoded]:
    """The encoded work of these compute sets."""
    return [each.work.encode() for each in sets if isinstance(each.work, CodeletWork)]
