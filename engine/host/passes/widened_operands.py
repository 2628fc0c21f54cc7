"""Copies of 16-bit floats for products, such as padded images and overlapping windows, stored as float32.

Products widen what they read. Copies that nothing else reads are widened where they are written, once for all units;
sums have the same terms and bits. For the host only: a chip's products read 16-bit floats.
"""

from __future__ import annotations

from dataclasses import replace

from engine.emit.arithmetic import FLOATS_16
from engine.machine_code.processor import lanes, masks_are_cheap, multiplies_bf16_pairs
from engine.program.nest import Apply, Input, Operation, Store
from engine.program.program import Address, Buffer, ComputeSet, Program
from engine.program.rewriter import ProgramRewriter
from engine.program.uses import BufferUses
from engine.program.work.contraction import Contraction
from engine.program.work.copy import Copy
from engine.program.work.fused_loop import FusedLoop, Strided
from engine.program.work.offsets import Offsets


def widen_operands(program: Program) -> Program:
    """Widens copies that only products read, if both operands of these products are such copies."""
    if program.exceptions is not None:
        return program
    rewriter = ProgramRewriter(program)
    products = {at for at, each in enumerate(program.compute_sets) if _reads_float32_in_place(each)}
    copies = _copies(rewriter, products)
    while products:
        left = {at for at in products if all(buffer in copies for buffer in _operands(rewriter.sets[at]))}
        if left == products:
            break
        products, copies = left, _copies(rewriter, left)
    wide = {each: Buffer(each.name, each.shape.with_type("f32"), permanent=True) for each in copies}
    for at in products | {at for buffer in copies if products for at in rewriter.uses.writers(buffer)}:
        rewriter.replace(at, _widened(rewriter.sets[at], wide))
    return rewriter.result() if products else program


def _reads_float32_in_place(compute_set: ComputeSet) -> bool:
    """Whether a product may read its operands as float32 without packing them."""
    work = compute_set.work
    if not isinstance(work, Contraction) or work.operand_type not in FLOATS_16 or compute_set.overwrites:
        return False
    if work.operand_type == "bf16" and multiplies_bf16_pairs():
        return False
    if work.rounds_b or work.depthwise or work.panels or any(each.moved is not None for each in work.addresses):
        return False
    steps = work.k_b.table[1:] - work.k_b.table[:-1]
    rows = work.stride_b == 2 and bool((steps == steps[:1]).all())
    return rows and (masks_are_cheap() or work.columns % lanes() == 0) and work.a.buffer is not work.b.buffer


def _operands(product: ComputeSet) -> tuple[Buffer, Buffer]:
    assert isinstance(product.work, Contraction)
    return product.work.a.buffer, product.work.b.buffer


def _copies(rewriter: ProgramRewriter, products: set[int]) -> set[Buffer]:
    """The operands that copies write, and only these products read."""
    operands = {buffer for at in products for buffer in _operands(rewriter.sets[at])}
    return {each for each in operands if _is_copy(rewriter.sets, rewriter.uses, each, products)}


def _is_copy(sets: list[ComputeSet], uses: BufferUses, buffer: Buffer, products: set[int]) -> bool:
    """Whether an array between constant zeros is written by copies alone."""
    if buffer.kind != "arena" or not buffer.permanent or buffer.carried or uses.escapes(buffer):
        return False
    if not products.issuperset(uses.readers(buffer)):
        return False
    return all(_copies_to(sets[at], buffer) for at in uses.writers(buffer))


def _copies_to(compute_set: ComputeSet, buffer: Buffer) -> bool:
    work = compute_set.work
    if type(work) is not Copy or compute_set.overwrites or work.record is not None or len(work.nest.nodes) != 1:
        return False
    if any(span.slot is not None for span in (*compute_set.reads, *compute_set.writes)):
        return False
    (store,), (loaded,) = work.nest.stores, work.nest.nodes
    target = work.operands[store.access]
    same = {access.element_type for access in work.nest.accesses} == {buffer.shape.element_type}
    at_rest = isinstance(target, Strided) and target.address.buffer is buffer and target.address.moved is None
    return same and at_rest and isinstance(loaded, Input) and len(work.operands) == 2


def _widened(compute_set: ComputeSet, wide: dict[Buffer, Buffer]) -> ComputeSet:
    """Makes a copy store float32, or a product read widened copies."""
    work = compute_set.work
    assert isinstance(work, Contraction | Copy)
    return replace(
        compute_set,
        work=_product(work, wide) if isinstance(work, Contraction) else _copy(work, wide),
        reads=[replace(span, buffer=wide.get(span.buffer, span.buffer)) for span in compute_set.reads],
        writes=[replace(span, buffer=wide.get(span.buffer, span.buffer)) for span in compute_set.writes],
    )


def _address(address: Address, wide: dict[Buffer, Buffer]) -> Address:
    return Address(wide[address.buffer], 2 * address.offset)


def _product(work: Contraction, wide: dict[Buffer, Buffer]) -> Contraction:
    tables = work.row_a, work.k_a, work.k_b, work.batch_a, work.batch_b
    row_a, k_a, k_b, batch_a, batch_b = (Offsets(2 * each.table) for each in tables)
    a, b = _address(work.a, wide), _address(work.b, wide)
    moved = replace(work, a=a, b=b, row_a=row_a, k_a=k_a, k_b=k_b, batch_a=batch_a, batch_b=batch_b)
    return replace(moved, stride_b=2 * work.stride_b, operand_type="f32", widened=True)


def _copy(work: Copy, wide: dict[Buffer, Buffer]) -> FusedLoop:
    (store,), (loaded,), nest = work.nest.stores, work.nest.nodes, work.nest
    accesses, operands = list(nest.accesses), list(work.operands)
    widens = Apply(Operation("convert", "f32", (accesses[store.access].element_type,)), (0,))
    accesses[store.access] = replace(accesses[store.access], element_type="f32")
    target = operands[store.access]
    assert isinstance(target, Strided)
    strides = tuple(2 * each for each in target.strides)
    operands[store.access] = Strided(_address(target.address, wide), strides, 2 * target.pitch)
    nodes, stores = (loaded, widens), (Store(1, store.access),)
    made = replace(nest, accesses=tuple(accesses), nodes=nodes, stores=stores)
    return FusedLoop(made, work.extents, work.grain, tuple(operands))
