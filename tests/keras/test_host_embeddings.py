"""Keras layers that look rows up in a host embedding train as with an Embedding layer of the same table."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import ConfigurationError
from ipu._internal.embeddings import tables
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import KITS
from tests.strategy.helpers import replicas

ops = ipu.embedding_ops
RANDOM = np.random.default_rng(1)
ROWS, WIDTH, BATCH, RATE = 30, 4, 4, 0.1
TABLE = RANDOM.normal(size=(ROWS, WIDTH)).astype(np.float32)
X = RANDOM.integers(0, ROWS, (48, 3)).astype(np.int32)
Y = RANDOM.normal(size=(48, 1)).astype(np.float32)


def trained(keras: Any, together: int, stages: int, made: Any = None) -> tuple[list[float], float, np.ndarray]:
    """The losses of two epochs and of an evaluation, and the table, from the host or from the layer."""

    class Rows(keras.layers.Layer):
        def call(self, ids: Any) -> Any:
            return made.lookup(ids)

    with IPUStrategy().scope():
        first = Rows() if made else keras.layers.Embedding(ROWS, WIDTH)
        ids = keras.Input((3,), dtype="int32", batch_size=BATCH)
        constant = keras.initializers.Constant(0.2)
        stage = keras.ipu.PipelineStage if stages > 1 else contextlib.nullcontext
        with stage(0):
            hidden = keras.layers.Dense(5, "tanh", kernel_initializer=constant)(keras.layers.Flatten()(first(ids)))
        with stage(1):
            result = keras.layers.Dense(1, kernel_initializer=constant)(hidden)
        model = keras.Model(ids, result)
        if not made:
            first.set_weights([TABLE])
        model.compile(keras.optimizers.SGD(RATE), "mse", steps_per_execution=4)
        options = model.set_pipelining_options if stages > 1 else model.set_gradient_accumulation_options
        options(gradient_accumulation_steps_per_replica=together)
        history = model.fit(X, Y, BATCH, epochs=2, shuffle=False, verbose=0)
        loss = model.evaluate(X, Y, BATCH, verbose=0)
        table = made.get_embedding_tensor() if made else first.get_weights()[0]
    return history.history["loss"], loss, np.asarray(table)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("kit", "ipus", "together", "stages"), [("keras", 2, 2, 1), ("keras", 2, 4, 2), ("tf_keras", 1, 1, 1)]
)
def test_training_equals_that_of_an_embedding_layer(kit: str, ipus: int, together: int, stages: int) -> None:
    replicas(ipus)
    spec = ops.HostEmbeddingSGDGAOptimizerSpec(RATE, together)
    initial = tf.constant_initializer(TABLE)
    made = ops.create_host_embedding("rows", TABLE.shape, tf.float32, optimizer_spec=spec, initializer=initial)
    with made.register():
        found = trained(KITS[kit].keras, together, stages, made)
    for one, other in zip(found, trained(KITS[kit].keras, together, stages), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert abs(found[2] - TABLE).max() > 0.01


@pytest.mark.parametrize("kit", KITS)
def test_tables_of_other_gradients_than_the_loss_s_are_refused(kit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of a loss that the optimizer scales, and those of one process of several."""
    keras = KITS[kit].keras
    made = ops.create_host_embedding(
        "rows", TABLE.shape, tf.float32, "TOKEN", ops.HostEmbeddingOptimizerSpec(RATE), tf.constant_initializer(TABLE)
    )

    class Rows(keras.layers.Layer):
        def call(self, ids: Any) -> Any:
            return made.lookup(ids)

    with IPUStrategy().scope(), made.register():
        ids = keras.Input((3,), dtype="int32", batch_size=BATCH)
        model = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(Rows()(ids))))
        scaling = keras.optimizers if kit == "keras" else keras.mixed_precision
        model.compile(scaling.LossScaleOptimizer(keras.optimizers.SGD(RATE)), "mse")
        with pytest.raises(ConfigurationError, match="optimizer that scales the loss"):
            model.fit(X, Y, BATCH, verbose=0)
        model.compile(keras.optimizers.SGD(RATE), "mse")
        monkeypatch.setattr(tables, "transport_of", lambda: SimpleNamespace(size=2))
        with pytest.raises(ConfigurationError, match="step of 2 processes"):
            model.fit(X, Y, BATCH, verbose=0)
        np.testing.assert_array_equal(made.get_embedding_tensor(), TABLE)
        monkeypatch.undo()
        model.fit(X, Y, BATCH, verbose=0)
    assert abs(np.asarray(made.get_embedding_tensor()) - TABLE).max() > 0.01
