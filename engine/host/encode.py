"""Encoding of work: the codelet that computes it on this processor, and its parameter block, by the kind of work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.host.encoded import Encoded, HostWork, encode_codelet
from engine.host.kernels.calls import encode_call, encode_check
from engine.host.kernels.loops import encode_loop
from engine.host.kernels.products import encode_product
from engine.host.kernels.row_sums import encode_reduced_rows, encode_row_sums
from engine.program.work.base import Work
from engine.program.work.codelet_work import CodeletWork
from engine.program.work.contraction import Contraction
from engine.program.work.fused_loop import FusedLoop
from engine.program.work.host_call import HostCall
from engine.program.work.reduced_rows import ReducedRowsWork
from engine.program.work.row_sums import SummedRows
from engine.program.work.value_check import ValueCheckWork

ENCODERS: dict[type[Work], Callable[[Any], Encoded]] = {
    CodeletWork: encode_codelet,
    Contraction: encode_product,
    FusedLoop: encode_loop,
    HostCall: encode_call,
    ReducedRowsWork: encode_reduced_rows,
    SummedRows: encode_row_sums,
    ValueCheckWork: encode_check,
}
"""The encoders of a program's kinds of work; a derived kind has that of its base."""


def encode(work: Work) -> Encoded:
    """The codelet and a parameter block of its own, with zeros for addresses of buffers."""
    if isinstance(work, HostWork):
        return work.encode()
    return next(ENCODERS[kind] for kind in type(work).__mro__ if kind in ENCODERS)(work)
