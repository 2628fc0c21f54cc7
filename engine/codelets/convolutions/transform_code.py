"""Machine code of linear transforms, which codelets call by the address in their parameters.

The codelets then do not depend on the tiles, and are compiled once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from engine.codelets.language import vector
from engine.codelets.language.build import GivenCode, path_of_library
from engine.codelets.language.memory import I64, VOID
from engine.codelets.language.switched import outlined
from engine.machine_code.llvm import ir
from engine.machine_code.objects import Compile
from engine.machine_code.processor import lanes

LANES = lanes()
VECTOR = 4 * LANES  # bytes of a vector of float32
Span = tuple[ir.Value, ir.Value]
"""Offsets among float32 numbers: of the first vector of features, and the end of the last."""
Write = Callable[..., None]
"""`write(builder, mask, span, *arguments)` writes a transform of whole vectors, or of the lanes of one in the mask."""


def transform_code(name: str, arguments: int, write: Write) -> GivenCode:
    """The code of a transform of `arguments` int64 arguments and a number of features, which is the last argument."""
    return GivenCode(path_of_library(name), prepare=partial(_prepared, arguments, write))


def _prepared(arguments: int, write: Write, symbol: str) -> Compile:
    from engine.machine_code.optimising import compile_text

    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(VOID, [I64] * (arguments + 1)), symbol)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    *given, features = function.args
    whole, rest = builder.sdiv(features, I64(LANES)), builder.srem(features, I64(LANES))
    for masked, first, count in ((False, I64(0), whole), (True, whole, rest)):
        with builder.if_then(builder.icmp_signed(">", count, I64(0))):
            outlined(builder, "masked" if masked else "whole", partial(_write, write, masked), (*given, first, count))
    builder.ret_void()
    return partial(compile_text, str(module))


def _write(write: Write, masked: bool, builder: ir.IRBuilder, *arguments: ir.Value) -> None:
    """Writes the transform of `count` vectors from vector `first` on, or of `count` lanes of that vector."""
    *given, first, count = arguments
    begin = builder.mul(first, I64(VECTOR))
    end = builder.add(begin, I64(VECTOR) if masked else builder.mul(count, I64(VECTOR)))
    write(builder, vector.lane_mask(builder, count) if masked else None, (begin, end), *given)
