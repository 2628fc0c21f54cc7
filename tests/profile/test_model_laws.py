"""Laws of whole Keras models' estimates: larger batches, fewer tiles, training and float32 are not cheaper."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import keras
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.compile import build_program
from engine.profile.options import Assumptions
from engine.profile.program_estimate import Estimate, estimate
from engine.program.program import Program
from engine.target import target
from ipu._internal.compiler.trace import trace_step
from keras_ext.frameworks.keras3 import Keras3

LAYERS = keras.layers
MK2 = target("ipu2")
MODELS: dict[str, tuple[tuple[int, ...], Any]] = {
    "perceptron": ((37,), lambda: [LAYERS.Dense(61, "relu"), LAYERS.Dense(127, "tanh")]),
    "convolutions": (
        (12, 12, 3),
        lambda: [LAYERS.Conv2D(6, 3, padding="same"), LAYERS.BatchNormalization(), LAYERS.MaxPool2D()],
    ),
    "recurrent": ((7, 13), lambda: [LAYERS.GRU(24)]),
}
"""The shape of a sample, and layers before a last dense one."""


@cache
def program(name: str, batch: int, policy: str = "float32", mode: str = "train") -> Program:
    shape, layers = MODELS[name]
    with ipu.ipu_strategy.IPUStrategy().scope():
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy(policy)
        model = keras.Sequential([keras.Input(shape), *layers(), LAYERS.Flatten(), LAYERS.Dense(3)])
        keras.config.set_dtype_policy(before)
        model.compile("sgd", "mse")
        specs = [tf.TensorSpec((batch, *shape)), *([tf.TensorSpec((batch, 3))] if mode == "train" else [])]
        traced = trace_step(lambda *given: Keras3().step(model, mode, given), specs)
    return build_program(traced.module, traced.roles, traced.constants)


def of(name: str, *given: Any, **options: Any) -> Estimate:
    return estimate(program(name, *given), MK2, **options)


def on_chip(found: Estimate) -> int:
    return found.compute + found.exchange + found.sync


@pytest.mark.parametrize("name", MODELS)
def test_larger_batches_are_not_cheaper(name: str) -> None:
    """Nor are they dearer than as many smaller ones."""
    sizes = (1, 16, 64)
    for (few, one), (many, other) in pairwise((size, of(name, size)) for size in sizes):
        assert on_chip(one) <= 1.02 * on_chip(other)
        assert on_chip(other) <= 1.02 * many / few * on_chip(one)
        assert one.memory.peak_fullest <= 1.02 * other.memory.peak_fullest


@pytest.mark.parametrize("name", MODELS)
def test_training_and_single_precision_are_dearer(name: str) -> None:
    training, halves = of(name, 16), of(name, 16, "mixed_bfloat16")
    inference = of(name, 16, "float32", "predict")
    assert on_chip(inference) < on_chip(training)
    assert inference.memory.peak_fullest < training.memory.peak_fullest
    assert on_chip(halves) <= on_chip(training)


@pytest.mark.parametrize("name", MODELS)
def test_fewer_tiles_and_less_memory_take_longer(name: str) -> None:
    made, whole = program(name, 16), of(name, 16)
    cut = estimate(made, target("ipu2", 32))
    assert on_chip(cut) > on_chip(whole) and cut.memory.peak_fullest > whole.memory.peak_fullest
    tight = of(name, 16, assumptions=Assumptions(available_memory_proportion=0.01))
    assert on_chip(tight) >= on_chip(whole)


@pytest.mark.parametrize("name", MODELS)
def test_replicas_compute_as_one_does_and_sum_gradients(name: str) -> None:
    one, four = of(name, 16), of(name, 16, replicas=4)
    assert (four.compute, four.memory.peak_fullest) >= (one.compute, one.memory.peak_fullest)
    assert four.cycles - sum(four.between_ipus) == one.cycles
    assert sum(one.gradient_sums) == sum(four.gradient_sums) > 0
