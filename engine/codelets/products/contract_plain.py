"""The indexed contraction for element types other than float32, as plain loops."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from engine.codelets.host.rows import word
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.element import BYTES, NUMBA_NAMES, decode, load_element, storage_name, store_element
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.memory import load_i64, pointer
from engine.codelets.language.record import block
from engine.codelets.language.scratch import ScratchSpace
from engine.codelets.language.vector import HALF_TYPES
from engine.codelets.products.contract import Block, Operands, over_units
from engine.codelets.products.contract_f32 import contract_f32, contract_scratch
from engine.codelets.products.contract_fields import Field, contract_record
from engine.codelets.products.contract_half import contract_half, contract_half_scratch
from engine.machine_code.processor import multiplies_bf16_pairs, widens_beside_products
from engine.program.work.contraction import Contraction

if TYPE_CHECKING:
    from engine.codelets.language.build import Codelet


COLUMN_BLOCK = 256  # columns summed at a time, in scratch


def contract_plain_scratch() -> ScratchSpace:
    """The scratch that any codelet of this file needs."""
    return ScratchSpace(COLUMN_BLOCK * max(BYTES.values()))


def contract_for(element_type: str, result_type: str | None = None) -> Codelet:
    """The contraction codelet for an element type of A and B and one of C (by default the same).

    Sums are kept in result_type, or in float32 for f16 and bf16; integers wrap around. The codelet takes
    parameters from `contract_record` with `element_bytes` of the element type, and the scratch of
    `contract_scratch_for`. The columns of C are contiguous.
    """
    result_type = result_type or element_type
    if (element_type, result_type) == ("f32", "f32"):
        return contract_f32
    if element_type in HALF_TYPES and result_type in (element_type, "f32"):
        beside = element_type == "f16" and widens_beside_products()
        return contract_half(element_type, result_type, beside=beside)
    return _plain_codelet(element_type, result_type)


def contract_scratch_for(element_type: str, result_type: str | None = None) -> ScratchSpace:
    """The scratch that the codelet of `contract_for` of the same types needs."""
    if element_type == "f32" and result_type in (None, "f32"):
        return contract_scratch()
    if element_type in HALF_TYPES and result_type in (None, element_type, "f32"):
        return contract_half_scratch()
    return contract_plain_scratch()


@cache
def _plain_codelet(kind: str, result: str) -> Codelet:
    """Makes the codelet of these types. Its closure holds only text and numbers, whose repr makes the cache key."""
    storage = storage_name(kind)
    number = NUMBA_NAMES[result]
    element_bytes, result_bytes = BYTES[kind], BYTES[result]

    @inner
    def contract(at: Operands, block: Block) -> None:
        parameters, a, b, c, scratch = at
        row, rows, column, columns, k, k_count = block
        stride_b = word(parameters, Field.STRIDE_B)
        accumulate = word(parameters, Field.ACCUMULATE)
        sums = pointer(scratch, number)
        for m in range(row, row + rows):
            a_row = a + load_i64(word(parameters, Field.ROW_A) + 8 * m)
            c_row = c + load_i64(word(parameters, Field.ROW_C) + 8 * m)
            for n in range(column, column + columns, COLUMN_BLOCK):
                width = min(COLUMN_BLOCK, column + columns - n)
                for i in range(width):
                    sums[i] = 0
                for j in range(k, k + k_count):
                    offset_a = load_i64(word(parameters, Field.OFFSET_A) + 8 * j)
                    factor = load_element(a_row + offset_a, kind, result)
                    b_row = b + load_i64(word(parameters, Field.OFFSET_B) + 8 * j) + n * stride_b
                    if stride_b == element_bytes:
                        b_array = pointer(b_row, storage)
                        for i in range(width):
                            sums[i] += factor * decode(b_array[i], kind, result)
                    else:
                        for i in range(width):
                            sums[i] += factor * load_element(b_row + i * stride_b, kind, result)
                for i in range(width):
                    target = c_row + (n + i) * result_bytes
                    if accumulate != 0:
                        sums[i] += load_element(target, result, result)
                    store_element(target, result, sums[i])

    contract_units = over_units(contract)

    def contract_plain(parameters: int, lo: int, hi: int, scratch: int) -> None:
        contract_units(parameters, lo, hi, scratch)

    return Codelet(contract_plain, f"contract_{kind}_{result}")


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
