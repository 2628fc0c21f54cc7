"""Dropout of a Keras layer as a chip has it: one vertex that generates its bits, and no arithmetic for keys."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from engine.compile import build_program
from engine.profile.program_estimate import Estimate, estimate
from engine.target import target
from ipu._internal.compiler.trace import trace_step

SHAPE = (1472 * 6, 400)
"""Each worker has a row."""


def dropout_step(trains: bool) -> Estimate:
    layer, weights = keras.layers.Dropout(0.1), tf.Variable(tf.zeros((400, 400)))
    layer.build(SHAPE)

    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True) @ weights
        return tape.gradient(y, x) if trains else y

    trace = trace_step(step, [tf.TensorSpec(SHAPE)])
    return estimate(build_program(trace.module, trace.roles, trace.constants), target("ipu2"))


@pytest.mark.parametrize("trains", [False, True])
def test_a_dropout_costs_two_cycles_for_each_vector(trains: bool) -> None:
    found = dropout_step(trains)
    costs = [cost for cost in found.costs if cost.operation.unit != "AMP" and cost.cycles]
    seeds = [cost for cost in costs if cost.tiles == 1]
    assert len(seeds) <= 1, seeds  # the counter of Keras' seed goes on
    (seed,) = (cost for cost in costs if cost.exchange)
    assert seed.exchange < 120  # a chip's generators receive the seed alone
    vertices = sum(cost.compute for cost in costs if cost not in (seed, *seeds))
    assert vertices == pytest.approx(6 * 400 / 2 * 2, rel=0.1)


def test_neither_bits_nor_masks_nor_keys_are_on_the_tiles() -> None:
    found = dropout_step(trains=True)
    made = [tensor for tensor in found.liveness if tensor.shape and not tensor.always_live]
    assert made and {tensor.shape.partition("[")[0] for tensor in made} == {"f32"}
