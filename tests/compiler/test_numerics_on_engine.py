"""Linear algebra, Fourier transforms, complex numbers, scatters, bits: the engine against XLA, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.compile import build_program
from engine.errors import UnsupportedOperation
from engine.runtime.executable import Executable
from tests.compiler.hlo_cases import Case, normal, unary
from tests.compiler.test_hlo import imported
from tests.engine.running import assert_near, buffers

linalg, signal, math = tf.linalg, tf.signal, tf.math


def gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function's value and the gradients of its squared magnitude."""

    def both(*arguments: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            value = function(*arguments)
            loss = tf.reduce_sum(tf.abs(value) ** 2)
        return [value, *tape.gradient(loss, arguments)]

    return both


def pairs(*dimensions: int, dtype: Any = np.complex64) -> np.ndarray:
    return (normal(*dimensions) + 1j * normal(*dimensions)).astype(dtype)


def positive_definite(*dimensions: int, dtype: Any = np.float32) -> np.ndarray:
    a = normal(*dimensions, dtype=np.float64)
    return (a @ np.swapaxes(a, -1, -2) / dimensions[-1] + np.eye(dimensions[-1])).astype(dtype)


def indefinite(*dimensions: int) -> np.ndarray:
    a = positive_definite(*dimensions)
    a[1] *= -1
    return a


def solve(lower: bool, adjoint: bool) -> Callable[..., Any]:
    return gradients(lambda a, b: linalg.triangular_solve(a, b, lower=lower, adjoint=adjoint))


def scatters(*functions: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, places, updates: [function(x, places, updates) for function in functions]


def bitcast(target: tf.DType) -> Callable[..., Any]:
    return lambda x: tf.bitcast(x, target)


def iterate(x: tf.Tensor) -> Any:
    return tf.while_loop(lambda k, _: k < 5, lambda k, z: (k + 1, z * z / 2 + x), (0, x))


SYSTEM = (normal(2, 9, 9) / 9 + 2 * np.eye(9, dtype=np.float32), normal(2, 9, 4))
PLACES = np.array([[1], [3], [1], [7]], np.int32)
add, subtract, put = tf.tensor_scatter_nd_add, tf.tensor_scatter_nd_sub, tf.tensor_scatter_nd_update
largest, least = tf.tensor_scatter_nd_max, tf.tensor_scatter_nd_min

CASES = [
    Case("cholesky", gradients(linalg.cholesky), (positive_definite(3, 11, 11),)),
    Case("cholesky f64", linalg.cholesky, (positive_definite(40, 40, dtype=np.float64),), 1e-14),
    Case("cholesky of an indefinite matrix", linalg.cholesky, (indefinite(2, 4, 4),)),
    Case("log determinant", gradients(linalg.logdet), (positive_definite(6, 6),)),
    Case(
        "system of equations",
        lambda a, b: linalg.cholesky_solve(linalg.cholesky(a), b),
        (positive_definite(7, 7), normal(7, 2)),
    ),
    *(
        Case(f"triangular solve {lower} {adjoint}", solve(lower, adjoint), SYSTEM)
        for lower in (True, False)
        for adjoint in (True, False)
    ),
    *(Case(f"fft {n}", unary(signal.fft, signal.ifft), (pairs(3, n),)) for n in (8, 15, 97, 134)),
    *(Case(f"rfft {n}", gradients(signal.rfft), (normal(3, n),)) for n in (8, 15, 97)),
    *(Case(f"irfft {n}", signal.irfft, (pairs(3, n),)) for n in (2, 5, 49)),
    Case("fft c128", signal.fft, (pairs(3, 12, dtype=np.complex128),), 1e-14),
    Case("fft of a given length", lambda x: signal.rfft(x, [20]), (normal(3, 14),)),
    Case("fft over two dimensions", gradients(signal.fft2d), (pairs(2, 6, 10),)),
    Case("fft over three dimensions", unary(signal.fft3d, signal.ifft3d), (pairs(2, 4, 6, 5),)),
    Case("rfft over more dimensions", unary(signal.rfft2d, signal.rfft3d), (normal(4, 6, 9),)),
    Case("irfft over more dimensions", unary(signal.irfft2d, signal.irfft3d), (pairs(4, 6, 5),)),
    Case("stft", gradients(lambda x: signal.stft(x, 64, 16)), (normal(2, 400),)),
    Case("inverse stft", lambda x: signal.inverse_stft(x, 64, 16), (pairs(2, 12, 33),)),
    Case("cosine transform", signal.dct, (normal(3, 10),)),
    *(
        Case(f"scatters {dtype}", scatters(add, subtract, put, largest, least), (values, PLACES, updates))
        for dtype in ("f", "e", "i", "B", "d")
        for values, updates in (((normal(8, 3) ** 2 * 9).astype(dtype), (normal(4, 3) ** 2 * 9).astype(dtype)),)
    ),
    Case("complex scatters", scatters(add, subtract, put), (pairs(8, 3), PLACES, pairs(4, 3))),
    Case(
        "products of segments",
        lambda x, ids: math.unsorted_segment_prod(x, ids, 5),
        (normal(7, 2), np.array([0, 4, 2, 2, 1, 0, 3], np.int32)),
    ),
    Case("bits of bytes", bitcast(tf.uint8), (normal(3, 4),)),
    Case("bits of doubles", bitcast(tf.int32), (normal(3, 4, dtype=np.float64),)),
    Case("bytes of bits", bitcast(tf.float32), (np.arange(24, dtype=np.uint8).reshape(2, 3, 4),)),
    Case("complex exponentials", unary(tf.exp, math.expm1, tf.sigmoid, tf.tanh), (pairs(5, 7),)),
    Case("complex roots", unary(tf.sqrt, math.rsqrt, math.log, math.log1p, math.reciprocal), (pairs(5, 7),)),
    Case("complex trigonometry", unary(tf.sin, tf.cos, tf.tan, tf.sinh, tf.acos, tf.asinh), (pairs(5, 7),)),
    Case("complex parts", unary(tf.abs, math.angle, math.conj, math.real, math.imag, tf.sign), (pairs(5, 7),)),
    Case("complex pairs", lambda x, y: [x**y, x / y, x * y, x == y, x != y], (pairs(40), pairs(40)), 1e-5),
    Case("complex products", gradients(tf.matmul), (pairs(3, 4, 5), pairs(3, 5, 2))),
    Case("complex sums", unary(tf.reduce_sum, lambda x: tf.reduce_mean(x, 1)), (pairs(40, 50),), 1e-5),
    Case("complex loop", iterate, (pairs(6) / 2,), 1e-5),
    Case("complex moves", lambda x: tf.pad(tf.concat([x, tf.transpose(x)], 0), [[1, 0], [0, 2]]), (pairs(3, 3),)),
    Case("complex selection", lambda x: tf.where(tf.abs(x) > 1, x, 2 * x), (pairs(9),)),
    Case(
        "complex conversions",
        lambda x: [tf.cast(x, tf.complex64), tf.cast(tf.cast(x, tf.complex128), tf.float32)],
        (normal(9),),
    ),
]


def run(function: Callable[..., Any], arguments: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    module = imported(function, *arguments)
    program = build_program(module, ["variable"] * len(arguments), {}, verify=True)
    return Executable(program).run(1, [], buffers(list(arguments)))


@pytest.mark.sample(8)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_engine_gives_what_xla_gives(case: Case) -> None:
    results = run(case.function, case.arguments)
    compiled = tf.function(case.function, jit_compile=True)
    expected = [e.numpy() for e in tf.nest.flatten(compiled(*map(tf.constant, case.arguments)))]
    assert len(results) == len(expected) > 0
    for result, value in zip(results, expected, strict=True):
        assert_near(result, value, case.tolerance)


@pytest.mark.parametrize("function", [linalg.qr, linalg.inv], ids=["qr", "inverse"])
def test_calls_of_libraries_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedOperation, match="custom-call"):
        run(function, (positive_definite(4, 4),))
