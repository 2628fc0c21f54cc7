"""Connectionist temporal classification: the losses of logits and of log probabilities, with checked arguments."""

from __future__ import annotations

import tensorflow as tf

from ipu._internal.compiler.ctc import losses_and_gradient
from ipu._internal.operators.checks import floating, require
from ipu._internal.types import TensorLike

FLOATS = (tf.float16, tf.float32)


def loss_of_logits(
    labels: TensorLike,
    logits: TensorLike,
    label_length: TensorLike,
    logit_length: TensorLike,
    blank_index: int,
    out_dtype: tf.DType | None,
    name: str | None,
) -> tf.Tensor:
    """Computes the loss of logits, as `loss_of_log_probs` does of log-probabilities."""
    logits = floating(logits, "logits")
    probabilities = tf.nn.log_softmax(tf.cast(logits, tf.float32))
    dtype = checked_type(out_dtype, logits.dtype)
    return loss_of_log_probs(labels, probabilities, label_length, logit_length, blank_index, None, name, dtype)


def checked_type(out_dtype: tf.DType | None, dtype: tf.DType) -> tf.DType:
    """The type of the losses for data of type `dtype`. Raises ConfigurationError for float16 losses of float32."""
    result = tf.as_dtype(out_dtype or dtype)
    allowed = FLOATS if dtype == tf.float16 else FLOATS[1:]
    require(result in allowed, f"out_dtype {' or '.join(each.name for each in allowed)}", result.name)
    return result


def loss_of_log_probs(
    labels: TensorLike,
    log_probs: TensorLike,
    label_length: TensorLike,
    data_length: TensorLike,
    blank_index: int,
    out_dtype: tf.DType | None,
    name: str | None,
    dtype: tf.DType | None = None,
) -> tf.Tensor:
    """Losses [B] of log probabilities [T, B, C] and labels [B, L]; `dtype` is the result's, if it has been checked."""
    with tf.name_scope(name or "ctc_loss"):
        data = floating(log_probs, "data")
        dtype = dtype or checked_type(out_dtype, data.dtype)
        labels, labelled, timed = (tf.cast(each, tf.int32) for each in (labels, label_length, data_length))
        shapes = f"shapes {labels.shape}, {data.shape}, {labelled.shape} and {timed.shape}"
        require(data.shape.rank == 3 and labels.shape.rank == 2, "data [T, B, C] and labels [B, L]", shapes)
        batch = data.shape[1:2]
        agree = all(each.is_compatible_with(batch) for each in (labels.shape[:1], labelled.shape, timed.shape))
        require(agree, "a row of labels and two lengths for each of the batch", shapes)
        blank = checked_blank(blank_index, data.shape.as_list()[2])
        losses = tf.custom_gradient(lambda data: losses_and_gradient(data, labels, labelled, timed, blank))
        return tf.cast(losses(tf.cast(data, tf.float32)), dtype)


def checked_blank(blank_index: int, classes: int | None) -> int:
    """The class of the blank, negative ones counted from the end. Raises ConfigurationError for no class."""
    require(classes is not None, "a known number of classes", classes)
    valid = isinstance(blank_index, int) and -(classes or 0) <= blank_index < (classes or 0)
    require(valid, f"blank_index to be one of {classes} classes", blank_index)
    return blank_index % (classes or 1)
