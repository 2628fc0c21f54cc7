"""CTC losses against TensorFlow's, beam search against all paths."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import UnsupportedOperation
from ipu.ipu_strategy import IPUStrategy
from tests.collectives.running import on_replicas
from tests.operators.comparing import check

RANDOM = np.random.default_rng(5)
LOGITS = RANDOM.normal(size=(5, 4, 5)) * 2
LABELS = np.int32([[1, 1, 2], [3, 3, 9], [2, -1, 99], [0, 0, 0]])
LABEL_LENGTH, LENGTH = np.int32([3, 2, 1, 0]), np.int32([5, 4, 3, 5])
nn_ops = ipu.nn_ops


def collapsed(path: tuple[int, ...], blank: int) -> tuple[int, ...]:
    """The labels that a path of classes stands for."""
    return tuple(k for k, _ in itertools.groupby(path) if k != blank)


def brute_force(logits: tf.Tensor, labels: list[list[int]], blank: int) -> tf.Tensor:
    """Negative log probabilities, by enumerating all paths."""
    losses = []
    for sample, wanted in enumerate(labels):
        rows = tf.nn.log_softmax(logits[: LENGTH[sample], sample])
        paths = itertools.product(range(rows.shape[1]), repeat=rows.shape[0])
        members = [path for path in paths if collapsed(path, blank) == tuple(wanted)]
        scores = tf.reduce_sum(tf.gather(rows, np.array(members).T, axis=1, batch_dims=1), 0)
        losses.append(-tf.reduce_logsumexp(scores))
    return tf.stack(losses)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("blank", "dtype"), [(0, np.float32), (-1, np.float16)])
def test_losses_and_gradients(blank: int, dtype: Any) -> None:
    """The input may be log probabilities, too: log_softmax has a gradient of its own."""

    def of_logits(logits: tf.Tensor) -> tf.Tensor:
        return nn_ops.ctc_loss_v2(LABELS, logits, LABEL_LENGTH, LENGTH, blank)

    def of_log_probs(logits: tf.Tensor) -> tf.Tensor:
        data = tf.nn.log_softmax(tf.cast(logits, tf.float32))
        return tf.cast(nn_ops.ctc_loss_with_log_probs(LABELS, data, LABEL_LENGTH, LENGTH, blank), logits.dtype)

    for operator in (of_logits, of_log_probs):
        check(operator, lambda x: brute_force(x, [[1, 1, 2], [3, 3], [2], []], blank % 5), LOGITS, dtype=dtype)


def test_types_of_losses() -> None:
    """float16 logits may have float32 losses, which are not rounded."""
    logits, exact = LOGITS.astype(np.float16), nn_ops.ctc_loss_v2(LABELS, np.float32(LOGITS), LABEL_LENGTH, LENGTH, 0)
    for operator in (nn_ops.ctc_loss_v2, nn_ops.ctc_loss_with_logits):
        losses = operator(LABELS, logits, LABEL_LENGTH, LENGTH, 0, out_dtype=tf.float32)
        rounded = operator(LABELS, logits, LABEL_LENGTH, LENGTH, 0, out_dtype=tf.float16)
        assert (losses.dtype, rounded.dtype) == (tf.float32, tf.float16)
        np.testing.assert_array_equal(rounded, tf.cast(losses, tf.float16))
        assert np.any(losses != tf.cast(rounded, tf.float32))
    for data in (np.float32(logits), logits):
        losses = nn_ops.ctc_loss(LABELS, tf.nn.log_softmax(data), LABEL_LENGTH, LENGTH, 0, out_dtype=tf.float32)
        np.testing.assert_allclose(losses, exact, rtol=1e-2)


def test_losses_are_tensorflows() -> None:
    """Losses with too many paths to enumerate; TensorFlow's labels have no -1."""
    logits, lengths = RANDOM.normal(size=(30, 4, 9)).astype(np.float32), np.int32([30, 21, 30, 17])
    labels, counts = RANDOM.integers(1, 9, (4, 10), np.int32), np.int32([10, 7, 1, 4])
    expected = tf.nn.ctc_loss(labels, logits, counts, lengths, blank_index=0)
    received = on_replicas(lambda x: nn_ops.ctc_loss_v2(labels, x, counts, lengths, 0), 1, logits)
    np.testing.assert_allclose(received, expected, rtol=1e-5)


