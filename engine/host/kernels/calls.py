"""Codelets and parameter blocks of calls of the host, and of checks of values, which may end a step."""

from __future__ import annotations

import numpy as np

from engine.codelets.host.host_call import HostCallBlock, host_call
from engine.codelets.language.record import block
from engine.codelets.value_check import FINITE, FLOAT_RANGE, NONZERO, RANGE, ValueCheckBlock, check_values
from engine.host.encoded import Encoded
from engine.ir.floating_point import EXPONENTS
from engine.ir.shape import FLOATS, UNSIGNED
from engine.program.work.host_call import HostCall
from engine.program.work.value_check import ValueCheckWork

KINDS = {"range": RANGE, "nonzero": NONZERO, "finite": FINITE}


def encode_call(work: HostCall) -> Encoded:
    """The addresses of the function and of its arrays."""
    function = work.function
    head = HostCallBlock(
        call=work.call,
        function=function.address,
        data=function.data,
        status=function.status,
        operands=len(work.operands),
    )
    return Encoded.of(function.codelet or host_call, block(head, [*work.operands, *work.results]))


def encode_check(work: ValueCheckWork) -> Encoded:
    """The block of the array and its bounds."""
    kind = work.shape.element_type
    is_float_range = work.check.kind == "range" and kind in FLOATS
    parameters = ValueCheckBlock(
        call=work.call,
        record=work.record.words,
        operand=work.operand,
        elements=work.shape.elements,
        grain=work.grain,
        kind=FLOAT_RANGE if is_float_range else KINDS[work.check.kind],
        item_bytes=work.shape.dtype.itemsize,
        signed=int(kind not in UNSIGNED | {"pred"}),
        exponent=EXPONENTS.get(kind, 0),
        period=len(work.check.bounds),
        lows=np.array(work.check.lows, np.int64),
        bounds=np.array(work.check.bounds, np.int64),
    )
    return Encoded.of(check_values, block(parameters))
