"""PopnnLSTM and PopnnGRU against Keras' own layers: models trained on the IPU and elsewhere, states, layouts, masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops.rnn_cell import LSTMStateTuple

from ipu._internal.compiler.trace import trace_step
from ipu.config import IPUConfig
from ipu.ipu_strategy import IPUStrategy
from keras_ext.layers.errors import LayerArgumentError, LayerInputError
from tests.keras.helpers import CLASSES, Kit, assert_close, both_frameworks

SAMPLES, TIME, WORDS, UNITS = 8, 5, 7, 3


def recurrent_layers(kit: Kit) -> tuple[Any, Any]:
    """The classes LSTM and GRU: of the IPU under its strategy, otherwise of Keras."""
    layers = kit.keras.ipu.layers if isinstance(tf.distribute.get_strategy(), IPUStrategy) else kit.keras.layers
    return layers.LSTM, layers.GRU


def language_model(kit: Kit) -> Any:
    """A model that predicts the next word at each time step; its states go on from batch to batch."""
    layers, (lstm, gru) = kit.keras.layers, recurrent_layers(kit)
    words = kit.keras.Input(batch_shape=(4, TIME), dtype="int32")
    x = layers.Embedding(WORDS, 6)(words)
    x, h, c = lstm(6, return_sequences=True, return_state=True, stateful=True)(x)
    x = gru(6, return_sequences=True, reset_after=False, recurrent_activation="hard_sigmoid")(x, initial_state=h + c)
    return kit.keras.Model(words, layers.TimeDistributed(layers.Dense(WORDS, "softmax"))(x))


def classifier(kit: Kit) -> Any:
    """Builds a classifier of sequences of different lengths: word 0 is masked."""
    layers, (lstm, gru) = kit.keras.layers, recurrent_layers(kit)
    words = kit.keras.Input((TIME,), dtype="int32")
    x = layers.Embedding(WORDS, 6, mask_zero=True)(words)
    x = layers.Bidirectional(lstm(UNITS, return_sequences=True))(x)
    return kit.keras.Model(words, layers.Dense(CLASSES, "softmax")(gru(UNITS)(x)))


@pytest.mark.sample(1)
@pytest.mark.parametrize("build", [language_model, pytest.param(classifier, marks=pytest.mark.explore)])
def test_training_is_that_of_keras_own_layers(kit: Kit, build: Any) -> None:
    text = (np.arange(SAMPLES)[:, None] + np.arange(TIME + 1) ** 2).astype(np.int32) % WORDS
    words, y = text[:, :-1], text[:, 1:] if build is language_model else text.sum(axis=1) % CLASSES

    def program(model: Any) -> Any:
        losses = model.fit(words, y, batch_size=4, epochs=2, shuffle=False, verbose=0).history["loss"]
        return [losses, model.predict(words, batch_size=4, verbose=0)]

    kit.assert_same(program, lambda: build(kit))


def test_replicas(kit: Kit) -> None:
    """Two replicas, each with half of a batch, update as one replica does."""
    x = np.random.default_rng(0).normal(size=(SAMPLES, TIME, 4)).astype(np.float32)
    trained = []
    for count in (1, 2):
        config = IPUConfig()
        config.auto_select_ipus = count
        config.configure_ipu_system()
        kit.keras.utils.set_random_seed(2)
        with IPUStrategy().scope():
            layers = kit.keras.ipu.layers
            inner = [layers.PopnnLSTM(UNITS, return_sequences=True), layers.PopnnGRU(CLASSES)]
            model = kit.keras.Sequential([kit.keras.layers.Input((TIME, 4)), *inner])
            # Gradients of replicas are summed.
            model.compile(kit.keras.optimizers.SGD(0.1 / count), "mse", steps_per_execution=2)
            model.fit(x, np.ones((SAMPLES, CLASSES)), batch_size=4 // count, shuffle=False, verbose=0)
        trained.append(model.get_weights())
    assert_close(trained[1], trained[0])


@both_frameworks
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_layouts_states_and_weights(kit: Kit, name: str) -> None:
    """Time-major inputs and masks, initial states in Keras' order and by name, and weights of Keras' layer."""
    ours, theirs = (getattr(layers, name) for layers in (kit.keras.ipu.layers, kit.keras.layers))
    random = np.random.default_rng(0)
    x = tf.constant(random.normal(size=(SAMPLES, TIME, 4)).astype(np.float32))
    mask = random.random((SAMPLES, TIME)) > 0.3
    states = [tf.constant(random.normal(size=(SAMPLES, UNITS)).astype(np.float32)) for _ in range(1 + (name == "LSTM"))]
    plain = theirs(UNITS, return_sequences=True, return_state=True)
    expected = plain(x, initial_state=states, mask=tf.constant(mask))
    layer = ours(UNITS, return_sequences=True, return_state=True)
    layer.build((None, None, 4))
    assert [w.shape for w in (layer.kernel, layer.recurrent_kernel)] == [w.shape for w in plain.weights[:2]]
    assert_close(layer.biases, plain.weights[2])
    layer.set_weights(plain.get_weights())
    assert_close(layer(x, initial_state=states, mask=tf.constant(mask)), expected)
    time_major = ours(UNITS, return_sequences=True, return_state=True, time_major=True)
    time_major.build((TIME, SAMPLES, 4))
    time_major.set_weights(plain.get_weights())
    by_name = LSTMStateTuple(h=states[0], c=states[1]) if name == "LSTM" else states
    outputs, *last = time_major(tf.transpose(x, (1, 0, 2)), initial_state=by_name, mask=tf.constant(mask.T))
    assert_close([tf.transpose(outputs, (1, 0, 2)), *last], expected)
    assert layer.state_shape(2) == (([2, UNITS],) * 2 if name == "LSTM" else [2, UNITS])
    shape = time_major.compute_output_shape((TIME, SAMPLES, 4))
    assert [tuple(s) for s in shape] == [(TIME, SAMPLES, UNITS), *[(SAMPLES, UNITS)] * len(states)]


@both_frameworks
def test_one_mask_for_all_time_steps(kit: Kit) -> None:
    """A layer with a diagonal kernel, on inputs of ones, outputs zeros where the mask is."""
    layers = kit.keras.ipu.layers
    zeros = {"recurrent_initializer": "zeros", "kernel_initializer": "ones", "return_sequences": True}
    x = tf.ones((50, TIME, 1))
    for seed in (None, (3, 4)):
        layer = layers.PopnnGRU(1, dropout=0.5, dropout_seed=seed, **zeros)
        first, second = (np.asarray(layer(x, training=True))[:, 0, 0] for _ in range(2))
        outputs = np.asarray(layer(x, training=True))[..., 0]
        dropped = outputs[:, 0] == 0
        assert 10 < dropped.sum() < 40
        assert ((outputs == 0) == dropped[:, None]).all()
        assert (first == second).all() == (seed is not None)
        assert (np.asarray(layer(x, training=False)) != 0).all()


@both_frameworks
def test_seeds_of_initializers(kit: Kit) -> None:
    first, same, other = (kit.keras.ipu.layers.LSTM(UNITS, seed=seed) for seed in (1, 1, 2))
    for layer in (first, same, other):
        layer.build((None, TIME, 4))
    assert_close(same.get_weights(), first.get_weights())
    for one, two in zip(first.get_weights()[:2], other.get_weights()[:2], strict=True):
        assert (one != two).all()


@both_frameworks
def test_partials_reach_the_products_of_the_loop(kit: Kit) -> None:
    layers = kit.keras.ipu.layers
    x = np.random.default_rng(0).normal(size=(2, TIME, 4)).astype(np.float32)
    for kind in (layers.PopnnGRU, layers.PopnnLSTM):
        plain, half = kind(UNITS), kind(UNITS, partials_dtype=tf.float16)
        expected = plain(x)
        half.build(x.shape)
        half.set_weights(plain.get_weights())
        assert_close(half(x), expected)
        module = trace_step(half, [tf.TensorSpec(x.shape)]).module
        products = [i for c in module.computations() for i in c.instructions if i.opcode == "dot"]
        assert products and all(i["frontend_attributes"]["PARTIALS_TYPE"] == "half" for i in products)


def test_errors(kit: Kit) -> None:
    layers = kit.keras.ipu.layers
    for wrong in (
        {"use_bias": False},
        {"bias_regularizer": "l2"},
        {"recurrent_constraint": "non_neg"},
        {"recurrent_dropout": 0.5},
        {"go_backwards": True},
        {"unroll": True},
        {"implementation": 0},
        {"activation": "selu"},
        {"recurrent_activation": "relu"},
        {"partials_dtype": tf.int32},
        {"dropout_seed": 3},
    ):
        with pytest.raises(LayerArgumentError, match=next(iter(wrong)) if "dropout_seed" not in wrong else "seed"):
            layers.PopnnGRU(UNITS, **{"dropout": 0.5} | wrong)
    for shape in ((None, 4), (None, TIME, None)):
        with pytest.raises(LayerInputError, match="three dimensions"):
            layers.PopnnLSTM(UNITS).build(shape)