SPARSE = np.int32([[0, 1, 2, -1], [1, 1, -1, -1], [3, 4, 4, 9], [0, -1, 3, 3]])
"""Labels of five classes, of which the last is the blank; -1 is no label. Classes from the blank on end a row."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("options", "lengths"),
    [
        ({}, [5, 2, 4, 5]),  # row 1 needs three steps
        ({"ignore_longer_outputs_than_inputs": True}, [2, 3, 4, 0]),
        ({"time_major": False}, [4, 3, 4, 4]),
        ({"blank_index": -1}, [5, 2, 4, 5]),
        ({"blank_index": 1}, [5, 4, 3, 4]),
    ],
)
def test_losses_of_sparse_labels(options: dict[str, Any], lengths: list[int], dtype: Any) -> None:
    """TensorFlow's kernel computes them in plain Keras' `ctc_batch_cost`, and XLA has none."""
    labels = np.where(SPARSE == 1, 2, SPARSE)[:, :3] if options.get("blank_index") == 1 else SPARSE
    logits = LOGITS.astype(dtype) if options.get("time_major", True) else LOGITS.transpose(1, 0, 2).astype(dtype)

    def function(logits: tf.Tensor, labels: tf.Tensor, lengths: tf.Tensor) -> list[tf.Tensor]:
        where = tf.where(labels >= 0)
        sparse = tf.SparseTensor(where, tf.gather_nd(labels, where), tf.shape(labels, tf.int64))
        with tf.GradientTape() as tape:
            tape.watch(logits)
            if "blank_index" in options:
                losses = tf.nn.ctc_loss(sparse, logits, None, lengths, **options)
            else:
                losses = tf.compat.v1.nn.ctc_loss(sparse, logits, lengths, **options)
            weighted = losses * tf.constant([1, 2, 3, 4], losses.dtype)
        return [losses, tape.gradient(weighted, logits)]

    arguments = logits, labels, np.int32(lengths)
    expected = function(*map(tf.constant, arguments))
    for received, wanted in zip(on_replicas(function, 1, *arguments), expected, strict=True):
        assert received.dtype == dtype
        tolerance = 1e-5 if dtype is np.float32 else 4e-3
        np.testing.assert_allclose(received, wanted, rtol=tolerance, atol=tolerance)


def test_sparse_labels_of_no_class_are_the_path_of_blanks() -> None:
    """TensorFlow's kernel reads beyond the labels here; the definition counts."""

    def function(logits: tf.Tensor) -> tf.Tensor:
        labels = tf.SparseTensor([[0, 0], [1, 0]], [4, 4], [2, 1])
        return tf.compat.v1.nn.ctc_loss(labels, logits, [5, 3])

    received = on_replicas(function, 1, LOGITS[:, :2].astype(np.float32))
    blanks = tf.nn.log_softmax(LOGITS).numpy()[:, :, 4]
    np.testing.assert_allclose(received, [-blanks[:, 0].sum(), -blanks[:3, 1].sum()], rtol=1e-5)


