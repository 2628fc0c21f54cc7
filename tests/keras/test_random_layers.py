"""Keras 3's random layers draw the numbers of plain Keras; stateful random numbers obey their seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from engine.ir import Shape
from engine.ops.generators import RNG_STATE
from engine.ops.random import philox_bits, three_fry_bits
from ipu import utils
from ipu.ipu_strategy import IPUStrategy
from tests.exploring import sample
from tests.keras import helpers
from tests.keras.helpers import KITS

KIT = KITS["keras"]
layers = keras.layers
RANDOM = np.random.default_rng(4)
IMAGES = RANDOM.uniform(0, 1, (12, 8, 7, 3)).astype(np.float32)
FEATURES = RANDOM.normal(size=(12, 6, 5)).astype(np.float32)
VOLUMES = RANDOM.normal(size=(12, 4, 3, 3, 5)).astype(np.float32)
TARGETS = RANDOM.normal(size=(12, 2)).astype(np.float32)


@pytest.fixture(autouse=True)
def exacting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes tests compare more closely than elsewhere, and restores the hidden state after them."""
    monkeypatch.setattr(helpers, "TOLERANCE", 1e-5)
    before = RNG_STATE.read()
    yield
    RNG_STATE.write(before)


@pytest.mark.sample
@pytest.mark.parametrize(
    ("number", "generator", "words"), [(1, philox_bits, 3), (1, philox_bits, 2), (2, three_fry_bits, 2)]
)
@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
def test_bits_are_those_of_xla(number: int, generator: Callable[..., Any], words: int, dtype: str) -> None:
    kind = f"u{8 * np.dtype(dtype).itemsize}"
    for dimensions in sample(([7], [1], [4], [3, 5], [5, 3, 7], [2, 3], [3, 4, 5], [70, 91]), 3):
        state = RANDOM.integers(0, 2**64 - 1, words, np.uint64)
        state[1] = 2**64 - 3

        @tf.function(jit_compile=True)
        def drawn(state: tf.Tensor, dimensions: list[int] = dimensions) -> Any:
            return gen_xla_ops.xla_rng_bit_generator(number, state, dimensions, dtype=dtype)

        for result, expected in zip(generator(state, Shape(kind, tuple(dimensions))), drawn(state), strict=True):
            np.testing.assert_array_equal(result, expected.numpy())


FEATURE_LAYERS = {
    "Dropout": lambda: layers.Dropout(0.4),
    "Dropout with a noise shape": lambda: layers.Dropout(0.4, noise_shape=(None, 1, 5)),
    "Dropout with a seed": lambda: layers.Dropout(0.9, seed=11),
    "SpatialDropout1D": lambda: layers.SpatialDropout1D(0.4),
    "GaussianNoise": lambda: layers.GaussianNoise(0.3),
    "GaussianDropout": lambda: layers.GaussianDropout(0.3),
    "AlphaDropout": lambda: layers.AlphaDropout(0.3),
    "LSTM": lambda: layers.LSTM(4, dropout=0.3, recurrent_dropout=0.2),
    "MultiHeadAttention": lambda: SelfAttention(),
}
IMAGE_LAYERS = {
    "SpatialDropout2D": lambda: layers.SpatialDropout2D(0.4),
    "RandomFlip": lambda: layers.RandomFlip(),
    "RandomBrightness": lambda: layers.RandomBrightness(0.3, value_range=(0, 1)),
    "RandomContrast": lambda: layers.RandomContrast(0.3, value_range=(0, 1)),
    "RandomGrayscale": lambda: layers.RandomGrayscale(0.5),
    "RandomColorDegeneration": lambda: layers.RandomColorDegeneration(0.5, value_range=(0, 1)),
    "RandomSaturation": lambda: layers.RandomSaturation(0.4, value_range=(0, 1)),
    "RandomHue": lambda: layers.RandomHue(0.4, value_range=(0, 1)),
    "RandomSharpness": lambda: layers.RandomSharpness(0.5, value_range=(0, 1)),
    "RandomPosterization": lambda: layers.RandomPosterization(3, value_range=(0, 1)),
    "RandomInvert": lambda: layers.RandomInvert(0.5, value_range=(0, 1)),
    "RandomErasing": lambda: layers.RandomErasing(0.8, value_range=(0, 1)),
    "RandomGaussianBlur": lambda: layers.RandomGaussianBlur(0.8, value_range=(0, 1)),
    "RandomColorJitter": lambda: layers.RandomColorJitter((0, 1), 0.2, 0.2, 0.2, 0.2),
}


