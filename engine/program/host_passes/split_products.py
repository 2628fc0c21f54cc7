"""Large float32 products as the host runs them: in bfloat16 pieces, where there are matrix registers and it pays."""

from __future__ import annotations

from dataclasses import replace

from engine.codelets.contract_fields import Field
from engine.codelets.piece_sizes import BLOCK, ELEMENTS, K_BLOCK, MOST_COLUMNS
from engine.machine_code.processor import may_use_matrix_registers
from engine.program.products import is_float32_product
from engine.program.program import ComputeSet, Program
from engine.program.work.words import Words

LEAST_MULTIPLY_ADDS = 1 << 23
"""Smaller products are not worth a look."""
LEAST_K = 64
# nanoseconds, of one worker
MULTIPLY_ADD = 1 / 77
IN_PIECES = 1 / 172
SPLIT = 0.28
GATHER = 0.4
WORTH = 0.8
"""What must be left of the time."""


def split_products(program: Program) -> Program:
    """Splits the products for which it pays into bfloat16 pieces."""
    if program.exceptions is not None:  # which must be found in the operands' own products
        return program
    chosen = [each for each in program.compute_sets if is_float32_product(each) and _pays(each)]
    if not chosen or not may_use_matrix_registers():
        return program
    from engine.codelets.contract_pieces import contract_pieces, contract_pieces_scratch_bytes

    bytes_ = contract_pieces_scratch_bytes()
    made = {
        id(each): replace(each, work=replace(each.work, codelet=contract_pieces, scratch_bytes=bytes_))
        for each in chosen
        if isinstance(each.work, Words)
    }
    return replace(program, compute_sets=[made.get(id(each), each) for each in program.compute_sets])


def _pays(product: ComputeSet) -> bool:
    """Whether splitting both operands takes less than what is saved afterwards."""
    assert isinstance(product.work, Words)
    words = product.work.words
    rows, columns, k = (words[each] for each in (Field.ROWS, Field.COLUMNS, Field.K))
    size = rows * columns * k
    if size < LEAST_MULTIPLY_ADDS or k < LEAST_K:
        return False
    height = min(rows, words[Field.ROWS_PER_UNIT])
    wasted = -(-height // BLOCK) * BLOCK / height * (-(-columns // BLOCK) * BLOCK / columns)
    gathers = words[Field.RUN_A] < k
    split_a = rows * k * _times_split(rows, columns, k) * (SPLIT + GATHER * gathers)
    split_b = 2 * columns * k * SPLIT  # by either worker
    return size * wasted * IN_PIECES + split_a + split_b < WORTH * size * MULTIPLY_ADD


def _times_split(rows: int, columns: int, k: int) -> int:
    """How often rows are split: for each block of columns, but once where half of them, a worker's, are kept."""
    block = min(k, K_BLOCK)
    limit = min(MOST_COLUMNS, ELEMENTS // block)
    kept = columns > 2 * limit and rows // 2 * block <= ELEMENTS
    return 1 if kept else -(-columns // limit)
