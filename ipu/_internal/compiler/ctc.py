"""Connectionist temporal classification: the loss and its gradient, by forward and backward variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu._internal.compiler.constant_values import known
from ipu._internal.types import TensorLike

IMPOSSIBLE = -1e30
"""The logarithm of zero: finite, so that differences of two are no NaN."""


def log_sum(*terms: tf.Tensor) -> tf.Tensor:
    """log(exp(a) + exp(b) + ...), elementwise."""
    largest = terms[0]
    for each in terms[1:]:
        largest = tf.maximum(largest, each)
    return largest + tf.math.log(tf.add_n([tf.exp(each - largest) for each in terms]))


def losses_and_gradient(
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


def loss_of_sparse_labels(
    original: Callable[..., Any],
    labels: Any,
    inputs: TensorLike | None = None,
    sequence_length: TensorLike | None = None,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False,
    time_major: bool = True,
    logits: TensorLike | None = None,
    use_cudnn: bool = False,
) -> Any:
    """tf.compat.v1.nn.ctc_loss, of which XLA has no kernel, where the dense shape of the labels is known.

    As in TensorFlow's kernel, a label that is no class ends a row, and the last class is the blank.
    """
    given: Any = tf.convert_to_tensor(inputs if logits is None else logits)
    shape = known(labels.dense_shape) if isinstance(labels, tf.SparseTensor) else None
    is_usual = ctc_merge_repeated and not preprocess_collapse_repeated and not use_cudnn
    if not is_usual or shape is None or not given.shape.is_fully_defined() or given.dtype == tf.float64:
        options = preprocess_collapse_repeated, ctc_merge_repeated, ignore_longer_outputs_than_inputs
        return original(labels, inputs, sequence_length, *options, time_major, logits, use_cudnn)
    with tf.name_scope("CTCLoss"):
        scores = tf.cast(given, tf.float32)
        scores = scores if time_major else tf.transpose(scores, [1, 0, 2])
        blank = tf.shape(scores)[2] - 1
        lengths = tf.cast(sequence_length, tf.int32)
        dense, counts, given_counts = _dense_labels(labels, shape.tolist(), blank)
        _assert(lengths <= tf.shape(scores)[0], "sequence_length is above the number of time steps")
        is_longer = given_counts > lengths
        if not ignore_longer_outputs_than_inputs:
            _assert(~is_longer, "Not enough time for target transition sequence")
        log_probs = tf.nn.log_softmax(scores)
        compute = tf.custom_gradient(
            lambda data: losses_and_gradient(data, dense, counts, lengths, scores.shape[2] - 1)
        )
        losses = compute(log_probs)
        # Where no path gives the labels, TensorFlow's gradient is the softmax.
        is_valid = tf.sequence_mask(lengths, scores.shape[0])
        normalizers = tf.reduce_sum(tf.where(is_valid, tf.transpose(tf.reduce_logsumexp(scores, 2)), 0.0), 1)
        losses = tf.where(tf.math.is_inf(losses), float("inf") + normalizers, losses)
        losses = tf.where(is_longer, 0.0, losses)
        return tf.cast(losses, given.dtype)


def _dense_labels(labels: tf.SparseTensor, shape: list[int], blank: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """The labels, int32 [B, L], how many there are before the first that is no class, [B], and how many in all, [B]."""
    values = tf.cast(labels.values, tf.int32)
    is_given = tf.scatter_nd(labels.indices, tf.ones_like(values), shape) > 0
    dense = tf.scatter_nd(labels.indices, values, shape)
    order = tf.argsort(tf.cast(~is_given, tf.int32), axis=1, stable=True)  # rows may have gaps
    dense, is_given = (tf.gather(each, order, axis=1, batch_dims=1) for each in (dense, is_given))
    is_class = is_given & (dense < blank)
    ended = tf.cumsum(tf.cast(is_given & ~is_class, tf.int32), axis=1) > 0
    _assert(is_given[:, 0], "Labels length is zero in a row of the batch")
    _assert(dense >= 0, "All labels must be nonnegative integers")
    _assert(~(is_class & ended), "Saw a non-null label (index >= num_classes - 1) following a null label")
    return dense, *(tf.reduce_sum(tf.cast(each, tf.int32), axis=1) for each in (is_class, is_given))


def _assert(holds: tf.Tensor, message: str) -> None:
    tf.debugging.Assert(tf.reduce_all(holds), [message])
