"""Large float32 products as bf16x3 splits, where the host has matrix registers and splitting is faster."""

from __future__ import annotations

from dataclasses import replace

from engine.codelets.products.pack_bf16x3 import BLOCK, ELEMENTS, K_BLOCK, MOST_COLUMNS
from engine.machine_code.costs import costs
from engine.machine_code.processor import may_use_matrix_registers
from engine.program.program import ComputeSet, Program
from engine.program.rewriter import with_each
from engine.program.work.base import Work
from engine.program.work.contraction import Contraction

LEAST_MULTIPLY_ADDS = 1 << 23
"""Smaller products are not considered."""
LEAST_K = 64
"""Least k of a contraction: splitting an element costs several products."""
WORTH = 0.8
"""Share of the direct time below which splitting is worth it: times are estimates for an otherwise idle processor."""


def split_products(program: Program) -> Program:
    """Splits the products for which it is faster into bfloat16 values."""
    return with_each(program, lambda each: _split(each) if is_split(program, each.work) else each)


def is_split(program: Program | None, work: Work) -> bool:
    """Whether work, of a program that may detect exceptions, is a product for which splitting is faster."""
    # Exceptions must be detected in the operands' own products.
    if program is not None and program.exception_names:
        return False
    return isinstance(work, Contraction) and _pays(work) and may_use_matrix_registers()


def _split(product: ComputeSet) -> ComputeSet:
    assert isinstance(product.work, Contraction)
    return replace(product, work=replace(product.work, bf16x3=True))


def _pays(product: Contraction) -> bool:
    """Whether splitting both operands takes less time than it saves."""
    _, rows, columns, k = product.size
    size = rows * columns * k
    if not product.is_float32 or size < LEAST_MULTIPLY_ADDS or k < LEAST_K:
        return False
    height = min(rows, product.grid.rows)
    wasted = -(-height // BLOCK) * BLOCK / height * (-(-columns // BLOCK) * BLOCK / columns)
    gathers = product.run_a < k
    cost = costs()
    split_a = rows * k * _times_split(rows, columns, k) * (cost.split + cost.gather * gathers)
    split_b = 2 * columns * k * cost.split  # by each of two workers
    return size * wasted * cost.split_multiply_add + split_a + split_b < WORTH * size * cost.multiply_add


def _times_split(rows: int, columns: int, k: int) -> int:
    """The number of splits of a row: one for each block of columns, or one in all if a worker's half is kept."""
    block = min(k, K_BLOCK)
    limit = min(MOST_COLUMNS, ELEMENTS // block)
    kept = columns > 2 * limit and rows // 2 * block <= ELEMENTS
    return 1 if kept else -(-columns // limit)
