"""Losses over a sample of the classes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu._internal.compiler.candidate_sampling import log_uniform_candidates
from ipu._internal.operators.checks import require
from ipu._internal.operators.serialization import serialized_lookup
from ipu._internal.types import TensorLike

Sampled = tuple[TensorLike, TensorLike, TensorLike] | None


def nce_loss(arguments: tuple[Any, ...], name: str | None) -> tf.Tensor:
    """Sums of the binary cross entropies of targets and candidates, [B]; `_sampled_logits` gets the arguments."""
    with tf.name_scope(name or "nce_loss"):
        logits, targets, dtype = _sampled_logits(False, None, *arguments)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)
        return tf.cast(tf.reduce_sum(losses, 1), dtype)


def sampled_softmax_loss(arguments: tuple[Any, ...], name: str | None, seed: int | None) -> tf.Tensor:
    """Cross entropies of softmax over targets and candidates, [B]; `_sampled_logits` gets the arguments."""
    with tf.name_scope(name or "sampled_softmax_loss"):
        logits, targets, dtype = _sampled_logits(True, seed, *arguments)
        return tf.cast(tf.nn.softmax_cross_entropy_with_logits(targets, logits), dtype)


def _sampled_logits(
    leaves_out_targets: bool,
    seed: int | None,
    weights: TensorLike,
    biases: TensorLike,
    labels: TensorLike,
    inputs: TensorLike,
    num_sampled: int,
    num_classes: int,
    num_true: int,
    sampled: Sampled,
) -> tuple[tf.Tensor, tf.Tensor, tf.DType]:
    """float32 logits of the targets and the candidates, [B, num_true + num_sampled], targets, and the inputs' type."""
    inputs = tf.convert_to_tensor(inputs)
    table = tf.concat(weights, 0) if isinstance(weights, list | tuple) else tf.convert_to_tensor(weights)
    biases = tf.convert_to_tensor(biases)
    labels = tf.reshape(tf.cast(labels, tf.int32), [-1, num_true])
    agree = (
        inputs.shape.rank == 2
        and table.shape == [num_classes, *inputs.shape.as_list()[1:]]
        and biases.shape == [num_classes]
    )
    shapes = f"shapes {table.shape}, {biases.shape} and {inputs.shape}"
    require(agree, f"weights [{num_classes}, dim], biases [{num_classes}] and inputs [batch_size, dim]", shapes)
    batch = inputs.shape.as_list()[0]
    require(labels.shape.is_compatible_with([batch, num_true]), f"labels [{batch}, {num_true}]", labels.shape)
    if sampled is None:
        sampled = log_uniform_candidates(labels, num_sampled, num_classes, seed)
    candidates, true_counts, counts = (tf.stop_gradient(tf.convert_to_tensor(each)) for each in sampled)
    candidates = tf.cast(candidates, tf.int32)
    require(candidates.shape == [num_sampled], f"{num_sampled} sampled candidates", candidates.shape)
    ids = tf.concat([tf.reshape(labels, [-1]), candidates], 0)
    found, offsets = serialized_lookup(table, ids, 1), serialized_lookup(biases[:, None], ids, 1)[:, 0]
    of_labels, of_candidates = found[:-num_sampled], found[-num_sampled:]
    of_labels = tf.reshape(of_labels, [-1, num_true, *table.shape.as_list()[1:]])
    true = tf.reduce_sum(tf.cast(inputs[:, None] * of_labels, tf.float32), -1)
    true += tf.reshape(tf.cast(offsets[:-num_sampled], tf.float32), [-1, num_true])
    other = tf.cast(tf.matmul(inputs, of_candidates, transpose_b=True), tf.float32)
    other += tf.cast(offsets[-num_sampled:], tf.float32)
    true -= tf.math.log(tf.cast(tf.reshape(true_counts, [-1, num_true]), tf.float32))
    other -= tf.math.log(tf.cast(counts, tf.float32))
    if leaves_out_targets:
        other = tf.where(tf.reduce_any(tf.equal(labels[..., None], candidates), 1), tf.float32.min, other)
    targets = tf.concat([tf.ones_like(true) / num_true, tf.zeros_like(other)], 1)
    return tf.concat([true, other], 1), targets, inputs.dtype
