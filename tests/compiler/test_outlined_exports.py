"""Files of programs with outlined functions keep the calls, and give the same results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine import load
from engine.files.executable_file import read_executable, write_executable
from engine.ir import Module
from engine.ir.outlining import outlined_call
from engine.serving.manifest import read_manifest
from ipu._internal.compiler.executable_file import executable_file, traced_function

X = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
RATE = 0.1


def outlined_calls(module: Module) -> int:
    """The number of outlined calls in a module."""
    return sum(outlined_call(i) is not None for c in module.computations() for i in c.instructions)


@pytest.fixture
def weights() -> list[tf.Variable]:
    """Three matrices on the device."""
    rng = np.random.default_rng(1)
    with ipu.ipu_strategy.IPUStrategy().scope():
        return [tf.Variable(rng.normal(size=(5, 5)).astype(np.float32), name=f"w{k}") for k in range(3)]


def model(weights: list[tf.Variable]) -> Callable[[tf.Tensor], tf.Tensor]:
    """Layers of one outlined function."""
    layer = ipu.functional_ops.outlined_function(lambda x, w: tf.tanh(tf.matmul(x, w)))

    def run(x: tf.Tensor) -> tf.Tensor:
        for w in weights:
            x = layer(x, w)
        return x

    return run


def expected(weights: list[np.ndarray]) -> np.ndarray:
    """The model's result for X, by NumPy."""
    y = X
    for w in weights:
        y = np.tanh(y @ w)
    return y


def test_serving_exports(weights: list[tf.Variable], tmp_path: Path) -> None:
    run = ipu.serving.export_single_step(model(weights), str(tmp_path), 2, [tf.TensorSpec(X.shape, tf.float32)])
    found = expected([w.numpy() for w in weights])
    np.testing.assert_allclose(run(X)[0], found, rtol=1e-5, atol=1e-6)
    path = tmp_path / "assets" / read_manifest(tmp_path).executable
    np.testing.assert_allclose(load(path).run([X])[0], found, rtol=1e-5, atol=1e-6)
    assert outlined_calls(read_executable(path).module) == len(weights)
    graph = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    np.testing.assert_allclose(*graph(tf.constant(X)).values(), found, rtol=1e-5, atol=1e-6)


def test_training_steps_in_executable_files(weights: list[tf.Variable], tmp_path: Path) -> None:
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(weights)(x))
        for w, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            w.assign_sub(RATE * gradient)
        return loss

    values = [w.numpy() for w in weights]
    path = tmp_path / "step.poplar_exec"
    write_executable(path, executable_file(traced_function(step, [X])))
    assert outlined_calls(read_executable(path).module) == 2 * len(weights)
    loaded = load(path)
    losses = [float(loaded.run([X])[0]) for _ in range(2)]
    assert losses[0] == pytest.approx(expected(values).sum(), rel=1e-5)
    copies = [tf.Variable(value) for value in values]
    with tf.GradientTape() as tape:
        y = tf.constant(X)
        for copy in copies:
            y = tf.tanh(tf.matmul(y, copy))
        loss = tf.reduce_sum(y)
    moved = [c.numpy() - RATE * g.numpy() for c, g in zip(copies, tape.gradient(loss, copies), strict=True)]
    assert losses[1] == pytest.approx(expected(moved).sum(), rel=1e-5)
