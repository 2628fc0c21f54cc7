"""Beam search for the most likely labels of connectionist temporal classification."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ipu._internal.compiler.ctc import IMPOSSIBLE, log_sum
from ipu._internal.operators.checks import floating, require
from ipu._internal.operators.ctc import checked_blank
from ipu._internal.types import TensorLike


class Beams(NamedTuple):
    """W beams of each of a batch, the most likely first. Living ones have different labels."""

    labels: tf.Tensor
    """int32 [B, W, T], blanks behind the length."""
    length: tf.Tensor
    """int32 [B, W]."""
    blank: tf.Tensor
    """Log probability of the paths that end in a blank, [B, W]."""
    label: tf.Tensor
    """Log probability of the paths that end in the last label, [B, W]."""
    common: tf.Tensor
    """int32 [B, W, W]: how many labels at their beginning two beams have in common."""


def decoded(
    log_probs: TensorLike, lengths: TensorLike, beam_width: int, top_paths: int, blank_index: int, name: str | None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The likeliest paths: negative log probabilities and lengths [B, top_paths], labels [B, top_paths, T].

    `log_probs` are [T, B, C]. If there are fewer paths, the others have a log probability of minus infinity and a
    length of 0.
    """
    with tf.name_scope(name or "ctc_beam_search"):
        data, lengths = floating(log_probs, "log_probs"), tf.cast(lengths, tf.int32)
        shapes = f"shapes {data.shape} and {lengths.shape}"
        agree = data.shape.rank == 3 and lengths.shape.is_compatible_with(data.shape[1:2])
        require(agree, "data [T, B, C] and a length for each of the batch", shapes)
        require(1 <= top_paths <= beam_width, f"top_paths from 1 to beam_width, {beam_width}", top_paths)
        blank = checked_blank(blank_index, data.shape.as_list()[2])
        emitted = tf.maximum(tf.cast(data, tf.float32), IMPOSSIBLE)
        time, batch = tf.unstack(tf.shape(emitted))[:2]

        def iteration(t: tf.Tensor, *state: tf.Tensor) -> tuple[tf.Tensor, ...]:
            before = Beams(*state)
            after = _extended(before, emitted[t], blank)
            is_valid = t < lengths
            rows = [is_valid[(..., *[None] * (new.shape.rank - 1))] for new in after]
            return t + 1, *(tf.where(row, new, old) for row, new, old in zip(rows, after, before, strict=True))

        impossible = tf.fill([batch, beam_width], IMPOSSIBLE)
        start = Beams(
            labels=tf.fill([batch, beam_width, time], blank),
            length=tf.zeros([batch, beam_width], tf.int32),
            blank=tf.where(tf.equal(tf.range(beam_width), 0), 0.0, impossible),
            label=impossible,
            common=tf.zeros([batch, beam_width, beam_width], tf.int32),
        )
        _, *state = tf.while_loop(lambda t, *_: t < time, iteration, (0, *start), maximum_iterations=time)
        beams = Beams(*(each[:, :top_paths] for each in state))
        total = log_sum(beams.blank, beams.label)
        lives = _lives(total)
        labels = tf.where(lives[..., None], beams.labels, blank)
        return tf.where(lives, -total, float("inf")), tf.where(lives, beams.length, 0), labels


def _lives(total: tf.Tensor) -> tf.Tensor:
    return total > IMPOSSIBLE / 10


def _extended(beams: Beams, emitted: tf.Tensor, blank: int) -> Beams:
    """The most likely beams one time step later, where the log probabilities of classes are `emitted`, [B, C]."""
    (_, width), (_, classes) = beams.length.shape.as_list(), emitted.shape.as_list()
    total = log_sum(beams.blank, beams.label)
    has_labels = beams.length > 0
    last = tf.gather(beams.labels, tf.maximum(beams.length - 1, 0), batch_dims=2)
    # A label after itself is a new one only if a blank was between.
    is_last = tf.equal(tf.range(classes), last[..., None]) & has_labels[..., None]
    longer = tf.where(is_last, beams.blank[..., None], total[..., None]) + emitted[:, None]
    longer = tf.where(tf.equal(tf.range(classes), blank), IMPOSSIBLE, longer)

    # Beam i becomes beam j by the last label of j, if the other labels of j are those of i.
    length = beams.length
    is_parent = tf.equal(beams.common, length[:, :, None]) & tf.equal(length[:, None], length[:, :, None] + 1)
    is_parent &= _lives(total)[:, None]
    to_others = tf.where(is_parent, tf.gather(longer, last, axis=2, batch_dims=1), IMPOSSIBLE)
    same_label = tf.where(has_labels, beams.label + tf.gather(emitted, last, batch_dims=1), IMPOSSIBLE)
    same_label = log_sum(same_label, tf.reduce_max(to_others, 1))
    same_blank = total + emitted[:, blank, None]
    exists = tf.cast(is_parent, tf.float32) @ tf.one_hot(last, classes)
    longer = tf.where(exists > 0, IMPOSSIBLE, longer)

    every = tf.concat([log_sum(same_blank, same_label), tf.reshape(longer, [-1, width * classes])], 1)
    best, index = tf.math.top_k(every, width)
    is_same = index < width
    source = tf.where(is_same, index, (index - width) // classes)
    added = (index - width) % classes

    def of_source(x: tf.Tensor) -> tf.Tensor:
        return tf.gather(x, source, batch_dims=1)

    old_length = of_source(length)
    new_length = old_length + tf.cast(~is_same, tf.int32)
    is_added = tf.equal(tf.range(tf.shape(beams.labels)[2]), old_length[..., None]) & ~is_same[..., None]
    labels = tf.where(is_added, added[..., None], of_source(beams.labels))
    common = tf.gather(of_source(beams.common), source, axis=2, batch_dims=1)
    following = tf.gather(labels, tf.minimum(common, tf.shape(labels)[2] - 1), batch_dims=2)
    shorter = tf.minimum(new_length[:, :, None], new_length[:, None])
    agrees = (common < shorter) & tf.equal(following, tf.transpose(following, [0, 2, 1]))
    return Beams(
        labels,
        new_length,
        tf.where(is_same, of_source(same_blank), IMPOSSIBLE),
        tf.where(is_same, of_source(same_label), best),
        common + tf.cast(agrees, tf.int32),
    )
