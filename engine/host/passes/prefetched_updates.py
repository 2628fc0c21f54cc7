"""A pass for chains of a product and an optimizer's update: the product prefetches the optimizer's arrays.

A large layer's weights and moments come from main memory, which a product hardly uses. For the host only.
"""

from __future__ import annotations

from dataclasses import replace

from engine.codelets.products.contract_fields import MOST_AHEAD
from engine.host.unit_chain import UnitChain
from engine.machine_code.costs import costs
from engine.program.program import Address, ComputeSet, Partition, Program, Span
from engine.program.rewriter import with_each
from engine.program.work.contraction import Contraction
from engine.program.work.fused_loop import FusedLoop

LEAST_SHARE = 2
"""Prefetch arrays of this many times a worker's cache or more. Smaller ones are still cached from the last step."""


def prefetch_updates(program: Program) -> Program:
    """Names the arrays that the products of chains prefetch; results are the same."""
    return with_each(program, _prefetching)


def _prefetching(chain: ComputeSet) -> ComputeSet:
    """Lets a chain of a product and an update prefetch arrays if they are large; returns other chains as they are."""
    work = chain.work
    if not isinstance(work, UnitChain) or [type(link.work) for link in work.links] != [Contraction, FusedLoop]:
        return chain
    product = work.links[0].work
    assert isinstance(product, Contraction)
    batches, rows, columns, _ = product.size
    if batches > 1 or not product.is_float32 or product.splits > 1 or product.grid.columns < columns:
        return chain
    slices = Partition(columns, rows, product.grid.rows)
    found = [span for span in chain.reads if span.partition == slices and _is_whole(span, rows * columns)]
    if not found or sum(span.buffer.shape.bytes for span in found) < LEAST_SHARE * costs().cache_bytes:
        return chain
    ahead = tuple(Address(span.buffer) for span in found[:MOST_AHEAD])
    first = replace(work.links[0], work=replace(product, ahead=ahead))
    return replace(chain, work=replace(work, links=(first, *work.links[1:])))


def _is_whole(span: Span, elements: int) -> bool:
    return span.slot is None and span.buffer.shape.element_type == "f32" and span.buffer.shape.elements == elements
