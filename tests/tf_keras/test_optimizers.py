"""Optimizers that only tf_keras has, loss scaling, and embeddings, whose gradients are dense on the engine."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

import ipu
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Kit, assert_close, data

X, Y = data()
LEGACY = ("SGD", "Adam", "RMSprop", "Adamax", "Nadam", "Ftrl")
EMBEDDING_OPTIMIZERS = ("SGD", "Adam", "RMSprop", "Adagrad", "Ftrl")


def trained(model: Any) -> Any:
    return model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0).history


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", LEGACY)
def test_legacy_optimizers(kit: Kit, name: str) -> None:
    optimizer = getattr(keras.optimizers.legacy, name)
    kit.assert_same(trained, optimizer=lambda: optimizer(0.01), steps_per_execution=3)


def test_nadam_counts_as_in_a_graph(kit: Kit) -> None:
    """The optimizer's numbers depend on how often TensorFlow traced it: twice if the first step builds it."""
    keras.utils.set_random_seed(3)
    plain = kit.compiled(kit.sequential(), optimizer=keras.optimizers.Nadam(0.01), jit_compile=False)
    model = kit.ipu_model(optimizer=keras.optimizers.Nadam(0.01), steps_per_execution=3)
    model.set_weights(plain.get_weights())
    assert_close(trained(model), trained(plain))
    assert_close(model.get_weights(), plain.get_weights())


@pytest.mark.parametrize("name", ["Nadam", "legacy.Nadam"])
@pytest.mark.parametrize("has_trained", [False, True])
def test_accelerated_copies_continue(kit: Kit, name: str, has_trained: bool) -> None:
    """Nadam does not list the product of its momenta; legacy optimizers have no `build`."""
    keras.utils.set_random_seed(3)
    optimizer = attrgetter(name)(keras.optimizers)(0.01)
    plain = kit.compiled(kit.sequential(), optimizer=optimizer, jit_compile=False)
    if has_trained:
        plain.fit(X, Y, batch_size=12, shuffle=False, verbose=0)
    fast = ipu.accelerate(plain)
    assert fast is not plain
    assert_close(trained(fast), trained(plain))
    assert_close(fast.get_weights(), plain.get_weights())


def test_nadam_of_one_weight(kit: Kit) -> None:
    """The optimizer counts as built before `fit`, so one trace is enough; otherwise plain tf_keras divides by zero."""

    def build() -> Any:
        return keras.Sequential([keras.layers.Input((X.shape[1],)), keras.layers.Dense(3, use_bias=False)])

    kit.assert_same(trained, build, optimizer=lambda: keras.optimizers.Nadam(0.01), loss="mse", metrics=None)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.legacy.SGD(0.1, momentum=0.9, nesterov=True, clipnorm=0.1),
        lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.1),
        lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
        lambda: keras.optimizers.Adam(0.01, amsgrad=True, weight_decay=0.01),
        lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)),
    ],
)
def test_options(kit: Kit, make: Callable[[], Any]) -> None:
    kit.assert_same(trained, optimizer=make, steps_per_execution=2)


def test_optimizer_of_tensorflow_1(kit: Kit) -> None:
    kit.assert_same(trained, optimizer=lambda: tf.compat.v1.train.MomentumOptimizer(0.1, 0.9))


def embedding() -> Any:
    layers = keras.layers
    return keras.Sequential([layers.Input((6,)), layers.Embedding(200, 4), layers.Flatten(), layers.Dense(3)])


def embedding_trained(model: Any, tokens: np.ndarray, epochs: int) -> Any:
    targets = np.random.default_rng(1).normal(size=(len(tokens), 3)).astype(np.float32)
    return model.fit(tokens, targets, epochs=epochs, shuffle=False, verbose=0).history


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", EMBEDDING_OPTIMIZERS)
def test_repeated_rows_of_embeddings(kit: Kit, name: str) -> None:
    tokens = np.random.default_rng(0).integers(0, 10, (24, 6))
    kit.assert_same(
        lambda model: embedding_trained(model, tokens, 3),
        embedding,
        optimizer=lambda: getattr(keras.optimizers, name)(0.01),
        loss="mse",
        metrics=None,
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad"])
def test_embeddings_under_legacy_optimizers(kit: Kit, name: str) -> None:
    tokens = np.random.default_rng(0).integers(0, 10, (24, 6))
    kit.assert_same(
        lambda model: embedding_trained(model, tokens, 1),
        embedding,
        optimizer=lambda: getattr(keras.optimizers.legacy, name)(0.01),
        loss="mse",
        metrics=None,
    )


@pytest.mark.sample
@pytest.mark.parametrize("family", [keras.optimizers, keras.optimizers.legacy])
@pytest.mark.parametrize("dynamic", [True, False])
def test_loss_scaling(kit: Kit, family: Any, dynamic: bool) -> None:
    def scaled() -> Any:
        scale = {} if dynamic else {"initial_scale": 64.0}
        return keras.mixed_precision.LossScaleOptimizer(family.SGD(0.1, momentum=0.9), dynamic, **scale)

    kit.assert_same(trained, optimizer=scaled)


def test_overflow_skips_the_step(kit: Kit) -> None:
    model = kit.ipu_model(optimizer=keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.1)))
    before = model.get_weights()
    broken = X.copy()
    broken[0, 0] = np.inf
    scale = float(model.optimizer.loss_scale)
    model.fit(broken, Y, batch_size=24, verbose=0)
    assert float(model.optimizer.loss_scale) == scale / 2
    for received, expected in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(received, expected)


@pytest.mark.sample(1)
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(kit: Kit, policy: str) -> None:
    keras.mixed_precision.set_global_policy(policy)
    try:
        plain = kit.compiled(kit.sequential(), run_eagerly=True)
        with IPUStrategy().scope():
            model = kit.compiled(kit.sequential())
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert hasattr(model.optimizer, "loss_scale") == (policy == "mixed_float16")
    model.set_weights(plain.get_weights())
    received, expected = trained(model), trained(plain)
    # Half an ulp of 2**-11 or 2**-8 in each activation.
    np.testing.assert_allclose(received["loss"], expected["loss"], rtol=1e-2)
