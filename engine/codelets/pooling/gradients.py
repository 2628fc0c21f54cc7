"""The codelet and parameters of each gradient of max pooling."""

from __future__ import annotations

from engine.codelets.language.encoded import Encoded
from engine.codelets.language.record import block
from engine.codelets.pooling.overlapping_pool_gradient import encode_overlapping_pools, overlapping_pool_gradient
from engine.codelets.pooling.pool_gradient import encode_pool_gradient, pool_gradient
from engine.ir.pooling import is_apart
from engine.program.work.select_and_scatter import SelectAndScatterWork


def encoded_select_and_scatter(work: SelectAndScatterWork) -> Encoded:
    """The codelet for windows that are apart, or that overlap, with its parameters and scratch."""
    operand, source = ((each.shape, each.address) for each in (work.operand, work.source))
    arguments, kind = (operand, source, work.initial, work.target, work.window), work.operand.shape.element_type
    if is_apart(source[0], work.window):
        apart, _ = encode_pool_gradient(*arguments)
        return Encoded.of(pool_gradient(work.select, kind), block(apart))
    overlapping, _, scratch = encode_overlapping_pools(*arguments)
    wide = overlapping.wide
    codelet = overlapping_pool_gradient(work.select, kind, wide.positions, wide.stride)
    return Encoded.of(codelet, block(overlapping), scratch)
