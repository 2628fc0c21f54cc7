"""The codelet and parameters of each gradient of max pooling."""

from __future__ import annotations

from engine.codelets.language.encoded import Encoded
from engine.codelets.pooling.overlapping_pool_gradient import encoded_overlapping_pools
from engine.codelets.pooling.pool_gradient import encoded_pool_gradient
from engine.ir.pooling import is_apart
from engine.program.work.select_and_scatter import SelectAndScatterWork


def encoded_select_and_scatter(work: SelectAndScatterWork) -> Encoded:
    """The codelet for windows that are apart, or that overlap, with its parameters and scratch."""
    return (encoded_pool_gradient if is_apart(work.source.shape, work.window) else encoded_overlapping_pools)(work)
