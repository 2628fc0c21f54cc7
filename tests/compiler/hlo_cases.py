"""Small TensorFlow programs, at least one for each family of operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf


@dataclass(frozen=True)
class Case:
    """A function of tensors; if `compiled`, XLA gives the expected result, else TensorFlow's kernels."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[np.ndarray, ...]
    tolerance: float = 2e-6
    compiled: bool = False


_random = np.random.default_rng(7)


def normal(*dimensions: int, dtype: Any = np.float32) -> np.ndarray:
    return _random.normal(size=dimensions).astype(dtype)


def integers(low: int, high: int, *dimensions: int, dtype: Any = np.int32) -> np.ndarray:
    return _random.integers(low, high, dimensions).astype(dtype)


def gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function's value and its gradients for a loss that weighs each element differently."""

    def both(*arguments: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            value = function(*arguments)
            loss = tf.reduce_sum(value * tf.cos(value))
        return [value, *tape.gradient(loss, arguments)]

    return both


def convolution(strides: int | list[int], padding: Any, dilations: int = 1) -> Callable[..., Any]:
    return gradients(lambda x, w: tf.nn.conv2d(x, w, strides, padding, dilations=dilations))


def depthwise(stride: int, padding: str) -> Callable[..., Any]:
    return gradients(lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, stride, stride, 1], padding))