class SelfAttention(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.attention = layers.MultiHeadAttention(2, 3, dropout=0.3)

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.attention(inputs, inputs, training=training)


def check(make: Callable[[], keras.layers.Layer], inputs: np.ndarray, **compilation: Any) -> None:
    """Asserts that three steps give the weights and losses of plain Keras."""

    def build() -> keras.Model:
        return keras.Sequential([layers.Input(inputs.shape[1:]), make(), layers.Flatten(), layers.Dense(2)])

    def program(model: keras.Model) -> Any:
        history = model.fit(inputs, TARGETS, batch_size=4, shuffle=False, verbose=0).history
        state = [np.array(v) for v in model.non_trainable_variables]
        return history, state, model.predict(inputs, verbose=0)

    settings = {"loss": "mse", "metrics": None, **compilation}
    KIT.assert_same(program, build, optimizer=lambda: keras.optimizers.SGD(0.05), **settings)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.explore) if name == "LSTM" else name for name in FEATURE_LAYERS]
)
def test_layers_of_features(name: str) -> None:
    check(FEATURE_LAYERS[name], FEATURES)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", IMAGE_LAYERS)
def test_layers_of_images(name: str) -> None:
    check(IMAGE_LAYERS[name], IMAGES)


@pytest.mark.explore
def test_layers_of_volumes() -> None:
    check(lambda: layers.SpatialDropout3D(0.4), VOLUMES)


@pytest.mark.sample(1)
@pytest.mark.parametrize("steps_per_execution", [1, 2, 3])
def test_steps_of_one_call_draw_different_masks(steps_per_execution: int) -> None:
    check(lambda: layers.Dropout(0.5), FEATURES, steps_per_execution=steps_per_execution)


@pytest.mark.parametrize(("batch", "jit_compile"), [(4, True), (5, False)])
def test_dropout_between_layers_over_epochs(batch: int, jit_compile: bool) -> None:
    def build() -> keras.Model:
        return keras.Sequential(
            [
                *(layers.Input((30,)), layers.Dense(20, "relu"), layers.Dropout(0.3)),
                *(layers.Dense(16, "relu"), layers.Dropout(0.2), layers.Dense(2)),
            ]
        )

    def program(model: keras.Model) -> Any:
        inputs = FEATURES.reshape(12, 30)
        return model.fit(inputs, TARGETS, batch_size=batch, epochs=2, shuffle=False, verbose=0).history

    KIT.assert_same(program, build, loss="mse", metrics=None, jit_compile=jit_compile, steps_per_execution=2)


class Noisy(keras.layers.Layer):
    """Adds numbers from TensorFlow's stateful generators."""

    def call(self, inputs: Any) -> Any:
        shape = inputs.shape[1:]
        return inputs + tf.stack([tf.random.uniform(shape), tf.random.normal(shape), tf.random.uniform(shape)])


def noise(model: keras.Model) -> np.ndarray:
    """Three batches of [uniform, normal, uniform] noise."""
    return model.predict(np.zeros((9, 40, 50), np.float32), batch_size=3, verbose=0).reshape(3, 3, 2000)


def test_stateful_numbers_obey_reset_ipu_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    model = KIT.ipu_model(lambda: keras.Sequential([layers.Input((40, 50)), Noisy()]), steps_per_execution=3)
    drawn = []
    for seed, workers in ((1, "1"), (1, "2"), (1, "3"), (2, "2")):
        monkeypatch.setenv("NUMBA_NUM_THREADS", workers)
        utils.reset_ipu_seed(seed)
        drawn.append(noise(model))
    for again in drawn[1:3]:
        np.testing.assert_array_equal(again, drawn[0])
    arrays = np.concatenate([*drawn[0], *drawn[3], *noise(model)])
    assert len(np.unique(arrays, axis=0)) == len(arrays) == 27
    assert abs(np.corrcoef(arrays) - np.eye(27)).max() < 0.12
    uniform, normal = drawn[0][:, ::2], drawn[0][:, 1]
    assert 0 <= uniform.min() and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.02
    assert abs(normal.mean()) < 0.06 and abs(normal.std() - 1) < 0.06


def test_stateful_dropout_keeps_its_share_and_scales_it() -> None:
    function = tf.function(lambda x: tf.nn.dropout(x, 0.25), jit_compile=True)
    utils.reset_ipu_seed(5)
    with IPUStrategy().scope():
        kept, again = (IPUStrategy().run(function, (tf.ones((100, 100)),)).numpy() for _ in range(2))
    np.testing.assert_allclose(np.unique(kept), [0, 1 / 0.75], rtol=1e-6)
    assert abs((kept > 0).mean() - 0.75) < 0.02
    assert (kept != again).any()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1.5,), TypeError, "integer.*1.5"),
        (("one",), TypeError, "integer.*'one'"),
        ((1, "/device:GPU:0"), ValueError, "/device:IPU:0.*GPU"),
        ((1, "/device:IPU:7"), ValueError, "Received: 7"),
    ],
)
def test_seeds_and_devices_that_are_none(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    before = RNG_STATE.read()
    with pytest.raises(error, match=message):
        utils.reset_ipu_seed(*arguments)
    np.testing.assert_array_equal(RNG_STATE.read(), before)
