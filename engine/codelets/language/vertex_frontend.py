"""Compiles a Python function of arrays to the bitcode of a codelet, whose units call it with their slices.

The bitcode depends on no processor and no size, so a module can run where the source and Numba are missing. It begins
with an entry that makes arrays of the words of a VertexBlock, and has the function and all its callees, as Numba's
frontend writes them. A function that may raise an exception is refused: nothing on a tile could catch it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import errors, target_extension, types
from numba.core.compiler_lock import global_compiler_lock

from engine.codelets.language.frontend import NAME, FunctionCompiler, _contexts
from engine.codelets.language.lanes import I8, I32, I64
from engine.codelets.language.linking import foreign_symbols, linked
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.vertex import (
    ENTRY,
    NUMBA_TYPES,
    RAISES,
    VertexArgument,
    VertexArray,
    VertexBlock,
    optimised,
)
from engine.errors import VertexError
from engine.garbage import collector_paused
from engine.ir.shape import NUMPY_TYPES

POINTER = I8.as_pointer()
SUMS = re.compile(r"\b(fadd|fsub|fmul) contract\b")


def numba_type(argument: VertexArgument) -> Any:
    """The type of a slice: C-contiguous, and read-only for operands."""
    kind = getattr(types, NUMBA_TYPES[argument.element_type])
    return types.Array(kind, argument.rank, "C", readonly=not argument.writable)


def bitcode_of(
    function: Callable[..., None], arguments: Sequence[VertexArgument], reassociate: bool, title: str
) -> bytes:
    """Compiles a function of these arrays. With `reassociate` floating-point sums may be computed in any order.

    `title` names the vertex in messages. Raises VertexError for a function that Numba cannot compile, that returns
    something, that needs memory or Python while it runs, and for one that may raise an exception.
    """
    _load_numpy()
    try:
        with global_compiler_lock, target_extension.target_override(NAME), collector_paused():
            made = FunctionCompiler(function).compile(tuple(numba_type(each) for each in arguments), types.void)
    except errors.NumbaError as error:
        raise VertexError(
            f"Expected a function that Numba compiles for arrays {_described(arguments)}. Received: {title}, for "
            f"which Numba reports: {error}"
        ) from error
    texts = made.library.all_texts()
    if reassociate:
        texts = [SUMS.sub(r"\1 reassoc contract", text) for text in texts]
    bitcode = _linked([_entry(made.fndesc.llvm_func_name, arguments), *texts])
    _check(bitcode, title)
    return bitcode


@cache
def _load_numpy() -> None:
    """Lets functions call NumPy's functions of numbers; codelets of the engine use functions of `math`."""
    from numba.core.typing import npydecl

    _contexts()[0].install_registry(npydecl.registry)


def _linked(texts: Sequence[str]) -> bytes:
    """Links one module, in which all names but the entry's are numbers: equal functions give equal bitcode."""
    module = linked(texts, ENTRY)
    for number, each in enumerate((*module.functions, *module.global_variables)):
        if not each.is_declaration and each.name != ENTRY:
            each.name = f"inner.{number}"
    return bytes(module.as_bitcode())


def _check(bitcode: bytes, title: str) -> None:
    module = optimised(bitcode)
    if any(each.name == RAISES for each in module.functions):
        raise VertexError(
            f"Expected a vertex that raises no exception, as a tile has nothing to catch it. Received: {title}, which "
            f"may raise one: by raise or assert, or by assigning an array to a slice of another length. Write NaN or a "
            f"flag to an output, and assign element by element."
        )
    foreign = foreign_symbols(module)
    if foreign:
        raise VertexError(
            f"Expected a vertex that runs without Python. Received: {title}, which needs {', '.join(foreign)}. "
            f"Compute with numbers and the slices it gets; pass arrays of constants as inputs."
        )


def _described(arguments: Sequence[VertexArgument]) -> str:
    return "(" + ", ".join(f"{each.element_type}[{', '.join([':'] * each.rank)}]" for each in arguments) + ")"


def _entry(name: str, arguments: Sequence[VertexArgument]) -> str:
    """LLVM IR of the codelet: a loop over units that calls function `name` as Numba's functions are called."""
    module = ir.Module("vertex")
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * 4), ENTRY)
    parameters, lo, hi, _ = entry.args
    b = ir.IRBuilder(entry.append_basic_block("entry"))
    block = b.inttoptr(parameters, I64.as_pointer())
    result, exception = b.alloca(POINTER), b.alloca(POINTER)
    loop = EmittedLoop(b, "unit", lo, hi, I64(1), may_be_empty=True)

    def word(number: int) -> ir.Value:
        return b.load(b.gep(block, [I64(number)]))

    rows, grain = word(VertexBlock.ROWS), word(VertexBlock.GRAIN)
    rest = b.sub(rows, b.mul(loop.at, grain))
    count = b.select(b.icmp_signed("<", rest, grain), rest, grain)
    values: list[ir.Value] = [result, exception]
    first = VertexBlock.WORDS
    for each in arguments:
        dimensions = [word(first + VertexArray.WORDS + d) for d in range(each.rank)]
        if each.split == "split":
            dimensions[0] = count
        offset = b.mul(loop.at, word(first + VertexArray.STRIDE))
        address = b.inttoptr(b.add(word(first + VertexArray.ADDRESS), offset), POINTER)
        values += _array(b, address, dimensions, NUMPY_TYPES[each.element_type].itemsize, each.split == "reduction")
        first += VertexArray.WORDS + each.rank
    callee = ir.Function(module, ir.FunctionType(I32, [value.type for value in values]), name)
    for number, value in enumerate(values):
        if value.type == POINTER and number > 1:
            callee.args[number].add_attribute("noalias")
    with b.if_then(b.icmp_signed("!=", b.call(callee, values), I32(0))):
        b.call(ir.Function(module, ir.FunctionType(ir.VoidType(), []), RAISES), [])
    loop.close()
    b.ret_void()
    return str(module)


def _array(
    b: ir.IRBuilder, address: ir.Value, dimensions: Sequence[ir.Value], item: int, is_sum: bool
) -> list[ir.Value]:
    """The arguments by which Numba passes an array: owner, parent, elements, bytes of one, data, shape, strides.

    An array that becomes a term of a sum is filled with zeros.
    """
    strides: list[ir.Value] = []
    size = I64(item)
    for dimension in reversed(dimensions):
        strides.insert(0, size)
        size = b.mul(size, dimension)
    if is_sum:
        fill = b.module.declare_intrinsic("llvm.memset", [POINTER, I64])
        b.call(fill, [address, I8(0), size, ir.IntType(1)(0)])
    none = ir.Constant(POINTER, None)
    return [none, none, b.udiv(size, I64(item)), I64(item), address, *dimensions, *strides]
