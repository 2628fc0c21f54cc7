"""Codelets and parameter blocks of products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.codelets.language.record import block
from engine.codelets.language.scratch import ScratchSpace
from engine.codelets.products.contract_fields import contract_record
from engine.host.encoded import Encoded
from engine.machine_code.processor import multiplies_bf16_pairs, widens_beside_products
from engine.program.work.contraction import Contraction

if TYPE_CHECKING:
    from engine.codelets.language.build import Codelet


def encoded_product(work: Contraction) -> Encoded:
    """The block of `contract_fields`; batches have tables if there are several."""
    batches = work.batch_a, work.batch_b, work.batch_c
    batch_a, batch_b, batch_c = (each.table if len(each) > 1 else None for each in batches)
    record = contract_record(
        a=work.a,
        b=work.b,
        c=work.c,
        row_a=work.row_a.table,
        row_c=work.row_c.table,
        offset_a=work.k_a.table,
        offset_b=work.k_b.table,
        columns=work.columns,
        stride_b=work.stride_b,
        rows_per_unit=work.grid.rows,
        columns_per_unit=work.grid.columns,
        k_per_unit=work.grid.k,
        partial_pitch=work.partial_pitch,
        batch_a=batch_a,
        batch_b=batch_b,
        batch_c=batch_c,
        element_bytes=work.item_bytes,
        bytes_of_b=work.bytes_of_b,
        panels=work.panels,
        ahead=work.ahead,
        next_unit=work.next_unit,
    )
    codelet, scratch = _codelet(work)
    return Encoded.of(codelet, block(record), scratch)


def _codelet(work: Contraction) -> tuple[Codelet, ScratchSpace]:
    """The codelet and its scratch, imported here: their modules load the compiler and depend on the processor."""
    if work.bf16x3:
        from engine.codelets.products.contract_bf16x3 import contract_bf16x3, contract_bf16x3_scratch

        return contract_bf16x3, contract_bf16x3_scratch()
    if work.depthwise:
        from engine.codelets.convolutions.contract_depthwise import contract_depthwise

        return contract_depthwise(work.operand_type, work.result_type), ScratchSpace()
    if work.is_float32:
        from engine.codelets.products.contract_f32 import contract_f32, contract_scratch

        return contract_f32, contract_scratch()
    in_pairs = work.operand_type == "bf16" and work.has_pairs and multiplies_bf16_pairs()
    if work.widened or work.rounds_b or in_pairs:
        return _half_codelet(work)
    from engine.codelets.products.contract_plain import contract_for, contract_scratch_for

    types = work.operand_type, work.result_type
    return contract_for(*types), contract_scratch_for(*types)


def _half_codelet(work: Contraction) -> tuple[Codelet, ScratchSpace]:
    """Codelet and scratch of a 16-bit product.

    Its operands are widened already, or B is rounded while it is packed, or pairs are multiplied.
    """
    from engine.codelets.language.vector import F16_IN_F32
    from engine.codelets.products.contract_half import contract_half, contract_half_scratch

    types = work.operand_type, work.result_type
    if work.widened:
        codelet = contract_half(*types)
    elif work.rounds_b:
        codelet = contract_half(*types, beside=widens_beside_products(), right=F16_IN_F32)
    else:
        codelet = contract_half(*types, pairs=True)
    return codelet, contract_half_scratch()
