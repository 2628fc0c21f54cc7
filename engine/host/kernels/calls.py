"""Codelets and parameter blocks of calls of the host and of users' vertices, and of checks, which may end a step."""

from __future__ import annotations

import numpy as np

from engine.codelets.host.host_call import HostCallBlock, host_call
from engine.codelets.language.exceptions import ExceptionCheck, FloatArray, find_exceptions
from engine.codelets.language.record import block
from engine.codelets.language.vertex import VertexArray, VertexBlock, vertex_codelet
from engine.codelets.value_check import FINITE, FLOAT_RANGE, NONZERO, RANGE, ValueCheckBlock, check_values
from engine.host.encoded import Encoded
from engine.ir.floating_point import EXCEPTIONS, EXPONENTS, MANTISSAS
from engine.ir.shape import FLOATS, UNSIGNED
from engine.program.work.base import Array
from engine.program.work.exception_check import ExceptionCheckWork
from engine.program.work.host_call import HostCall
from engine.program.work.value_check import ValueCheckWork
from engine.program.work.vertex_call import VertexCallWork

KINDS = {"range": RANGE, "nonzero": NONZERO, "finite": FINITE}


def encoded_call(work: HostCall) -> Encoded:
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


def encoded_check(work: ValueCheckWork) -> Encoded:
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


def encoded_exception_check(work: ExceptionCheckWork) -> Encoded:
    """The header, then the operands."""
    parameters = ExceptionCheck(
        record=work.record,
        wanted=sum(1 << EXCEPTIONS.index(name) for name in work.wanted),
        inner=work.inner,
        extent=work.extent,
        grain=work.grain,
        operands=len(work.operands),
        result=_float_array(work.result),
    )
    return Encoded.of(find_exceptions, block(parameters, [_float_array(each) for each in work.operands]))


def _float_array(array: Array) -> FloatArray:
    kind = array.shape.element_type
    return FloatArray(
        address=array.address,
        elements=array.shape.elements,
        item_bytes=array.shape.dtype.itemsize,
        exponent=EXPONENTS[kind],
        mantissa=MANTISSAS[kind],
    )


def encoded_vertex(work: VertexCallWork) -> Encoded:
    """The header, then each array with its dimensions."""
    entries: list[VertexArray | int] = []
    for each in work.arrays:
        entries += [VertexArray(address=each.address, stride=each.stride), *each.dimensions]
    head = VertexBlock(rows=work.rows, grain=work.grain)
    return Encoded.of(vertex_codelet(work.name, work.code), block(head, entries))
