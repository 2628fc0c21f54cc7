"""Connectionist temporal classification: the loss and its gradient, by forward and backward variables."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from ipu._internal.operators.checks import floating, require
from ipu._internal.types import TensorLike

IMPOSSIBLE = -1e30
"""The logarithm of zero: finite, so that differences of two are no NaN."""
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
        losses = tf.custom_gradient(lambda data: _losses(data, labels, labelled, timed, blank))
        return tf.cast(losses(tf.cast(data, tf.float32)), dtype)


def checked_blank(blank_index: int, classes: int | None) -> int:
    """The class of the blank, negative ones counted from the end. Raises ConfigurationError for no class."""
    require(classes is not None, "a known number of classes", classes)
    valid = isinstance(blank_index, int) and -(classes or 0) <= blank_index < (classes or 0)
    require(valid, f"blank_index to be one of {classes} classes", blank_index)
    return blank_index % (classes or 1)


def log_sum(*terms: tf.Tensor) -> tf.Tensor:
    """log(exp(a) + exp(b) + ...), elementwise."""
    largest = terms[0]
    for each in terms[1:]:
        largest = tf.maximum(largest, each)
    return largest + tf.math.log(tf.add_n([tf.exp(each - largest) for each in terms]))


def _losses(
    log_probs: tf.Tensor, labels: tf.Tensor, label_length: tf.Tensor, data_length: tf.Tensor, blank: int
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """The losses, and their gradient: in float32, as everything here."""
    open_sizes = tf.unstack(tf.shape(log_probs))
    time, batch, classes = (size or each for size, each in zip(log_probs.shape.as_list(), open_sizes, strict=True))
    # States alternate between blanks and labels: 2 L + 1 of them.
    blanks = tf.fill(tf.shape(labels), blank)
    symbols = tf.pad(tf.reshape(tf.stack([blanks, labels], 2), [batch, -1]), [[0, 0], [0, 1]], constant_values=blank)
    symbols = tf.clip_by_value(symbols, 0, classes - 1)  # padding of labels may be no class
    state = tf.range(tf.shape(symbols)[1])
    before = tf.pad(symbols, [[0, 0], [2, 0]], constant_values=-1)[:, :-2]
    may_skip = tf.not_equal(symbols, blank) & tf.not_equal(symbols, before)
    is_last = (state >= 2 * label_length[:, None] - 1) & (state <= 2 * label_length[:, None])
    ends = tf.where(is_last, 0.0, IMPOSSIBLE)
    starts = tf.broadcast_to(tf.where(tf.equal(state, 0), 0.0, IMPOSSIBLE), tf.shape(symbols))

    # Rows over time are gathered and summed whole: [B * C, T].
    rows = tf.range(batch)[:, None] * classes + symbols
    by_class = tf.reshape(tf.transpose(log_probs, [1, 2, 0]), [-1, time])
    emitted = tf.maximum(tf.transpose(tf.gather(by_class, rows), [2, 0, 1]), IMPOSSIBLE)
    is_valid = (tf.range(time)[:, None] < data_length)[..., None]

    def later(x: tf.Tensor, states: int) -> tf.Tensor:
        return tf.pad(x, [[0, 0], [states, 0]], constant_values=IMPOSSIBLE)[:, :-states]

    def earlier(x: tf.Tensor, states: int) -> tf.Tensor:
        return tf.pad(x, [[0, 0], [0, states]], constant_values=IMPOSSIBLE)[:, states:]

    def forward(alpha: tf.Tensor, at: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        skipped = tf.where(may_skip, later(alpha, 2), IMPOSSIBLE)
        return tf.where(at[1], log_sum(alpha, later(alpha, 1), skipped) + at[0], alpha)

    def backward(beta: tf.Tensor, after: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        next_beta = beta + after[0]
        skipped = earlier(tf.where(may_skip, next_beta, IMPOSSIBLE), 2)
        return tf.where(after[1], log_sum(next_beta, earlier(next_beta, 1), skipped), ends)

    alphas = tf.scan(forward, (emitted, is_valid), starts)
    total = tf.reduce_logsumexp(tf.where(is_last, alphas[-1], IMPOSSIBLE), 1)
    is_possible = total > IMPOSSIBLE / 10

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        following = tuple(tf.concat([each[1:], tf.zeros_like(each[:1])], 0) for each in (emitted, is_valid))
        betas = tf.scan(backward, following, ends, reverse=True)
        posterior = tf.exp(tf.minimum(alphas + betas - total[:, None], 0.0))
        posterior = tf.where(is_valid & is_possible[:, None], posterior, 0.0)
        by_row = tf.transpose(posterior, [1, 2, 0])
        summed = tf.math.unsorted_segment_sum(by_row, rows, batch * classes)
        expected = tf.transpose(tf.reshape(summed, [batch, classes, time]), [2, 0, 1])
        # The variables above are constants for a tape: derivatives of this would be wrong.
        expected = tf.raw_ops.PreventGradient(input=expected, message="ctc_loss has no second derivative.")
        return -expected * upstream[:, None]

    return tf.where(is_possible, -total, float("inf")), gradient
