"""Reports name the regime of a program that no published figure is of, or name the share of its step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from engine.compile import build_program
from engine.profile.prediction import LOOKUPS, UNMEASURED, error_basis, trust_in_cycles
from engine.profile.program_estimate import estimate
from engine.profile.validation import DENSE, bounds
from engine.target import target
from ipu._internal.compiler.trace import trace_step


def _of(*shape: int, kind: tf.DType = tf.float32) -> tf.TensorSpec:
    return tf.TensorSpec(shape, kind)


def _sequence(x: tf.Tensor, taps: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(taps)
        loss = tf.reduce_sum(tf.nn.conv1d(x, taps, 1, "SAME") ** 2)
    return tape.gradient(loss, taps)


def _attention(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax(tf.matmul(x, x, transpose_b=True)) @ x @ w


def _trained_attention(x: tf.Tensor, w: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(w)
        loss = tf.reduce_sum(_attention(x, w) ** 2)
    return tape.gradient(loss, w)


def _layers(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    for _ in range(8):
        x = tf.nn.relu(x @ w)
    return x


def _fourier(x: tf.Tensor) -> tf.Tensor:
    return tf.abs(tf.signal.fft(tf.cast(x, tf.complex64)))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tf.TensorSpec, ...]]] = {
    DENSE[True]: (_layers, (_of(1024, 1024), _of(1024, 1024))),
    "convolutional networks": (
        lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"),
        (_of(4, 56, 56, 64), _of(3, 3, 64, 64)),
    ),
    "transformers in training": (_trained_attention, (_of(64, 256, 256), _of(256, 1024))),
    "transformers in inference": (_attention, (_of(64, 256, 256), _of(256, 1024))),
    "batched products below 64 columns": (_trained_attention, (_of(1024, 49, 32), _of(32, 64))),
    "convolutions of one dimension": (_sequence, (_of(4, 4096, 64), _of(5, 64, 64))),
    "convolutions of three dimensions": (
        lambda x, w: tf.nn.conv3d(x, w, (1,) * 5, "SAME"),
        (_of(2, 32, 32, 32, 16), _of(3, 3, 3, 16, 32)),
    ),
    "depthwise convolutions": (
        lambda x, w: tf.nn.depthwise_conv2d(x, w, (1,) * 4, "SAME"),
        (_of(8, 56, 56, 144), _of(5, 5, 144, 1)),
    ),
    LOOKUPS: (tf.gather, (_of(65536, 64), _of(8192, kind=tf.int32))),
    "sorts": (tf.sort, (_of(256, 4096),)),
    "Fourier transforms": (_fourier, (_of(1024, 4096),)),
    "cumulative sums": (lambda x: tf.cumsum(x, 1), (_of(2048, 4096),)),
    "factorizations": (tf.linalg.cholesky, (_of(256, 256),)),
    "operations on integers": (lambda x: x // 7, (_of(2048, 2048, kind=tf.int32),)),
    "compiled element-wise": (lambda x: tf.tanh(x) * tf.exp(x), (_of(4096, 4096),)),
}


@pytest.mark.parametrize("regime", PROGRAMS)
def test_the_regime_of_most_of_a_step(regime: str) -> None:
    step, specs = PROGRAMS[regime]
    trace = trace_step(step, list(specs))
    found = trust_in_cycles(estimate(build_program(trace.module, trace.roles, trace.constants), target("bow")))
    assert found[0].regime == regime and found[0].share > 0.5
    if regime not in bounds():
        assert found[0].error == UNMEASURED
        assert f"{regime}, {found[0].share:.0%}: no figure held out" in error_basis(found)
