"""Gradients of embeddings are clipped as in Keras: the values of IndexedSlices, before equal rows are added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Kit, assert_close, tf_keras_only
from tests.keras.micro_batches import configure
from tests.keras.test_embeddings import BATCH, TARGETS, TOKENS, pooled, same_as_keras, scaled

CLIPPED = {"clipnorm": 0.1, "global_clipnorm": 0.1, "clipvalue": 0.01}


@pytest.mark.parametrize(("name", "clip"), [*(("SGD", each) for each in CLIPPED), ("Adam", "global_clipnorm")])
def test_optimizers(kit: Kit, name: str, clip: str) -> None:
    """Compares SGD, and Adam under a scaled loss. Errors of clipping change Adam's updates least."""
    family = kit.keras.optimizers

    def optimizer() -> Any:
        made = getattr(family, name)(0.5 if name == "SGD" else 0.02, **{clip: CLIPPED[clip]})
        return made if name == "SGD" else scaled(family)(made)

    same_as_keras(kit, pooled, optimizer)


@tf_keras_only
@pytest.mark.sample(1)
@pytest.mark.parametrize("chosen", ["gradient_transformers", *CLIPPED])
def test_legacy_optimizers(kit: Kit, chosen: str) -> None:
    def clipped(pairs: Any) -> Any:
        return [(tf.clip_by_norm(gradient, 0.1), variable) for gradient, variable in pairs]

    argument: dict[str, Any] = {chosen: CLIPPED.get(chosen, [clipped])}
    same_as_keras(kit, pooled, lambda: tf_keras.optimizers.legacy.SGD(0.5, **argument))


def test_users_methods_that_apply_gradients(kit: Kit) -> None:
    class Clipping(kit.keras.optimizers.SGD):  # type: ignore[name-defined]
        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            return super().apply(tf.clip_by_global_norm(grads, 0.1)[0], trainable_variables)

        def apply_gradients(self, grads_and_vars: Any, *arguments: Any, **named: Any) -> Any:
            gradients, variables = zip(*grads_and_vars, strict=True)
            if not kit.is_keras3:  # whose `apply_gradients` calls `apply`
                gradients = [tf.clip_by_norm(each, 0.1) for each in gradients]
            return super().apply_gradients(list(zip(gradients, variables, strict=True)), *arguments, **named)

    same_as_keras(kit, pooled, lambda: Clipping(0.5))


def loop_of(kit: Kit) -> tuple[Any, Callable[..., Any]]:
    """A model, and a step of the user's own training loop."""
    kit.keras.utils.set_random_seed(1)
    model, optimizer = pooled(kit), kit.keras.optimizers.SGD(0.5, clipnorm=0.1)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(tokens: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(tokens) - targets) ** 2)
        gradients = tape.gradient(loss, [kit.variable(w) for w in model.trainable_variables])
        optimizer.apply_gradients(list(zip(gradients, model.trainable_variables, strict=True)))
        return loss

    return model, step


def test_loops_of_ones_own(kit: Kit) -> None:
    """Gradients of two replicas are added in a step that was traced for one."""
    batch = TOKENS[0][:BATCH].astype(np.int32), TARGETS[:BATCH]
    plain, expected = loop_of(kit)
    expected(*batch)
    configure(1)
    strategy = IPUStrategy()
    with strategy.scope():
        models, steps = zip(*(loop_of(kit) for _ in range(2)), strict=True)
        strategy.run(steps[0], batch)
        assert_close(models[0].get_weights(), plain.get_weights())
        configure(2)
        models[0].set_weights(models[1].get_weights())
        for step in steps:
            strategy.run(step, batch)
    before = loop_of(kit)[0].get_weights()
    assert_close(models[0].get_weights(), models[1].get_weights())
    assert np.abs(models[0].get_weights()[1] - before[1]).max() > 1e-3
