"""Right operands packed once for all units of a chain, whose products have few rows each.

A gradient's slice that is forwarded to its optimizer has so few rows that its unit would not pack the right operand,
and would read rows that are far apart. For the host only.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.codelets.products.contract_fields import PACK_ROWS
from engine.codelets.products.pack_bf16x3 import parts_bytes
from engine.codelets.products.pack_panels import PanelPacking
from engine.host.unit_chain import UnitChain
from engine.ir.shape import Shape
from engine.program.buffer import Address, Buffer
from engine.program.program import ComputeSet, Program, Span
from engine.program.rewriter import ProgramRewriter
from engine.program.work.base import Work
from engine.program.work.contraction import Contraction
from engine.program.work.offsets import Offsets

FEWEST_UNITS = 8
"""Fewest units of a chain beside which packing takes little time."""
LEAST_PITCH = 1024
"""Bytes between rows of B from which few sets of the cache hold a panel: nearer ones are read as fast."""
PANEL = 64
"""Columns, a multiple of all panels' widths."""


def share_panels(program: Program) -> Program:
    """Packs the right operands of chained products before the chains."""
    rewriter = ProgramRewriter(program)
    for at, each in enumerate(program.compute_sets):
        product = _first(each)
        if product is not None:
            pack_before(rewriter, at, product)
    return rewriter.result()


def pack_before(rewriter: ProgramRewriter, at: int, product: Contraction) -> None:
    """Inserts a compute set that packs B of a product, which is the work of compute set `at`, or its first link."""
    reader, (_, _, columns, k) = rewriter.sets[at], product.size
    shape = Shape("s8", (parts_bytes(columns, k),)) if product.bf16x3 else Shape("f32", (k, columns))
    panels = Buffer(f"{reader.name}.panels", shape)
    packing = PanelPacking(product.b, Address(panels), product.k_b, columns, product.stride_b, product.bf16x3)
    spans = [Span(product.b.buffer, None)], [Span(panels, None)]
    packs = ComputeSet(panels.name, packing, packing.unit_count, *spans, op_name=reader.op_name)
    rewriter.replace(at, packs)
    rewriter.insert_after(at, _reading(reader, product, panels))


def _reading(reader: ComputeSet, product: Contraction, panels: Buffer) -> ComputeSet:
    """The compute set with a product that reads panels; one of splits computes what they cannot from B itself."""
    if product.bf16x3:
        work: Work = replace(product, parts_b=Address(panels))
        return replace(reader, work=work, reads=[*reader.reads, Span(panels, None)])
    _, _, columns, k = product.size
    dense = Offsets(np.arange(k, dtype=np.int64) * 4 * columns)
    work = replace(product, b=Address(panels), k_b=dense, stride_b=4, panels=True)
    if isinstance(reader.work, UnitChain):
        first, *others = reader.work.links
        work = replace(reader.work, links=(replace(first, work=work), *others))
    reads = [Span(panels, None) if span.buffer is product.b.buffer else span for span in reader.reads]
    return replace(reader, work=work, reads=reads)


def _first(chain: ComputeSet) -> Contraction | None:
    """The first product of a chain, if its right operand should be packed for all units."""
    if not isinstance(chain.work, UnitChain) or chain.units < FEWEST_UNITS or chain.one_worker or chain.claimed:
        return None
    product = chain.work.links[0].work
    if not isinstance(product, Contraction) or not product.is_float32:
        return None
    batches, _, columns, k = product.size
    if batches > 1 or product.splits > 1 or product.grid.rows >= PACK_ROWS or product.grid.columns < columns or k < 2:
        return None
    far = product.stride_b == 4 and int(product.k_b.table[1] - product.k_b.table[0]) >= LEAST_PITCH
    alone = product.b.moved is None and [s.buffer for s in chain.reads].count(product.b.buffer) == 1
    written = product.b.buffer in {s.buffer for s in chain.writes}
    return product if far and columns % PANEL == 0 and alone and not written else None
