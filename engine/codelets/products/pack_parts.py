"""Packs a right operand by the bf16x3 split, once for contractions in all steps and in all units."""

from __future__ import annotations

from engine.codelets.language.build import codelet
from engine.codelets.language.record import word
from engine.codelets.products.contract import Operands
from engine.codelets.products.contract_bf16x3 import k_in_block, split_columns
from engine.codelets.products.contract_fields import Panels
from engine.codelets.products.pack_bf16x3 import BLOCK_BYTES, BLOCK_K, GROUP, group_pitch
from engine.machine_code.abi import RESERVED_SCRATCH


@codelet
def pack_parts(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Packs groups lo <= n < hi of columns as `contract_bf16x3` packs them for each of its blocks of k."""
    columns, k = word(parameters, Panels.COLUMNS), word(parameters, Panels.K)
    at = Operands(parameters, 0, word(parameters, Panels.B), 0, scratch + RESERVED_SCRATCH)
    step = k_in_block(k)
    for n in range(lo, hi):
        packed, width = word(parameters, Panels.PANELS) + group_pitch(k) * n, min(GROUP, columns - GROUP * n)
        for first in range(0, k, step):
            split_columns(at, GROUP * n, width, first, min(step, k - first), packed + first // BLOCK_K * BLOCK_BYTES)
