"""Stores of the first lanes of a vector: as many elements as counted, and nothing beside them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from engine.machine_code import loading, processor
from engine.machine_code.first_lanes import LANES, store_first
from engine.machine_code.llvm import ir
from engine.machine_code.optimising import compile_text

pytestmark = pytest.mark.skipif(processor.lanes() != LANES, reason="the processor's vectors are not AVX2's")
TYPES = {"float32": ir.FloatType(), "float16": ir.HalfType(), **{f"int{n}": ir.IntType(n) for n in (8, 16, 32)}}


def compiled(element: ir.Type, name: str) -> Callable[[int, int, int], None]:
    """A function of the addresses of a vector and of a target, and a count."""
    module = ir.Module()
    word = ir.IntType(64)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [word] * 3), name)
    builder = ir.IRBuilder(function.append_basic_block())
    source, target, count = function.args
    kind = ir.VectorType(element, LANES)
    value = builder.load(builder.inttoptr(source, kind.as_pointer()), align=1)
    store_first(builder, value, target, builder.trunc(count, ir.IntType(32)))
    builder.ret_void()
    address = loading.link([compile_text(str(module))], [name])[name]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(address)


@pytest.mark.parametrize("kind", TYPES)
def test_as_many_lanes_as_counted(kind: str) -> None:
    store, random = compiled(TYPES[kind], f"store_first_{kind}"), np.random.default_rng(0)
    for count in range(-1, LANES + 1):
        for offset in range(3):
            value = random.integers(1, 100, LANES).astype(kind)
            target = random.integers(1, 100, 3 * LANES).astype(kind)
            expected = target.copy()
            expected[LANES + offset : LANES + offset + max(count, 0)] = value[: max(count, 0)]
            store(value.ctypes.data, target.ctypes.data + (LANES + offset) * target.itemsize, count)
            np.testing.assert_array_equal(target, expected)
