"""Encoding of work: the codelet that computes it on this processor, and its parameter block, by the kind of work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.codelets.factors.cholesky import encoded_cholesky
from engine.codelets.factors.factorization import encoded_factorization
from engine.codelets.factors.triangular_solve import encoded_solve
from engine.codelets.fourier.fourier import encoded_fourier
from engine.codelets.host.host_call import encoded_call
from engine.codelets.host.queues import encoded_leaf_copy, encoded_queue
from engine.codelets.interpolation import encoded_interpolation
from engine.codelets.language.encoded import Encoded, HostWork, encoded_loop
from engine.codelets.language.exceptions import encoded_exception_check
from engine.codelets.language.vertex import encoded_vertex
from engine.codelets.pooling.overlapping_pool_gradient import encoded_select_and_scatter
from engine.codelets.products.contract_plain import encoded_product
from engine.codelets.random import encoded_bits, encoded_draw, encoded_next_state
from engine.codelets.rows.dynamic_slice import encoded_slice
from engine.codelets.rows.first_of_equal import encoded_first_of_equal
from engine.codelets.rows.gather_rows import encoded_gather
from engine.codelets.rows.reduced_rows import encoded_reduced_rows
from engine.codelets.rows.row_sums import encoded_row_sort, encoded_row_sums
from engine.codelets.rows.scatter_rows import encoded_scatter
from engine.codelets.scan import encoded_scan
from engine.codelets.sort import encoded_sort
from engine.codelets.transpose import encoded_transpose
from engine.codelets.value_check import encoded_check
from engine.errors import InternalError
from engine.program.work.base import Work
from engine.program.work.contraction import Contraction
from engine.program.work.copy import TransposeWork
from engine.program.work.custom_calls import HostCall, ValueCheckWork, VertexCallWork
from engine.program.work.exception_check import ExceptionCheckWork
from engine.program.work.factors import CholeskyWork, FactorizationWork, SolveWork
from engine.program.work.fourier import FourierWork
from engine.program.work.fused_loop import FusedLoop
from engine.program.work.indexing import FirstOfEqualWork, GatherWork, ScatterWork, SliceWork
from engine.program.work.interpolation import InterpolationWork
from engine.program.work.queues import LeafCopyWork, QueueWork
from engine.program.work.random import DrawWork, NextStateWork, RandomBitsWork
from engine.program.work.row_sums import ReducedRowsWork, RowSort, SummedRows
from engine.program.work.select_and_scatter import SelectAndScatterWork
from engine.program.work.sorting import ScanWork, SortWork

ENCODERS: dict[type[Work], Callable[[Any], Encoded]] = {
    CholeskyWork: encoded_cholesky,
    Contraction: encoded_product,
    DrawWork: encoded_draw,
    ExceptionCheckWork: encoded_exception_check,
    FactorizationWork: encoded_factorization,
    FirstOfEqualWork: encoded_first_of_equal,
    FourierWork: encoded_fourier,
    FusedLoop: encoded_loop,
    GatherWork: encoded_gather,
    HostCall: encoded_call,
    InterpolationWork: encoded_interpolation,
    LeafCopyWork: encoded_leaf_copy,
    NextStateWork: encoded_next_state,
    QueueWork: encoded_queue,
    RandomBitsWork: encoded_bits,
    ReducedRowsWork: encoded_reduced_rows,
    RowSort: encoded_row_sort,
    ScanWork: encoded_scan,
    ScatterWork: encoded_scatter,
    SelectAndScatterWork: encoded_select_and_scatter,
    SliceWork: encoded_slice,
    SolveWork: encoded_solve,
    SortWork: encoded_sort,
    SummedRows: encoded_row_sums,
    TransposeWork: encoded_transpose,
    ValueCheckWork: encoded_check,
    VertexCallWork: encoded_vertex,
}
"""The encoders of a program's kinds of work; a derived kind has that of its base."""


def encode(work: Work) -> Encoded:
    """The codelet and a parameter block of its own, with zeros for addresses of buffers.

    Raises InternalError for a kind that has none, as a convolution before the host has selected its algorithm.
    """
    if isinstance(work, HostWork):
        return work.encode()
    encoder = next((ENCODERS[kind] for kind in type(work).__mro__ if kind in ENCODERS), None)
    if encoder is None:
        raise InternalError(f"Expected a kind of work with a codelet. Received: {work.kind}.")
    return encoder(work)
