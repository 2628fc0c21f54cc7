"""The indexed contraction for element types other than float32, as plain loops."""

from __future__ import annotations

from functools import cache

from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.element import NUMBA_NAMES, decode, load_element, storage_name, store_element
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.lanes import F16_IN_F32, HALF_TYPES, ITEM_BYTES
from engine.codelets.language.memory import load_i64, pointer
from engine.codelets.language.record import block
from engine.codelets.language.scratch import ScratchSpace
from engine.codelets.products.contract import Block, Operands, over_units
from engine.codelets.products.contract_f32 import CONTRACT_SCRATCH, contract_f32
from engine.codelets.products.contract_fields import Field, contract_record
from engine.codelets.products.contract_half import HALF_SCRATCH, contract_half
from engine.machine_code.processor import multiplies_bf16_pairs, widens_beside_products
from engine.program.work.contraction import Contraction

COLUMN_BLOCK = 256  # columns summed at a time, in scratch


PLAIN_SCRATCH = ScratchSpace(COLUMN_BLOCK * max(ITEM_BYTES.values()))


def contract_for(element_type: str, result_type: str | None = None) -> tuple[Codelet, ScratchSpace]:
    """The contraction codelet for an element type of A and B and one of C (by default the same), and its scratch.

    Sums are kept in result_type, or in float32 for f16 and bf16; integers wrap around. The codelet takes the parameters
    of `contract_record`. The columns of C are contiguous.
    """
    result_type = result_type or element_type
    if (element_type, result_type) == ("f32", "f32"):
        return contract_f32, CONTRACT_SCRATCH
    if element_type in HALF_TYPES and result_type in (element_type, "f32"):
        beside = widens_beside_products()
        return contract_half(element_type, result_type, beside=beside), HALF_SCRATCH
    return _plain_codelet(element_type, result_type), PLAIN_SCRATCH


@cache
def _plain_codelet(kind: str, result: str) -> Codelet:
    """Makes the codelet of these types. Its closure holds only text and numbers, whose repr makes the cache key."""
    storage = storage_name(kind)
    number = NUMBA_NAMES[result]
    element_bytes, result_bytes = ITEM_BYTES[kind], ITEM_BYTES[result]

    @inner
    def contract(at: Operands, block: Block) -> None:
        row, rows, column, columns, k, k_count = block
        given, sums = Field.read(at.parameters), pointer(at.scratch, number)
        for m in range(row, row + rows):
            a_row, c_row = at.a + load_i64(given.row_a + 8 * m), at.c + load_i64(given.row_c + 8 * m)
            for n in range(column, column + columns, COLUMN_BLOCK):
                width = min(COLUMN_BLOCK, column + columns - n)
                for i in range(width):
                    sums[i] = 0
                for j in range(k, k + k_count):
                    factor = load_element(a_row + load_i64(given.offset_a + 8 * j), kind, result)
                    b_row = at.b + load_i64(given.offset_b + 8 * j) + n * given.stride_b
                    if given.stride_b == element_bytes:
                        b_array = pointer(b_row, storage)
                        for i in range(width):
                            sums[i] += factor * decode(b_array[i], kind, result)
                    else:
                        for i in range(width):
                            sums[i] += factor * load_element(b_row + i * given.stride_b, kind, result)
                for i in range(width):
                    store_element(c_row + (n + i) * result_bytes, result, sums[i])

    contract_units = over_units(contract)

    def contract_plain(parameters: int, lo: int, hi: int, scratch: int) -> None:
        contract_units(parameters, lo, hi, scratch)

    return Codelet(contract_plain, f"contract_{kind}_{result}")


def encoded_product(work: Contraction) -> Encoded:
    """The block of `contract_fields`."""
    codelet, scratch = _codelet(work)
    return Encoded.of(codelet, block(contract_record(work)), scratch)


def _codelet(work: Contraction) -> tuple[Codelet, ScratchSpace]:
    """The codelet and its scratch; modules that few programs need are imported here."""
    types = work.operand_type, work.result_type
    if work.bf16x3:
        from engine.codelets.products.contract_bf16x3 import BF16X3_SCRATCH, contract_bf16x3

        return contract_bf16x3, BF16X3_SCRATCH
    if work.depthwise:
        from engine.codelets.convolutions.contract_depthwise import contract_depthwise

        return contract_depthwise(*types), ScratchSpace()
    pairs = work.operand_type == "bf16" and work.has_pairs and multiplies_bf16_pairs()
    if work.rounds_b or pairs:
        beside, right = work.rounds_b and widens_beside_products(), F16_IN_F32 if work.rounds_b else None
        return contract_half(*types, pairs=pairs, beside=beside, right=right), HALF_SCRATCH
    return contract_for(*types)
