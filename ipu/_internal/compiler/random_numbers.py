"""Random numbers of stateless operations as TensorFlow's kernels for processors draw them.

These kernels and XLA take the same words from Philox, but make other floating-point numbers of them. A program that is
compared with plain Keras or TensorFlow needs those of the kernels. Within a function of `jit_compile=True`, which XLA
compiles there, too, it needs XLA's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.ops import gen_stateless_random_ops_v2 as stateless

from engine.ops.random import HALF, PHILOX_KEY_STEPS, PHILOX_MULTIPLIERS, PHILOX_ROUNDS, WORD
from ipu._internal.thread_values import ThreadValue

MANTISSA_BITS = {tf.bfloat16: 7, tf.float16: 10, tf.float32: 23, tf.float64: 52}
ONES = {tf.bfloat16: 0x3F80, tf.float16: 0x3C00, tf.float32: 0x3F800000, tf.float64: 0x3FF0000000000000}
"""The bits of the number 1."""
LEAST = 1e-7
"""The least uniform number of which the Box-Muller transform takes the logarithm."""
BOUND = 2.0
"""Truncated normal numbers are within this many standard deviations."""
COUNTERS = 64
"""The counters that the kernel reserves for each number that it may draw again."""
CANDIDATES = 16
"""Normal numbers drawn for each group of at most four: once in 1e14 groups fewer than four are within the bound."""
KEYS = "StatelessRandomGetKeyCounter"
SCRAMBLING_KEY = 0x02461E293EC8F720
"""Philox's key for the key and the counter that seeds give."""
XLA_MARK = "_XlaMustCompile"
"""TensorFlow's attribute of functions of `jit_compile=True`, and of their calls."""


drawn_by_xla: ThreadValue[bool] = ThreadValue(False)
"""Whether XLA compiles the function that this thread compiles in plain TensorFlow, too, and draws its numbers there."""


def is_xla_call(node: NodeDef) -> bool:
    """Whether an operation calls a function of `jit_compile=True`."""
    return XLA_MARK in node.attr and bool(node.attr[XLA_MARK].b)


def drawn_otherwise(node: NodeDef) -> bool:
    """Whether XLA makes an operation's floating-point numbers, or keys, otherwise than TensorFlow's kernel."""
    if node.op in DISTRIBUTIONS:
        return tf.as_dtype(node.attr["dtype"].type) in MANTISSA_BITS
    return bool(node.op == KEYS)


def draw_as_kernels(definition: FunctionDef) -> None:
    """Makes operations that draw numbers, or keys from seeds, calls of functions with the same inputs and results."""
    renamed: dict[str, str] = {}
    for node in definition.node_def:
        if node.op == KEYS:
            seeds = tf.as_dtype(node.attr["Tseed"].type)
            renamed |= {f"{node.name}:{name}:0": f"{node.name}:output:{k}" for k, name in enumerate(("key", "counter"))}
            _call(node, _key_function(seeds).name, [seeds], [tf.uint64, tf.uint64])
        elif drawn_otherwise(node):
            shape, dtype = (tf.as_dtype(node.attr[each].type) for each in ("Tshape", "dtype"))
            inputs = [shape, tf.uint64, tf.uint64, tf.int32]
            _call(node, _function(node.op, shape, dtype).name, inputs, [dtype])
    for node in definition.node_def if renamed else ():
        for number, given in enumerate(node.input):
            node.input[number] = renamed.get(given, given)
    for result, given in list(definition.ret.items()):
        definition.ret[result] = renamed.get(given, given)


def _call(node: NodeDef, function: str, inputs: Sequence[tf.DType], results: Sequence[tf.DType]) -> None:
    for attribute in [each for each in node.attr if not each.startswith("_")]:
        del node.attr[attribute]
    node.op = "PartitionedCall"
    node.attr["f"].func.name = function
    node.attr["Tin"].list.type.extend(each.as_datatype_enum for each in inputs)
    node.attr["Tout"].list.type.extend(each.as_datatype_enum for each in results)


@functools.cache
def _function(operation: str, shape: tf.DType, dtype: tf.DType) -> Any:
    state = tf.TensorSpec([1], tf.uint64), tf.TensorSpec([2], tf.uint64), tf.TensorSpec([], tf.int32)
    draw = functools.partial(DISTRIBUTIONS[operation], dtype)
    with tf.init_scope():
        return tf.function(draw, autograph=False).get_concrete_function(tf.TensorSpec([None], shape), *state)


@functools.cache
def _key_function(seeds: tf.DType) -> Any:
    with tf.init_scope():
        return tf.function(_key_and_counter, autograph=False).get_concrete_function(tf.TensorSpec([2], seeds))


