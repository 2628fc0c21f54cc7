"""The processor's peaks: multiply-adds that stay in registers, and plain streams through memory."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from engine.codelets.language import vector
from engine.codelets.language.build import codelet
from engine.codelets.language.intrinsic import Float32, intrinsic
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I64, load_i64, store_f32
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.processor import lanes, registers
from engine.runtime.buffers import aligned_zeros

CHAINS = 24 if registers() == 32 else 12
"""Number of concurrent sums: enough to hide the latency of a multiply-add, few enough for the registers."""
ROUNDS = 4_000
CHUNK = 4_096
"""Number of elements of a unit of a stream."""
READS = 8
"""Vectors read in one iteration, each added to a sum of its own."""


@intrinsic
def multiply_adds(builder: ir.IRBuilder, seed: ir.Value, rounds: ir.Value) -> Float32:
    """Do CHAINS independent multiply-adds of vectors in each round."""
    seed = builder.uitofp(seed, ir.FloatType())
    start = vector.splat(builder, seed)
    starts = [vector.splat(builder, builder.fmul(seed, ir.FloatType()(each))) for each in range(CHAINS)]
    loop = EmittedLoop(builder, "round", I64(0), rounds, I64(1), starts)
    totals = [vector.multiply_add(builder, each, start, start) for each in loop.carried]
    loop.close(totals)
    total = totals[0]
    for each in totals[1:]:
        total = builder.fadd(total, each)
    return builder.extract_element(total, ir.IntType(32)(0))


@codelet
def peak(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Do ROUNDS rounds of multiply-adds for each unit."""
    for _ in range(lo, hi):
        store_f32(scratch + RESERVED_SCRATCH, multiply_adds(load_i64(parameters), ROUNDS))


@intrinsic
def scale_and_add(builder: ir.IRBuilder, source: ir.Value, target: ir.Value, count: ir.Value) -> None:
    """Compute target = 0.5 * target + source in whole vectors."""
    half = vector.splat(builder, ir.FloatType()(0.5))
    loop = EmittedLoop(builder, "vectors", I64(0), builder.shl(count, I64(2)), I64(16 * lanes()))
    for number in range(4):
        offset = builder.add(loop.at, I64(4 * lanes() * number))
        here = builder.add(target, offset)
        added = vector.load_vector(builder, builder.add(source, offset))
        kept = vector.load_vector(builder, here)
        vector.store_vector(builder, vector.multiply_add(builder, kept, half, added), here)
    loop.close()


@intrinsic
def sum_of(builder: ir.IRBuilder, source: ir.Value, count: ir.Value) -> Float32:
    """Add whole vectors; return the first lane of the sum."""
    step, end = 4 * lanes(), builder.shl(count, I64(2))
    loop = EmittedLoop(builder, "vectors", I64(0), end, I64(step * READS), [vector.zeros()] * READS)
    totals = []
    for number, held in enumerate(loop.carried):
        address = builder.add(source, builder.add(loop.at, I64(step * number)))
        totals.append(builder.fadd(held, vector.load_vector(builder, address)))
    loop.close(totals)
    total = totals[0]
    for each in totals[1:]:
        total = builder.fadd(total, each)
    return builder.extract_element(total, ir.IntType(32)(0))


@codelet
def read(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Reads CHUNK elements for each unit. Parameters: the address of x."""
    value = sum_of(load_i64(parameters) + 4 * CHUNK * lo, CHUNK * (hi - lo))
    store_f32(scratch + RESERVED_SCRATCH, value)


@codelet
def stream(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Compute y = 0.5 y + x, CHUNK elements for each unit. Parameters: addresses of x and y."""
    offset = 4 * CHUNK * lo
    scale_and_add(load_i64(parameters) + offset, load_i64(parameters + 8) + offset, CHUNK * (hi - lo))


def peak_multiply_adds() -> int:
    """The number of multiply-adds of one unit of `peak`."""
    return ROUNDS * CHAINS * lanes()


class Stream:
    """Two arrays that together have `floats` elements, and the parameters of `stream` for them."""

    def __init__(self, floats: int) -> None:
        self.units = floats // 2 // CHUNK
        self.memory = [aligned_zeros(4 * CHUNK * self.units) for _ in range(2)]
        for each in self.memory:
            each.view(np.float32)[:] = 1.0  # unwritten pages would all map to the zero page
        self.parameters = np.array([each.ctypes.data for each in self.memory], np.int64)
        self.bytes = 3 * 4 * CHUNK * self.units
