"""Right operands packed once for all units of a chain, whose products have few rows each.

A gradient's slice that is forwarded to its optimizer has so few rows that its unit would not pack the right operand,
and would read rows that are far apart. For the host only.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.codelets.products.contract_fields import PACK_ROWS
from engine.codelets.products.pack_panels import PanelPacking
from engine.host.unit_chain import UnitChain
from engine.ir.shape import Shape
from engine.program.buffer import Address, Buffer
from engine.program.program import ComputeSet, Program, Span
from engine.program.rewriter import ProgramRewriter
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
    rewriter, changed = ProgramRewriter(program), False
    for at, each in enumerate(program.compute_sets):
        product = _first(each)
        if product is not None:
            packing, chain = _packed_before(each, product)
            rewriter.replace(at, packing)
            rewriter.insert_after(at, chain)
            changed = True
    return rewriter.result() if changed else program


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


def _packed_before(chain: ComputeSet, product: Contraction) -> tuple[ComputeSet, ComputeSet]:
    """Makes the compute set that packs, and the chain that reads the panels."""
    assert isinstance(chain.work, UnitChain)
    _, _, columns, k = product.size
    panels = Buffer(f"{chain.name}.panels", Shape("f32", (k, columns)))
    packing = PanelPacking(product.b, Address(panels), product.k_b, product.columns, product.stride_b)
    dense = Offsets(np.arange(k, dtype=np.int64) * 4 * columns)
    first = replace(chain.work.links[0], work=replace(product, b=Address(panels), k_b=dense, panels=True))
    reads = [Span(panels, None) if span.buffer is product.b.buffer else span for span in chain.reads]
    packs = ComputeSet(
        panels.name,
        packing,
        packing.unit_count,
        [Span(product.b.buffer, None)],
        [Span(panels, None)],
        op_name=chain.op_name,
    )
    return packs, replace(chain, work=replace(chain.work, links=(first, *chain.work.links[1:])), reads=reads)