def transposed(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d_transpose(x, w, [2, 9, 7, 3], [2, 2], "VALID")


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return loss, tape.gradient(loss, logits)


def batch_norm(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch([x, scale, offset])
        y, mean, variance = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, is_training=True)
        loss = tf.reduce_sum(tf.sin(y) * y)
    return y, mean, variance, tape.gradient(loss, [x, scale, offset])


def embedding_gradient(table: tf.Tensor, ids: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(table)
        loss = tf.reduce_sum(tf.sin(tf.gather(table, ids)) ** 2)
    return tf.convert_to_tensor(tape.gradient(loss, table))


def collatz(x: tf.Tensor) -> Any:
    def step(n: tf.Tensor, count: tf.Tensor) -> Any:
        return tf.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return tf.while_loop(lambda n, _: n != 1, step, (x, tf.constant(0)))


def recurrent_gradient(x: tf.Tensor, w: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(w)
        state = tf.zeros_like(x[0])
        _, state = tf.while_loop(
            lambda t, _: t < 5, lambda t, s: (t + 1, tf.tanh(s @ w + x[t])), (0, state), maximum_iterations=5
        )
        loss = tf.reduce_sum(state**2)
    return loss, tape.gradient(loss, w)


def choose(index: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    return tf.switch_case(index, [lambda: x + 1, lambda: x * 3, lambda: -x])


def unary(*functions: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: [function(x) for function in functions]


def binary(*functions: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: [function(x, y) for function in functions]


IMAGE, FILTER = normal(2, 9, 8, 4), normal(3, 2, 4, 6)
SPECIAL = np.array([0.0, -0.0, 1.5, -2.5, 0.5, np.inf, -np.inf, np.nan, 1e-3, -1e4, 0.49999997], np.float32)
DIVIDENDS = np.array([7, -7, 7, -7, 5, -(2**31), 0, -1], np.int32)
DIVISORS = np.array([2, 2, -2, -2, 0, -1, 3, 0], np.int32)
SHIFTS = np.array([0, 1, 31, 32, 40, 5, 2, 7], np.int32)
bitwise = tf.bitwise
math = tf.math
random = tf.random
SEED = np.array([3, -7], np.int32)

CASES = [
    Case("exponentials", unary(tf.exp, math.expm1, tf.sigmoid, tf.tanh, math.erf), (normal(3, 37) * 4,)),
    Case("logarithms", unary(tf.math.log, math.log1p, tf.sqrt, math.rsqrt), (np.exp(normal(3, 37)),)),
    Case("trigonometry", unary(tf.sin, tf.cos, tf.tan, math.atan), (normal(3, 37),), 1e-5),
    Case("rounding", unary(tf.floor, math.ceil, tf.round, math.rint), (SPECIAL * 3,)),
    Case(
        "special values",
        unary(tf.sign, tf.abs, math.is_finite, math.is_nan, tf.nn.relu),
        (SPECIAL,),
        compiled=True,
    ),
    Case(
        "to integers",
        unary(lambda x: tf.cast(x, tf.int32), lambda x: tf.cast(x, tf.uint8)),
        (SPECIAL,),
        compiled=True,
    ),
    Case(
        "between floats",
        lambda x: tf.cast(tf.cast(tf.cast(x, tf.bfloat16), tf.float16), tf.float64),
        (normal(50),),
    ),
    Case("half arithmetic", binary(tf.add, tf.multiply, tf.divide), (normal(9, dtype=np.float16),) * 2),
    Case("float pairs", binary(tf.maximum, math.floormod, math.atan2, tf.pow), (np.exp(normal(40)), normal(40))),
    Case("integer pairs", binary(tf.truncatediv, tf.truncatemod), (DIVIDENDS, DIVISORS), compiled=True),
    Case("shifts", binary(bitwise.left_shift, bitwise.right_shift), (DIVIDENDS, SHIFTS), compiled=True),
    Case("bits", binary(bitwise.bitwise_and, bitwise.bitwise_xor, bitwise.bitwise_or), (DIVIDENDS, DIVISORS)),
    Case("population count", bitwise.invert, (DIVIDENDS,)),
    Case(
        "bitcast",
        lambda x: [tf.bitcast(x, tf.uint16), tf.bitcast(tf.bitcast(x, tf.uint8), tf.int32)],
        (normal(5),),
    ),
    Case("complex", lambda x: tf.abs(tf.exp(tf.complex(x, 2 * x)) * tf.complex(x, x)), (normal(8),), 1e-5),
    Case("select", lambda x: tf.where(x > 0, x, tf.clip_by_value(x, -0.5, 2.0)), (normal(4, 5),)),
    Case("pad", lambda x: tf.pad(x, [[1, 2], [0, 3]], constant_values=7.0), (normal(3, 4),)),
    Case("slices", lambda x: [x[::2, 1:-1], x[::-1, :, None], tf.concat([x, x[:1]], 0)], (normal(5, 6),)),
    Case("transpose", lambda x: tf.tile(tf.transpose(x, [2, 0, 1]), [1, 2, 1]), (normal(2, 3, 4),)),
    Case("iota", lambda x: x + tf.cast(tf.range(5)[:, None] * tf.range(7), tf.float32), (normal(5, 7),)),
    Case("sums", unary(tf.reduce_sum, lambda x: tf.reduce_mean(x, [0, 2])), (normal(3, 70, 5),), 1e-4),
    Case("extremes", unary(lambda x: tf.reduce_max(x, 1), lambda x: tf.reduce_prod(x, 0)), (normal(6, 7),)),
    Case("any and all", lambda x: [tf.reduce_any(x > 1, 0), tf.reduce_all(x > -1, 1)], (normal(4, 9),)),
    Case(
        "argmax",
        lambda x: [tf.argmax(x, 1), tf.argmin(x, 0, tf.int32)],
        (integers(0, 4, 6, 33).astype("f4"),),
    ),
    Case(
        "cumulative",
        lambda x: [tf.cumsum(x, 1, reverse=True), math.cumulative_logsumexp(x)],
        (normal(4, 13),),
        1e-5,
    ),
    Case("matmul", gradients(tf.matmul), (normal(2, 5, 7), normal(2, 7, 3)), 2e-5),
    Case(
        "einsum",
        gradients(lambda x, y: tf.einsum("abcd,decb->ade", x, y)),
        (normal(2, 3, 4, 5), normal(5, 6, 4, 3)),
        1e-4,
    ),
    Case("convolution", convolution([1, 2, 3, 1], "SAME"), (IMAGE, FILTER), 2e-4),
    Case("dilated convolution", convolution(1, "VALID", 2), (IMAGE, FILTER), 2e-4),
    Case("padded convolution", convolution(2, [[0, 0], [3, 1], [0, 2], [0, 0]]), (IMAGE, FILTER), 2e-4),
    Case("pointwise convolution", convolution(2, "VALID"), (IMAGE, normal(1, 1, 4, 3)), 2e-4),
    Case("grouped convolution", convolution(1, "SAME"), (IMAGE, normal(3, 2, 2, 6)), 2e-4, compiled=True),
    Case("depthwise convolution", depthwise(2, "VALID"), (IMAGE, normal(3, 2, 4, 2)), 2e-4),
    Case("depthwise same", depthwise(1, "SAME"), (IMAGE, normal(3, 3, 4, 1)), 2e-4),
    Case("transposed convolution", gradients(transposed), (normal(2, 4, 3, 5), normal(3, 3, 3, 5)), 5e-4),
    Case(
        "volume convolution",
        gradients(lambda x, w: tf.nn.conv3d(x, w, [1, 2, 1, 2, 1], "SAME")),
        (normal(1, 5, 4, 6, 2), normal(2, 3, 2, 2, 3)),
        2e-4,
    ),
    Case("max pool", gradients(lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME")), (IMAGE,)),
    Case("average pool", gradients(lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME")), (IMAGE,)),
    Case("cross entropy", cross_entropy, (normal(6, 10), integers(0, 10, 6))),
    Case("batch norm", batch_norm, (IMAGE, normal(4), normal(4)), 2e-4),
    Case(
        "layer norm",
        gradients(lambda x: math.l2_normalize(x - tf.reduce_mean(x, -1, True), -1)),
        (normal(4, 9),),
    ),
    Case(
        "gather",
        lambda x, i: [tf.gather(x, i, axis=1), tf.gather_nd(x, i[:, None])],
        (normal(4, 6), integers(0, 4, 5)),
    ),
    Case("batched gather", lambda x, i: tf.gather(x, i, batch_dims=1), (normal(3, 6, 2), integers(0, 6, 3, 4))),
    Case("embedding gradient", embedding_gradient, (normal(5, 3), integers(0, 5, 4, 6)), 1e-5),
    Case(
        "scatter",
        lambda i, u: tf.tensor_scatter_nd_update(tf.zeros([5, 3]), i, u),
        (np.array([[3], [0], [1]], np.int32), normal(3, 3)),
    ),
    Case("scatter maximum", tf.tensor_scatter_nd_max, (normal(7), integers(0, 7, 9, 1), normal(9))),
    Case(
        "segment sum",
        lambda x, i: math.unsorted_segment_sum(x, i, 4),
        (normal(9, 2), integers(-1, 4, 9)),
        1e-5,
    ),
    Case(
        "sort",
        lambda x: [tf.sort(x), tf.argsort(x, stable=True), *tf.nn.top_k(x, 3)],
        (integers(0, 20, 3, 21).astype("f4"),),
    ),
    Case(
        "dynamic slice",
        lambda x, i: [tf.slice(x, [i, 1], [2, 2]), tf.tensor_scatter_nd_add(x, [[i]], x[:1])],
        (normal(5, 4), np.array(2, np.int32)),
    ),
    Case("while", collatz, (np.array(27, np.int32),)),
    Case("gradient of while", recurrent_gradient, (normal(5, 2, 3), normal(3, 3)), 1e-5),
    Case("cond", lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x), lambda: x * 2), (normal(5),)),
    Case("switch", choose, (np.array(5, np.int32), normal(5))),
    Case("uniform", lambda s: random.stateless_uniform([7], s), (SEED,), 0.0, compiled=True),
    Case(
        "uniform halves",
        lambda s: random.stateless_uniform([7], s, dtype=tf.float16),
        (SEED,),
        0.0,
        compiled=True,
    ),
    Case(
        "random integers",
        lambda s: random.stateless_uniform([7], s, None, None, tf.uint64),
        (SEED,),
        0.0,
        compiled=True,
    ),
    Case("normal", lambda s: random.stateless_normal([3, 5], s), (SEED,), compiled=True),
    Case("cholesky", lambda x: tf.linalg.cholesky(x @ tf.transpose(x) + tf.eye(5)), (normal(5, 5),), 1e-5),
    Case(
        "triangular solve",
        lambda a, b: tf.linalg.triangular_solve(a + 3 * tf.eye(4), b, adjoint=True),
        (normal(4, 4), normal(4, 2)),
        1e-5,
    ),
    Case("fourier transform", lambda x: tf.abs(tf.signal.rfft(x)), (normal(3, 16),), 1e-5),
]
