"""Weights in several stages: of a shared layer, through another layer, and given to operations; all on one IPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.config import IPUConfig
from ipu.ipu_strategy import IPUStrategy
from ipu.ops.pipelining_ops import PipelineSchedule
from tests.keras.helpers import CLASSES, FEATURES, Kit, data
from tests.keras.pipelines import BATCH, assert_same_bits, set_stages, train_both, twins

STEPS, WORDS, LENGTH, WIDTH = 8, 9, 4, 6


def tied_class(kit: Kit) -> type:
    """A layer that projects with the weights of an embedding."""

    class Tied(kit.keras.layers.Layer):  # type: ignore[misc, name-defined]
        def __init__(self, embedding: Any, **named: Any) -> None:
            super().__init__(**named)
            self.embedding = embedding

        def call(self, inputs: Any) -> Any:
            return tf.matmul(inputs, tf.convert_to_tensor(self.embedding.embeddings), transpose_b=True)

    return Tied


def tied_functional(kit: Kit) -> Any:
    layers = kit.keras.layers
    inputs = kit.keras.Input((LENGTH,), dtype="int32")
    embedding = layers.Embedding(WORDS, WIDTH)
    x = layers.Dense(WIDTH, "tanh")(embedding(inputs))
    return kit.keras.Model(inputs, tied_class(kit)(embedding)(x))


def tied_operation(kit: Kit) -> Any:
    """A subclass that gives the embedding's weights to an operation."""

    class Language(kit.keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = kit.keras.layers.Embedding(WORDS, WIDTH)
            self.dense = kit.keras.layers.Dense(WIDTH, "tanh")

        def call(self, inputs: Any) -> Any:
            x = self.dense(self.embedding(inputs))
            if kit.is_keras3:
                return kit.keras.ops.einsum("bti,wi->btw", x, self.embedding.embeddings)
            return tf.einsum("bti,wi->btw", x, self.embedding.embeddings)

    model = Language()
    model.build(kit.keras.Input((LENGTH,), batch_size=BATCH, dtype="int32"))
    return model


SCHEDULES = [PipelineSchedule.Grouped, PipelineSchedule.Sequential]


def words() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(8)
    return tuple(generator.integers(0, WORDS, (2, 2 * STEPS * BATCH, LENGTH)).astype(np.int32))  # type: ignore[return-value]


@pytest.mark.filterwarnings("ignore:The following Variables were used in a Lambda layer")
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("build", [tied_functional, tied_operation])
def test_tied_embeddings(kit: Kit, build: Callable[[Kit], Any], schedule: PipelineSchedule, recompute: bool) -> None:
    """The first and the last stage are on one IPU by default; both contribute to the weight's gradient."""
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.allow_recompute = recompute
    with IPUStrategy().scope():
        count = len(build(kit).get_pipeline_stage_assignment())
    stages = [0, 1, *[2] * (count - 2)]
    models = twins(kit, build, stages, 6, pipeline_schedule=schedule)
    x, y = words()
    plain, pipelined = models
    x, y = x[: 12 * BATCH], y[: 12 * BATCH]
    before = plain.get_weights()
    plain.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    config.configure_ipu_system()
    pipelined.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    assert_same_bits(models)
    assert all((one != other).any() for one, other in zip(before, pipelined.get_weights(), strict=True))
    ipus = dict(sorted((row.stage, row.ipu) for row in pipelined.get_pipeline_schedule()))
    assert ipus == {0: 0, 1: 1, 2: 0}


def test_interleaved_stages_cannot_share(kit: Kit) -> None:
    _, model = twins(kit, tied_functional, [0, 1, 2], 6, pipeline_schedule=PipelineSchedule.Interleaved)
    x, y = words()
    with pytest.raises(NotImplementedError, match="different IPUs for training"):
        model.fit(x[: 12 * BATCH], y[: 12 * BATCH], batch_size=BATCH, verbose=0)


def test_sharing_that_keras_does_not_know_is_found_in_the_program(kit: Kit) -> None:
    """A layer uses another layer's weights without holding the layer."""

    lender: list[Any] = []

    class Borrowing(kit.keras.layers.Layer):  # type: ignore[misc, name-defined]
        def call(self, inputs: Any) -> Any:
            return tf.matmul(inputs, tf.convert_to_tensor(lender[0].kernel), transpose_b=True)

    with IPUStrategy().scope():
        layers = [kit.keras.layers.Dense(FEATURES), kit.keras.layers.Dense(FEATURES), Borrowing()]
        lender.append(layers[0])
        model = kit.keras.Sequential([kit.keras.layers.Input((FEATURES,)), *layers])
        model.compile("sgd", "mse", steps_per_execution=6)
    model.set_pipeline_stage_assignment([0, 1, 2])
    model.set_pipelining_options(6)
    x, _ = data(6 * BATCH)
    with pytest.raises(ValueError, match=r"device_mapping=\[0, 1, 2\] for stages 0 and 2.*device_mapping\[2\] = 0"):
        model.fit(x, x, batch_size=BATCH, verbose=0)
    with pytest.raises(ValueError, match="share a variable on one IPU"):
        model.predict(x, batch_size=BATCH, verbose=0)
    model.set_pipelining_options(6, device_mapping=[0, 1, 0])
    before = model.get_weights()
    model.fit(x, x, batch_size=BATCH, verbose=0)
    assert all((one != other).any() for one, other in zip(before, model.get_weights(), strict=True))


def test_losses_of_regularisation_share_nothing(kit: Kit) -> None:
    """Regularisation losses are added to the loss, which no layer's stage computes."""

    def build(kit: Kit) -> Any:
        layers = kit.keras.layers
        regularized = {"kernel_regularizer": "l2"}
        sizes = ((7, "relu"), (CLASSES, None))
        return kit.keras.Sequential(
            [layers.Input((FEATURES,)), *(layers.Dense(*size, **regularized) for size in sizes)]
        )

    models = twins(kit, build, [0, 1], 4)
    train_both(kit, models, *data(8 * BATCH), epochs=1)
    assert_same_bits(models)


def test_shared_layers_with_a_mapping_that_parts_them(kit: Kit) -> None:
    with IPUStrategy().scope():
        model = tied_functional(kit)
        model.compile("sgd", "mse", steps_per_execution=6)
    set_stages(model, [0, 1, 2])
    model.set_pipelining_options(6, device_mapping=[0, 1, 2])
    x, y = words()
    with pytest.raises(ValueError, match=r"share weights on one IPU.*device_mapping\[2\] = 0"):
        model.fit(x, y, batch_size=BATCH, verbose=0)