def _key_and_counter(seeds: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Philox's key and counter of seeds. XLA leaves out the upper halves of 64-bit seeds."""
    given = tf.bitcast(tf.cast(seeds, tf.int64), tf.uint64)
    words = _philox(tf.constant(SCRAMBLING_KEY, tf.uint64), given, tf.zeros([1], tf.uint64))
    key, counter = tf.unstack(tf.bitcast(tf.reshape(words, [2, 2]), tf.uint64))
    return key[tf.newaxis], tf.stack([tf.zeros([], tf.uint64), counter])


def _uniform(dtype: tf.DType, shape: tf.Tensor, *state: tf.Tensor) -> tf.Tensor:
    if dtype != tf.float64:
        return _fraction(dtype, stateless.stateless_random_uniform_full_int_v2(shape, *state, tf.uint32))
    words = stateless.stateless_random_uniform_full_int_v2(tf.concat([shape, [2]], 0), *state, tf.uint32)
    return _double(words)


def _normal(dtype: tf.DType, shape: tf.Tensor, *state: tf.Tensor) -> tf.Tensor:
    # The kernel fills groups of four words from a counter, and leaves out what is too much in the last one.
    count, width = tf.reduce_prod(shape), 4 if dtype == tf.float64 else 2
    pairs = tf.stack([2 * ((count + 3) // 4), tf.constant(width, count.dtype)])
    words = stateless.stateless_random_uniform_full_int_v2(pairs, *state, tf.uint32)
    return tf.cast(tf.reshape(tf.reshape(_box_muller(dtype, words), [-1])[:count], shape), dtype)


def _truncated_normal(dtype: tf.DType, shape: tf.Tensor, key: tf.Tensor, counter: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
    double = dtype == tf.float64
    size, width = (2, 4) if double else (4, 2)
    count = tf.reduce_prod(shape)
    groups = tf.cast(tf.range((count + size - 1) // size), tf.uint64)
    blocks = CANDIDATES * width // 2 // 4
    offsets = groups[:, tf.newaxis] * (COUNTERS * size) + tf.cast(tf.range(blocks), tf.uint64)
    words = tf.reshape(_philox(key[0], counter, offsets), [-1, CANDIDATES // 2, width])
    candidates = tf.reshape(_box_muller(dtype, words), [-1, CANDIDATES])
    within = tf.abs(candidates) < BOUND
    rank = tf.where(within, tf.cumsum(tf.cast(within, tf.int32), axis=1), 0)
    chosen = rank[:, tf.newaxis] == tf.range(1, size + 1)[:, tf.newaxis]
    kept = tf.reduce_sum(tf.where(chosen, candidates[:, tf.newaxis], tf.zeros([], candidates.dtype)), axis=2)
    return tf.cast(tf.reshape(tf.reshape(kept, [-1])[:count], shape), dtype)


DISTRIBUTIONS: dict[str, Callable[..., tf.Tensor]] = {
    "StatelessRandomNormalV2": _normal,
    "StatelessRandomUniformV2": _uniform,
    "StatelessTruncatedNormalV2": _truncated_normal,
}
"""Functions of dtype, shape, key, counter and algorithm that draw the numbers of an operation."""


def _box_muller(dtype: tf.DType, words: tf.Tensor) -> tf.Tensor:
    """Two normal numbers, of float32 for 16-bit types, from the two or four words of the last axis."""
    if dtype == tf.float64:
        first, second = _double(words[..., :2]), _double(words[..., 2:])
    else:
        first, second = tf.unstack(_fraction(tf.float32, words), num=2, axis=-1)
    angle = tf.constant(2 * math.pi, first.dtype) * second
    radius = tf.sqrt(-2.0 * tf.math.log(tf.maximum(first, LEAST)))
    return tf.stack([tf.sin(angle) * radius, tf.cos(angle) * radius], axis=-1)


def _fraction(dtype: tf.DType, words: tf.Tensor) -> tf.Tensor:
    """Numbers from 0 to less than 1, whose mantissas are the low bits of words."""
    bits, integer = MANTISSA_BITS[dtype], tf.uint32 if dtype == tf.float32 else tf.uint16
    mantissas = tf.cast(words & (2**bits - 1), integer)
    return tf.bitcast(mantissas | tf.constant(ONES[dtype], integer), dtype) - tf.ones([], dtype)


def _double(words: tf.Tensor) -> tf.Tensor:
    """Numbers from 0 to less than 1, whose mantissas are the low bits of the first word, then the second."""
    high, low = tf.unstack(tf.cast(words, tf.uint64), num=2, axis=-1)
    mantissas = tf.bitwise.left_shift(high & 0xFFFFF, tf.constant(32, tf.uint64)) | low
    return tf.bitcast(mantissas | tf.constant(ONES[tf.float64], tf.uint64), tf.float64) - 1.0


def _philox(key: tf.Tensor, counter: tf.Tensor, offsets: tf.Tensor) -> tf.Tensor:
    """Philox4x32-10's four words, u32 [..., 4], of the 128-bit counter plus each of the offsets."""
    low = counter[0] + offsets
    high = counter[1] + tf.cast(low < offsets, tf.uint64)
    x0, x1, x2, x3 = *_halves(low), *_halves(high)
    key0, key1 = _halves(key)
    for _ in range(PHILOX_ROUNDS):
        (low0, high0), (low2, high2) = _halves(x0 * PHILOX_MULTIPLIERS[0]), _halves(x2 * PHILOX_MULTIPLIERS[1])
        x0, x1, x2, x3 = high2 ^ x1 ^ key0, low2, high0 ^ x3 ^ key1, low0
        key0, key1 = (key0 + PHILOX_KEY_STEPS[0]) & WORD, (key1 + PHILOX_KEY_STEPS[1]) & WORD
    return tf.cast(tf.stack([x0, x1, x2, x3], axis=-1), tf.uint32)


def _halves(words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The low and the high 32 bits, as uint64."""
    return words & WORD, tf.bitwise.right_shift(words, HALF)
