"""Codelets and parameter blocks of select-and-scatter."""

from __future__ import annotations

from engine.codelets.language.record import block
from engine.codelets.pooling.general_select_and_scatter import SCRATCH_BYTES as GENERAL_SCRATCH_BYTES
from engine.codelets.pooling.general_select_and_scatter import (
    GeneralSelectAndScatter,
    encode_general_select_and_scatter,
    general_select_and_scatter,
)
from engine.codelets.pooling.overlapping_pool_gradient import encode_overlapping_pools, overlapping_pool_gradient
from engine.codelets.pooling.pool_gradient import SCRATCH_BYTES as POOL_SCRATCH_BYTES
from engine.codelets.pooling.pool_gradient import encode_pool_gradient, pool_gradient
from engine.codelets.pooling.select_and_scatter import SCRATCH, encode_select_and_scatter, select_and_scatter
from engine.codelets.rows.scatter import combiner
from engine.host.encoded import Encoded
from engine.program.work.select_and_scatter import Scattering, SelectAndScatterWork


def encoded_select_and_scatter(work: SelectAndScatterWork) -> Encoded:
    """The codelet of a way of scattering, with its parameters and scratch."""
    operand, source = ((each.shape, each.address) for each in (work.operand, work.source))
    arguments = operand, source, work.initial, work.target, work.window
    kind, select, combine = operand[0].element_type, work.select, work.combine
    if not isinstance(select, str):
        parts, _ = encode_general_select_and_scatter(*arguments)
        combined = combiner(combine, kind) if isinstance(combine, str) else combine
        calls = (GeneralSelectAndScatter.CHOICE, select), (GeneralSelectAndScatter.COMBINER, combined)
        return Encoded.of(general_select_and_scatter, block(*parts), GENERAL_SCRATCH_BYTES, calls)
    if work.scattering is Scattering.APART:
        parts, _ = encode_pool_gradient(*arguments)
        return Encoded.of(pool_gradient(select, kind), block(*parts), POOL_SCRATCH_BYTES)
    if work.scattering is Scattering.GATHERED:
        parameters, _, scratch = encode_overlapping_pools(*arguments)
        columns = parameters.wide
        codelet = overlapping_pool_gradient(select, kind, columns.positions, columns.stride)
        return Encoded.of(codelet, block(parameters), scratch)
    parts, _ = encode_select_and_scatter(*arguments)
    return Encoded.of(select_and_scatter(select, source[0].element_type), block(*parts), SCRATCH)
