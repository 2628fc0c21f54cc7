"""Encoding of work: the codelet that computes it on this processor, and its parameter block, by the kind of work."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from engine.codelets.language.encoded import Encoded, HostWork, encoded_loop
from engine.codelets.products.contract_plain import encoded_product
from engine.errors import InternalError
from engine.frozen import frozen
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
from engine.program.work.select_and_scatter import SelectAndScatterWork
from engine.program.work.sorting import ScanWork, SortWork

Encoder = Callable[[Any], Encoded]


@frozen
class Late:
    """An encoder in a module of engine.codelets, which is imported for the first work of its kind."""

    module: str
    name: str

    def find(self) -> Encoder:
        found: Encoder = getattr(import_module(f"engine.codelets.{self.module}"), self.name)
        return found

    def __call__(self, work: Any) -> Encoded:
        return self.find()(work)


ENCODERS: dict[type[Work], Encoder] = {
    CholeskyWork: Late("factors.cholesky", "encoded_cholesky"),
    Contraction: encoded_product,
    DrawWork: Late("random", "encoded_draw"),
    ExceptionCheckWork: Late("language.exceptions", "encoded_exception_check"),
    FactorizationWork: Late("factors.factorization", "encoded_factorization"),
    FirstOfEqualWork: Late("rows.first_of_equal", "encoded_first_of_equal"),
    FourierWork: Late("fourier.fourier", "encoded_fourier"),
    FusedLoop: encoded_loop,
    GatherWork: Late("rows.gather_rows", "encoded_gather"),
    HostCall: Late("host.host_call", "encoded_call"),
    InterpolationWork: Late("interpolation", "encoded_interpolation"),
    LeafCopyWork: Late("host.queues", "encoded_leaf_copy"),
    NextStateWork: Late("random", "encoded_next_state"),
    QueueWork: Late("host.queues", "encoded_queue"),
    RandomBitsWork: Late("random", "encoded_bits"),
    ScanWork: Late("scan", "encoded_scan"),
    ScatterWork: Late("rows.scatter_rows", "encoded_scatter"),
    SelectAndScatterWork: Late("pooling.overlapping_pool_gradient", "encoded_select_and_scatter"),
    SliceWork: Late("rows.dynamic_slice", "encoded_slice"),
    SolveWork: Late("factors.triangular_solve", "encoded_solve"),
    SortWork: Late("sort", "encoded_sort"),
    TransposeWork: Late("transpose", "encoded_transpose"),
    ValueCheckWork: Late("value_check", "encoded_check"),
    VertexCallWork: Late("language.vertex", "encoded_vertex"),
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