def test_losses_of_labels_that_do_not_fit() -> None:
    def function(logits: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = nn_ops.ctc_loss_with_logits([[1, 1], [1, 2], [1, 1], [0, 0]], logits, [2, 2, 0, 1], [2, 2, 0, 0], 0)
        return [loss, tape.gradient(loss, logits)]

    loss, gradient = on_replicas(function, 1, LOGITS.astype(np.float32))
    assert np.isinf(loss).tolist() == [True, False, False, True] and loss[2] == 0
    assert np.isfinite(gradient).all() and not gradient[:, [0, 2, 3]].any() and gradient[:2, 1].any()


def test_types_and_derivatives_of_losses() -> None:
    half = nn_ops.ctc_loss_v2(LABELS[:1], LOGITS[:, :1].astype(np.float16), [3], [5], 0)
    single = nn_ops.ctc_loss_v2(LABELS[:1], LOGITS[:, :1].astype(np.float16), [3], [5], 0, tf.float32)
    assert (half.dtype, single.dtype) == (tf.float16, tf.float32)
    np.testing.assert_allclose(half, single, rtol=1e-3)
    logits = tf.constant(LOGITS, tf.float32)
    with pytest.raises(LookupError), tf.GradientTape() as outer:
        outer.watch(logits)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = nn_ops.ctc_loss_v2(LABELS, logits, LABEL_LENGTH, LENGTH, 0)
        outer.gradient(tape.gradient(loss, logits), logits)
    for arguments, message in (
        ((LABELS, logits, LABEL_LENGTH, LENGTH, 0, tf.float16), "out_dtype float32"),
        ((LABELS[:2], logits, LABEL_LENGTH, LENGTH, 0), "a row of labels"),
        ((LABELS, logits, LABEL_LENGTH, LENGTH[:2], 0), "two lengths"),
        ((LABELS[0], logits, LABEL_LENGTH, LENGTH, 0), r"labels \[B, L\]"),
        ((LABELS, logits, LABEL_LENGTH, LENGTH, 5), "one of 5 classes"),
        ((LABELS, LABELS, LABEL_LENGTH, LENGTH, 0), "float16 or float32"),
    ):
        with pytest.raises(ValueError, match=message):
            nn_ops.ctc_loss_v2(*arguments)


@pytest.mark.sample(1)
@pytest.mark.parametrize("blank", [-1, 1])
def test_wide_beams_find_the_most_likely_labels(blank: int) -> None:
    logits, lengths = RANDOM.normal(size=(5, 3, 3)).astype(np.float32) * 1.5, [5, 3, 0]

    def function(x: tf.Tensor) -> Any:
        return nn_ops.ctc_beam_search_decoder(x, lengths, 60, 4, blank)

    for received in (on_replicas(function, 1, logits), function(tf.constant(logits))):
        scores, counts, labels = map(np.array, received)
        assert scores.shape == counts.shape == (3, 4) and labels.shape == (3, 4, 5)
        for sample, length in enumerate(lengths):
            rows = tf.nn.log_softmax(logits[:length, sample]).numpy()
            totals: dict[tuple[int, ...], float] = {}
            for path in itertools.product(range(3), repeat=length):
                key = collapsed(path, blank % 3)
                totals[key] = totals.get(key, 0) + np.exp(rows[np.arange(length), path].sum())
            best = sorted(totals, key=lambda k: -totals[k])[:4]
            for rank, wanted in enumerate(best):
                assert tuple(labels[sample, rank, : counts[sample, rank]]) == wanted
                assert (labels[sample, rank, len(wanted) :] == blank % 3).all()
                np.testing.assert_allclose(scores[sample, rank], -np.log(totals[wanted]), rtol=1e-4, atol=1e-5)
            assert np.isinf(scores[sample, len(best) :]).all() and not counts[sample, len(best) :].any()


def narrow(rows: np.ndarray, width: int) -> list[tuple[tuple[int, ...], float]]:
    """Beam search by dictionaries of labels; the blank is the last class."""
    blank = rows.shape[1] - 1
    beams = {(): (1.0, 0.0)}
    for row in np.exp(rows):
        after: dict[tuple[int, ...], list[float]] = {}
        for labels, (b, n) in beams.items():
            stay = after.setdefault(labels, [0.0, 0.0])
            stay[0] += (b + n) * row[blank]
            if labels:
                stay[1] += n * row[labels[-1]]
            for k in range(blank):
                after.setdefault((*labels, k), [0.0, 0.0])[1] += (b if labels[-1:] == (k,) else b + n) * row[k]
        beams = dict(sorted(after.items(), key=lambda item: -sum(item[1]))[:width])
    return [(labels, sum(p)) for labels, p in beams.items()]


def test_narrow_beams() -> None:
    """Labels leave the beams and come back."""
    log_probs = tf.nn.log_softmax(RANDOM.normal(size=(24, 6, 4))).numpy().astype(np.float32)
    run = on_replicas(lambda x: nn_ops.ctc_beam_search_decoder_with_log_probs(x, [24] * 6, 5, 5), 1, log_probs)
    for sample, (scores, counts, labels) in enumerate(zip(*run, strict=True)):
        expected = narrow(log_probs[:, sample].astype(np.float64), 5)
        assert [tuple(row[:n]) for row, n in zip(labels, counts, strict=True)] == [each for each, _ in expected]
        np.testing.assert_allclose(scores, [-np.log(p) for _, p in expected], rtol=1e-4)


def test_beams_that_are_refused() -> None:
    logits = np.zeros((3, 2, 4), np.float32)
    for arguments, message in (
        ((logits, [3, 3], 2, 3), "from 1 to beam_width, 2"),
        ((logits, [3]), "a length for each"),
        ((logits, [3, 3], 2, 1, 4), "one of 4 classes"),
    ):
        with pytest.raises(ValueError, match=message):
            nn_ops.ctc_beam_search_decoder(*arguments)


def test_operations_that_xla_lacks_name_their_replacement() -> None:
    logits, lengths = tf.zeros([5, 2, 4]), [5, 4]
    labels = tf.SparseTensor([[0, 0], [1, 1]], [1, 2], [2, 2])
    for function, wanted in (
        (lambda x: tf.compat.v1.nn.ctc_loss(labels, x, lengths, True), "ctc_loss_v2"),
        (lambda x: tf.nn.ctc_greedy_decoder(x, lengths)[1], "argmax.*ctc_beam_search_decoder"),
        (lambda x: tf.nn.ctc_beam_search_decoder(x, lengths)[1], "nn_ops.ctc_beam_search_decoder"),
    ):
        with IPUStrategy().scope() as strategy, pytest.raises(UnsupportedOperation, match=f"Received: CTC.*{wanted}"):
            strategy.run(tf.function(function, jit_compile=True), (logits,))
