"""Loads and stores of the first lanes of a vector: as many elements as counted, and nothing beside them."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

import numpy as np
import pytest

from engine.machine_code import processor
from engine.machine_code.elf import link
from engine.machine_code.first_lanes import LANES, PAGE_BYTES, load_first, store_first
from engine.machine_code.llvm import ir
from engine.machine_code.optimising import compile_text

pytestmark = pytest.mark.skipif(processor.lanes() != LANES, reason="the processor's vectors are not AVX2's")
TYPES = {"float32": ir.FloatType(), "float16": ir.HalfType(), **{f"int{n}": ir.IntType(n) for n in (8, 16, 32)}}


def compiled(name: str, emit: Callable[..., None]) -> Callable[[int, int, int], None]:
    """A function of the addresses of a source and a target, and a count."""
    module = ir.Module()
    word = ir.IntType(64)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [word] * 3), name)
    builder = ir.IRBuilder(function.append_basic_block())
    source, target, count = function.args
    emit(builder, source, target, builder.trunc(count, ir.IntType(32)))
    builder.ret_void()
    address = link([compile_text(str(module))])[name]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(address)


def whole(builder: ir.IRBuilder, address: ir.Value, element: ir.Type) -> ir.Value:
    return builder.inttoptr(address, ir.VectorType(element, LANES).as_pointer())


def storing(element: ir.Type, name: str) -> Callable[[int, int, int], None]:
    def emit(builder: ir.IRBuilder, source: ir.Value, target: ir.Value, count: ir.Value) -> None:
        store_first(builder, builder.load(whole(builder, source, element), align=1), target, count)

    return compiled(f"store_first_{name}", emit)


def loading_of(element: ir.Type, name: str) -> Callable[[int, int, int], None]:
    def emit(builder: ir.IRBuilder, source: ir.Value, target: ir.Value, count: ir.Value) -> None:
        builder.store(load_first(builder, source, count, element), whole(builder, target, element), align=1)

    return compiled(f"load_first_{name}", emit)


@pytest.mark.parametrize("kind", TYPES)
def test_as_many_lanes_as_counted(kind: str) -> None:
    store, random = storing(TYPES[kind], kind), np.random.default_rng(0)
    for count in range(-1, LANES + 1):
        for offset in range(3):
            value = random.integers(1, 100, LANES).astype(kind)
            target = random.integers(1, 100, 3 * LANES).astype(kind)
            expected = target.copy()
            expected[LANES + offset : LANES + offset + max(count, 0)] = value[: max(count, 0)]
            store(value.ctypes.data, target.ctypes.data + (LANES + offset) * target.itemsize, count)
            np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("kind", ["int8", "int16", "float16"])
def test_no_page_is_read_that_has_no_lane(kind: str) -> None:
    """The elements lie at the end and at the start of pages whose neighbours cannot be read."""
    load = loading_of(TYPES[kind], kind)
    pages = mmap.mmap(-1, 3 * PAGE_BYTES)
    memory = np.frombuffer(pages, kind)
    begin, size = memory.ctypes.data, memory.itemsize
    memory[:] = np.random.default_rng(0).integers(1, 100, memory.size).astype(kind)
    readable = memory[PAGE_BYTES // size : 2 * PAGE_BYTES // size].copy()
    protect = ctypes.CDLL(None).mprotect
    for page in (0, 2):
        assert protect(ctypes.c_void_p(begin + page * PAGE_BYTES), ctypes.c_size_t(PAGE_BYTES), 0) == 0
    try:
        for count in range(-1, LANES + 1):
            for first in (0, 1, 100, readable.size - LANES - 1, readable.size - max(count, 0)):
                found = np.full(LANES, 7, kind)
                load(begin + PAGE_BYTES + first * size, found.ctypes.data, count)
                expected = np.zeros(LANES, kind)
                expected[: max(count, 0)] = readable[first : first + max(count, 0)]
                np.testing.assert_array_equal(found, expected)
    finally:
        protect(ctypes.c_void_p(begin), ctypes.c_size_t(3 * PAGE_BYTES), 3)
