"""Microseconds of a call of C, NumPy or TensorFlow on the host in a device's loop, and of TensorFlow's own calls."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.compile import compile_module
from engine.host_functions import CFunction
from engine.ir import Instruction, Shape
from engine.ir.builder import Builder
from engine.runtime.buffers import DeviceBuffer
from ipu import loops
from ipu.ipu_strategy import IPUStrategy

ITERATIONS, SIZE = 2000, 16
CALLS: dict[str, Callable[[tf.Tensor], Any]] = {
    "numpy_function": lambda x: tf.numpy_function(lambda v: v, [x], tf.float32),
    "py_function": lambda x: tf.py_function(lambda v: v, [x], tf.float32),
}


def microseconds(run: Callable[[], object], benchmark: Any) -> None:
    run()
    taken: list[float] = []

    def timed() -> None:
        start = time.perf_counter()
        run()
        taken.append((time.perf_counter() - start) / ITERATIONS * 1e6)

    benchmark.pedantic(timed, rounds=5)
    benchmark.extra_info["us per call"] = round(float(np.median(taken)), 1)
    print(benchmark.extra_info)


def test_c_function(benchmark: Any) -> None:
    """Calls the C library's sched_yield(), which takes no argument and returns 0."""
    library = ctypes.CDLL(None)
    function = CFunction("sched_yield", ctypes.cast(library.sched_yield, ctypes.c_void_p).value or 0, keep=library)
    b, token = Builder(), Shape("s32")
    state = [b.constant(0, "s32"), b.parameter("f32", (SIZE,)), b.parameter_of(token)]
    initial = b.tuple(*state)
    inner, test = Builder("body"), Builder("condition")
    count, x, order = (inner.get_tuple_element(p, k) for p in [inner.parameter_of(initial.shape)] for k in range(3))
    call = inner.host_function(function, [x], [x.array_shape], order)
    following = [inner.add(count, inner.constant(1, "s32")), *_elements(inner, call)]
    tested = test.get_tuple_element(test.parameter_of(initial.shape), 0)
    condition = test.build(test.compare(tested, test.constant(ITERATIONS, "s32"), "LT"))
    loop = b.instruction("while", initial.shape, (initial,), (inner.build(inner.tuple(*following)), condition))
    module = b.module(b.tuple(b.get_tuple_element(loop, 1), b.get_tuple_element(loop, 2)), {0: 0, 1: 1})
    executable = compile_module(module, ["variable", "variable"], {})
    variables = [DeviceBuffer(Shape("f32", (SIZE,))), DeviceBuffer(token)]
    microseconds(lambda: executable.run(1, [], variables), benchmark)


def _elements(b: Builder, call: Instruction) -> list[Instruction]:
    return [b.get_tuple_element(call, k) for k in range(2)]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("where", ["ipu", "tensorflow"])
def test_python(name: str, where: str, benchmark: Any) -> None:
    def iteration(x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(CALLS[name](x), [SIZE]) + 1.0

    x = tf.zeros([SIZE])
    if where == "ipu":
        strategy = IPUStrategy()
        repeated = tf.function(lambda x: loops.repeat(ITERATIONS, iteration, [x]), jit_compile=True)
        microseconds(lambda: strategy.run(repeated, (x,)), benchmark)
        return
    looped = tf.function(
        lambda x: tf.while_loop(lambda k, _: k < ITERATIONS, lambda k, x: (k + 1, iteration(x)), (0, x))
    )
    microseconds(lambda: looped(x), benchmark)
