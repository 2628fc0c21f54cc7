"""Depthwise convolutions and their gradients: contractions of one column, with neighbouring batches in the lanes.

C[row_c[m] + size * g] = sum over k of A[row_a[m] + offset_a[k] + size * g] * B[offset_b[k] + size * g], g < batches
"""

from __future__ import annotations

from functools import cache, partial

from engine.codelets.language import vector
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I64, loaded_i64, places
from engine.codelets.language.record import word
from engine.codelets.language.switched import switched
from engine.codelets.products.contract_fields import Field
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

LANES = lanes()
MOST_ROWS = 9
"""Rows whose sums are in registers at a time: the taps of a 3 x 3 window, whose gradients have as many rows."""
WHOLE = 16  # added to the number of a kernel without a mask
K_BLOCK = 512
"""Longest k summed in registers where C is float32; the sums of blocks are added in C."""


@cache
def contract_depthwise(element_type: str, result_type: str) -> Codelet:
    """The codelet for A and B of f32, f16 or bf16, and C of the same type or f32.

    Units are blocks of rows, and splits of k, of all batches.
    """
    cases = [rows + whole for rows in range(1, MOST_ROWS + 1) for whole in (WHOLE, 0)]
    multiply_rows = switched("depthwise", cases, partial(_write_kernel, element_type, result_type))
    size, result_size = vector.BYTES[element_type], vector.BYTES[result_type]
    adds_blocks = result_type == "f32"

    @inner
    def contract_rows(parameters: int, row: int, end: int, k: int, k_end: int, c: int) -> None:
        batches = word(parameters, Field.BATCHES)
        step = K_BLOCK if adds_blocks else k_end - k
        for first in range(k, k_end, step):
            count, adds = min(step, k_end - first), 1 if first > k else 0
            offset_a = word(parameters, Field.OFFSET_A) + 8 * first
            offset_b = word(parameters, Field.OFFSET_B) + 8 * first
            for m in range(row, end, MOST_ROWS):
                rows = min(MOST_ROWS, end - m)
                row_a, row_c = word(parameters, Field.ROW_A) + 8 * m, word(parameters, Field.ROW_C) + 8 * m
                for g in range(0, batches, LANES):
                    a, b = word(parameters, Field.A) + size * g, word(parameters, Field.B) + size * g
                    case, to, some = rows + WHOLE if g + LANES <= batches else rows, c + result_size * g, batches - g
                    multiply_rows(case, a, row_a, offset_a, b, offset_b, to, row_c, count, adds, some)

    def contract(parameters: int, lo: int, hi: int, scratch: int) -> None:
        row_blocks, rows_per_unit = word(parameters, Field.ROW_BLOCKS), word(parameters, Field.ROWS_PER_UNIT)
        for unit in range(lo, hi):
            row, split = unit % row_blocks * rows_per_unit, unit // row_blocks
            end = min(row + rows_per_unit, word(parameters, Field.ROWS))
            k = split * word(parameters, Field.K_PER_UNIT)
            k_end = min(k + word(parameters, Field.K_PER_UNIT), word(parameters, Field.K))
            c = word(parameters, Field.C) + split * word(parameters, Field.PARTIAL_PITCH)
            contract_rows(parameters, row, end, k, k_end, c)

    return Codelet(contract, f"contract_depthwise_{element_type}_{result_type}", in_vectors=True)


def _write_kernel(
    element_type: str, result_type: str, builder: ir.IRBuilder, case: int, arguments: tuple[ir.Value, ...]
) -> None:
    """Writes the kernel for some rows and one vector of batches, of which `batches` count; of all in WHOLE cases."""
    rows = case % WHOLE
    a, row_a, offset_a, b, offset_b, c, row_c, k, adds, batches = arguments
    mask = vector.lane_mask(builder, batches) if case < WHOLE else None

    sources = places(builder, a, row_a, rows)
    loop = EmittedLoop(builder, "k", I64(0), k, I64(1), [vector.zeros()] * rows)
    at = builder.shl(loop.at, I64(3))
    from_a, from_b = (loaded_i64(builder, builder.add(table, at)) for table in (offset_a, offset_b))
    factor = vector.load_vector(builder, builder.add(b, from_b), mask, element_type)
    totals = []
    for source, held in zip(sources, loop.carried, strict=True):
        value = vector.load_vector(builder, builder.add(source, from_a), mask, element_type)
        totals.append(vector.multiply_add(builder, value, factor, held))
    loop.close(totals)
    targets = places(builder, c, row_c, rows)
    with builder.if_else(builder.icmp_signed("!=", adds, I64(0))) as (add, replace):
        with add:
            for target, total in zip(targets, totals, strict=True):
                held = vector.load_vector(builder, target, mask, result_type)
                vector.store_vector(builder, builder.fadd(held, total), target, mask, result_type)
        with replace:
            for target, total in zip(targets, totals, strict=True):
                vector.store_vector(builder, total, target, mask, result_type)
