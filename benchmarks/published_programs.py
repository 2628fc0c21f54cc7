"""Programs of Graphcore's own TensorFlow tests, which state the cycles or bytes that they expect of the IPU Model.

Each program is compiled and estimated, and nothing runs. `PROGRAMS` has them by the names of their rows in
engine/data/measurements.toml.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from engine.profile.options import Assumptions
from engine.profile.program_estimate import Estimate, estimate
from engine.target import target
from ipu._internal.graphs.program import program_of_results
from ipu.ipu_compiler import compile as compile_program
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.loops import repeat
from ipu.ops.functional_ops import outlined_function
from ipu.optimizers import GradientAccumulationOptimizerV2

v1 = tf.compat.v1
Build = Callable[[], Any]
HALF = tf.float16


def published_program(name: str) -> Estimate:
    """The cost report of a program of PROGRAMS on the chip of its test."""
    build, tiles, with_code = PROGRAMS[name]
    with tf.Graph().as_default():
        program = program_of_results(build())
    assert program is not None
    assumptions = Assumptions(code_bytes=with_code)
    return estimate(program.engine_program, target("ipu2", tiles), assumptions=assumptions)


def figures(found: Estimate) -> dict[str, int]:
    """Cycles of the whole run, and peak bytes: the sum over tiles, and those of the fullest tile.

    The cycles include transfers from and to the host at the IPU Model's bandwidth.
    """
    peaks, chip = found.tiles.peak_bytes, found.target
    host = round(sum(found.host_bytes) * chip.clock_hz / chip.model_host_bytes_per_second)
    return {"cycles": found.cycles + host, "total": int(peaks.sum()), "max": int(peaks.max())}


def _variable(name: str, shape: tuple[int, ...], kind: tf.DType = tf.float32) -> tf.Variable:
    return v1.get_variable(name, shape, kind, v1.zeros_initializer(), use_resource=True)


def _dense(x: tf.Tensor, units: int, name: str) -> tf.Tensor:
    kernel = _variable(f"{name}/kernel", (x.shape[-1], units), x.dtype)
    return x @ kernel + _variable(f"{name}/bias", (units,), x.dtype)


def _convolution(x: tf.Tensor, channels: int, size: int, stride: int, name: str) -> tf.Tensor:
    kernel = _variable(f"{name}/kernel", (size, size, x.shape[-1], channels), x.dtype)
    made = tf.nn.conv2d(x, kernel, stride, "SAME")
    return made + _variable(f"{name}/bias", (channels,), x.dtype)


def _residual_network(x: tf.Tensor) -> tf.Tensor:
    x = tf.nn.max_pool2d(tf.nn.relu(_convolution(x, 64, 7, 2, "first")), 3, 2, "SAME")
    for block in range(2):
        inner = tf.nn.relu(_convolution(x, 64, 3, 1, f"block{block}/a"))
        x = tf.nn.relu(x + _convolution(inner, 64, 3, 1, f"block{block}/b"))
    x = tf.nn.max_pool2d(x, x.shape[1], 1, "VALID")
    return _dense(tf.reshape(x, (1, 64)), 1000, "dense")


def _images() -> tuple[tf.Tensor, tf.Tensor]:
    return v1.placeholder(HALF, (1, 224, 224, 4)), v1.placeholder(tf.int32, (1,))


def _cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def _residual_inference() -> Any:
    return compile_program(_residual_network, [_images()[0]])


def _residual_training(optimizer: Callable[[], Any]) -> Build:
    def step(x: tf.Tensor, labels: tf.Tensor) -> Any:
        loss = _cross_entropy(_residual_network(x), labels)
        return loss, optimizer().minimize(loss)

    return lambda: compile_program(step, _images())


def _residual_loop(optimizer: Callable[[], Any]) -> Build:
    def step(loss: tf.Tensor, x: tf.Tensor, labels: tf.Tensor) -> Any:
        loss = _cross_entropy(_residual_network(x), labels)
        with tf.control_dependencies([optimizer().minimize(loss)]):
            return tf.identity(loss)

    rows = np.zeros((1, 224, 224, 4), np.float16), np.zeros(1, np.int32)

    def build() -> Any:
        infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors(rows).repeat())
        return compile_program(lambda: repeat(10, step, [tf.constant(0, HALF)], infeed))

    return build


def _descent() -> Any:
    return v1.train.GradientDescentOptimizer(0.01)


def _momentum() -> Any:
    return v1.train.MomentumOptimizer(0.01, 0.9)


def _accumulated(optimizer: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: GradientAccumulationOptimizerV2(optimizer(), 10)


def _perceptron(trains: bool, batch: int = 2) -> Build:
    def step(x: tf.Tensor, labels: tf.Tensor) -> Any:
        for number, units in enumerate((32, 64, 64)):
            x = tf.nn.relu(_dense(x, units, f"dense{number}"))
        if not trains:
            return x
        loss = _cross_entropy(x, labels)
        return loss, _descent().minimize(loss)

    return lambda: compile_program(step, [v1.placeholder(HALF, (batch, 50_176)), v1.placeholder(tf.int32, (batch,))])


def _two_convolutions() -> Any:
    def step(x: tf.Tensor, first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        x = tf.broadcast_to(x, (2, 256, 256, 2))
        for kernel in (first, second):
            x = tf.nn.conv2d(x, tf.broadcast_to(kernel, (2, 2, 2, 2)), 1, "SAME")
        return x

    return compile_program(step, [v1.placeholder(tf.float32, ()) for _ in range(3)])


def _tied_embedding() -> Any:
    def step(ids: tf.Tensor) -> tf.Tensor:
        table = _variable("table", (20_000, 128), HALF)
        return tf.matmul(tf.gather(table, ids), table, transpose_b=True)

    return compile_program(step, [v1.placeholder(tf.int32, (50,))])


def _wide_constant() -> Any:
    wide = [v1.placeholder(tf.float32, (1024, 2048)) for _ in range(2)]
    return compile_program(lambda a, b: a + b + tf.constant(3.0, shape=(1024, 2048)), wide)


def _outlined() -> Any:
    def step(a: tf.Tensor) -> tf.Tensor:
        @outlined_function
        def layer(a: tf.Tensor, w: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
            return tf.sigmoid(a @ w + b)

        for number in range(2):
            with v1.variable_scope(f"layer{number}"):
                a = layer(a, _variable("w", (64, 64)), _variable("b", (64,)))
        return a

    return compile_program(step, [v1.placeholder(tf.float32, (64, 64))])


def _triangular_solve(adjoint: bool) -> Build:
    matrices = [(64, 64)] * 2

    def step(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return tf.linalg.triangular_solve(a, b, adjoint=adjoint)

    return lambda: compile_program(step, [v1.placeholder(tf.float32, shape) for shape in matrices])


def _row_updates() -> Any:
    def step(w: tf.Tensor, x: tf.Tensor, ids: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        return tf.tensor_scatter_nd_add(w @ x, ids[:, None], rows)

    shapes = ((1024, 16), (16, 16))
    given = [v1.placeholder(tf.float32, shape) for shape in shapes]
    return compile_program(step, [*given, v1.placeholder(tf.int32, (1024,)), v1.placeholder(tf.float32, (1024, 16))])


def _two_products() -> Any:
    def step(x: tf.Tensor, w: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return y @ (tf.broadcast_to(x, (1024, 1024)) @ w)

    shapes = ((1, 1024), (1024, 1024), (1024, 1024))
    return compile_program(step, [v1.placeholder(HALF, shape) for shape in shapes])


def _recurrent(cells: tuple[Callable[..., Any], ...], steps: int) -> Build:
    """Make 100 updates with Adam of recurrent layers, each a loop over time steps, and of a dense layer after them."""

    def step(x: tf.Tensor, labels: tf.Tensor) -> Any:
        for cell in cells:
            x = cell(x)
        predicted = _dense(x[:, -1], 16, "dense")
        loss = tf.reduce_mean(tf.square(predicted - labels))
        return v1.train.AdamOptimizer(0.01, epsilon=1e-3).minimize(loss)

    rows = np.zeros((2, steps, 16), np.float32), np.zeros((2, 16), np.float32)

    def build() -> Any:
        infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors(rows).repeat())
        return compile_program(lambda: repeat(100, step, [], infeed))

    return build


def _scan(x: tf.Tensor, states: tuple[tf.Tensor, ...], cell: Callable[..., tuple[tf.Tensor, ...]]) -> tf.Tensor:
    """The first state of a cell, [batch, time, units], by a while loop over tensor arrays, as in `dynamic_rnn`."""
    count = x.shape[1]
    read = tf.TensorArray(x.dtype, count).unstack(tf.transpose(x, (1, 0, 2)))
    written = tf.TensorArray(x.dtype, count, element_shape=states[0].shape)

    def body(at: tf.Tensor, written: tf.TensorArray, *states: tf.Tensor) -> Any:
        made = cell(read.read(at), *states)
        return (at + 1, written.write(at, made[0]), *made)

    start = (tf.constant(0), written, *states)
    found = tf.while_loop(lambda at, *_: at < count, body, start, maximum_iterations=count)
    return tf.transpose(found[1].stack(), (1, 0, 2))


def _tanh_cell(units: int) -> Callable[[tf.Tensor], tf.Tensor]:
    def layer(x: tf.Tensor) -> tf.Tensor:
        kernel, bias = _variable("rnn/kernel", (x.shape[-1] + units, units)), _variable("rnn/bias", (units,))
        zeros = tf.zeros((x.shape[0], units))
        return _scan(x, (zeros,), lambda row, h: (tf.tanh(tf.concat([row, h], 1) @ kernel + bias),))

    return layer


def _lstm_cell(units: int, name: str) -> Callable[[tf.Tensor], tf.Tensor]:
    def layer(x: tf.Tensor) -> tf.Tensor:
        kernel = _variable(f"{name}/kernel", (x.shape[-1] + units, 4 * units))
        bias, zeros = _variable(f"{name}/bias", (4 * units,)), tf.zeros((x.shape[0], units))

        def cell(row: tf.Tensor, h: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, ...]:
            i, j, f, o = tf.split(tf.concat([row, h], 1) @ kernel + bias, 4, 1)
            c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
            return tf.tanh(c) * tf.sigmoid(o), c

        return _scan(x, (zeros, zeros), cell)

    return layer


def _trivial_multiply() -> Any:
    def step(x: tf.Tensor, labels: tf.Tensor) -> Any:
        scale = _variable("scale", ())
        read = tf.TensorArray(x.dtype, 32).unstack(tf.transpose(x, (1, 0, 2)))

        def body(at: tf.Tensor, total: tf.Tensor) -> Any:
            return at + 1, total + read.read(at) * scale

        start = (tf.constant(0), tf.zeros((4, 4056)))
        _, total = tf.while_loop(lambda at, _: at < 32, body, start, maximum_iterations=32)
        loss = tf.reduce_mean(tf.square(_dense(total, 16, "dense") - labels))
        return v1.train.AdamOptimizer(0.01, epsilon=1e-3).minimize(loss)

    rows = np.zeros((4, 32, 4056), np.float32), np.zeros((4, 16), np.float32)
    infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors(rows).repeat())
    return compile_program(lambda: repeat(100, step, [], infeed))


PROGRAMS: dict[str, tuple[Build, int | None, bool]] = {
    "ResNet-like, inference": (_residual_inference, None, False),
    "ResNet-like, momentum": (_residual_training(_momentum), None, False),
    "ResNet-like, SGD": (_residual_training(_descent), None, False),
    "ResNet-like, SGD in a loop": (_residual_loop(_descent), None, False),
    "ResNet-like, SGD, accumulated": (_residual_loop(_accumulated(_descent)), None, False),
    "ResNet-like, momentum, accumulated": (_residual_loop(_accumulated(_momentum)), None, False),
    "perceptron, inference": (_perceptron(False), None, False),
    "perceptron, training": (_perceptron(True), None, False),
    "perceptron, training, batch 1": (_perceptron(True, 1), None, False),
    "two convolutions of broadcasts": (_two_convolutions, 8, False),
    "embedding and tied product": (_tied_embedding, 8, True),
    "sum with a wide constant": (_wide_constant, 128, True),
    "outlined dense and sigmoid": (_outlined, 8, False),
    "product, then row updates": (_row_updates, None, False),
    "two products": (_two_products, 8, False),
    "tf_rnn1": (_recurrent((_tanh_cell(256),), 5), None, True),
    "tf_lstm1": (_recurrent((_lstm_cell(128, "first"), _lstm_cell(384, "second")), 3), None, True),
    "triangular solve": (_triangular_solve(False), 4, False),
    "triangular solve, adjoint": (_triangular_solve(True), 4, False),
    "trivial_multiply": (_trivial_multiply, None, True),
}
"""The function that builds each program, its number of tiles (None for all), and whether its code is compiled."""
