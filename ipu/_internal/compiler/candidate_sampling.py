"""Samplers of candidate classes and their accidental hits, for which XLA has no kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_random_ops

from engine.errors import ConfigurationError, UnsupportedOperation

Candidates = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
"""Classes, [num_sampled]; expected counts of the true classes, [B, num_true], and of the sampled ones."""
Uniform = Callable[[list[int]], tf.Tensor]
"""Makes float32 numbers in [0, 1) of a shape."""


class _Uniform:
    def __init__(self, range_max: int) -> None:
        self._range = range_max

    def classes(self, uniform: tf.Tensor) -> tf.Tensor:
        return tf.cast(uniform * self._range, tf.int32)

    def probability(self, classes: tf.Tensor) -> tf.Tensor:
        return tf.fill(tf.shape(classes), 1.0 / self._range)


class _LogUniform:
    """Class c has the probability log((c + 2) / (c + 1)) / log(range_max + 1)."""

    def __init__(self, range_max: int) -> None:
        self._log_range = math.log(range_max + 1)

    def classes(self, uniform: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.exp(uniform * self._log_range), tf.int32) - 1

    def probability(self, classes: tf.Tensor) -> tf.Tensor:
        return tf.math.log1p(1 / (tf.cast(classes, tf.float32) + 1)) / self._log_range


def log_uniform_candidates(
    labels: tf.Tensor, num_sampled: int, num_classes: int, seed: int | None = None
) -> Candidates:
    """Draws distinct classes as tf.random.log_uniform_candidate_sampler(unique=True) does, int32.

    Raises ConfigurationError for more samples than classes.
    """
    return _candidates(_LogUniform, lambda n: tf.random.uniform(n, seed=seed), labels, num_sampled, True, num_classes)


def _candidates(
    kind: Callable[[int], Any], uniform: Uniform, labels: tf.Tensor, num_sampled: int, unique: bool, range_max: int
) -> Candidates:
    if num_sampled < 1 or (unique and num_sampled > range_max):
        raise ConfigurationError(
            f"Expected num_sampled from 1 to the {range_max} classes. Received: {num_sampled}. Nearest: "
            f"{min(max(num_sampled, 1), range_max)}."
        )
    distribution = kind(range_max)

    def drawn(count: int) -> tf.Tensor:
        return tf.clip_by_value(distribution.classes(uniform([count])), 0, range_max - 1)

    if unique:
        candidates, tries = _different(drawn, num_sampled, range_max)
    else:
        candidates, tries = drawn(num_sampled), tf.constant(num_sampled)

    def expected_counts(classes: tf.Tensor) -> tf.Tensor:
        probability = distribution.probability(classes)
        of_different = -tf.math.expm1(tf.cast(tries, tf.float32) * tf.math.log1p(-probability))
        return tf.where(tf.equal(tries, num_sampled), probability * num_sampled, of_different)

    return candidates, expected_counts(labels), expected_counts(candidates)


def _different(drawn: Callable[[int], tf.Tensor], num_sampled: int, range_max: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The first `num_sampled` different classes among those drawn, and the number of draws that took."""
    at_once = 2 * num_sampled

    def draw(
        tries: tf.Tensor, last: tf.Tensor, count: tf.Tensor, first: tf.Tensor, found: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        classes = drawn(at_once)
        position = tries + tf.range(at_once)
        first = tf.tensor_scatter_nd_min(first, classes[:, None], position)
        is_new = tf.equal(tf.gather(first, classes), position)
        number = count + tf.cumsum(tf.cast(is_new, tf.int32)) - 1
        slot = tf.where(is_new & (number < num_sampled), number, num_sampled)
        found = tf.tensor_scatter_nd_max(found, slot[:, None], classes)
        last = tf.maximum(last, tf.reduce_max(tf.where(tf.equal(slot, num_sampled - 1), position + 1, 0)))
        return tries + at_once, last, number[-1] + 1, first, found

    start = (0, 0, 0, tf.fill([range_max], tf.int32.max), tf.fill([num_sampled + 1], -1))
    _, tries, _, _, found = tf.while_loop(lambda tries, last, count, *_: count < num_sampled, draw, start)
    return found[:num_sampled], tries


def _sampler(kind: Callable[[int], Any]) -> Callable[..., Any]:
    def sample(
        _: Callable[..., Any],
        true_classes: Any,
        num_true: int,
        num_sampled: int,
        unique: bool,
        range_max: int,
        seed: int = 0,
        seed2: int = 0,
        name: str | None = None,
    ) -> Candidates:
        labels = tf.ensure_shape(tf.convert_to_tensor(true_classes, tf.int64), [None, num_true])

        def uniform(shape: list[int]) -> tf.Tensor:
            return gen_random_ops.random_uniform(shape, tf.float32, seed=seed, seed2=seed2)

        with tf.name_scope(name or "candidate_sampler"):
            classes, of_true, of_sampled = _candidates(kind, uniform, labels, num_sampled, unique, range_max)
            return tf.cast(classes, tf.int64), of_true, of_sampled

    return sample


def _all(
    _: Callable[..., Any],
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> Candidates:
    """All classes in order, each expected once."""
    labels = tf.convert_to_tensor(true_classes, tf.int64)
    return tf.range(num_sampled, dtype=tf.int64), tf.ones_like(labels, tf.float32), tf.ones([num_sampled])


def _accidental_hits(
    _: Callable[..., Any],
    true_classes: Any,
    sampled_candidates: Any,
    num_true: int,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The row of each true class that is sampled, its last position among the candidates, and the least float32."""
    labels, candidates = (tf.convert_to_tensor(each, tf.int64) for each in (true_classes, sampled_candidates))
    with tf.name_scope(name or "accidental_hits"):
        number = tf.range(tf.size(candidates))
        is_again = tf.equal(candidates[:, None], candidates) & (number[:, None] < number)
        is_last = tf.logical_not(tf.reduce_any(is_again, 1))
        hits = tf.where(tf.equal(labels[:, :, None], candidates) & is_last)
        return tf.cast(hits[:, 0], tf.int32), hits[:, 2], tf.fill(tf.shape(hits)[:1], tf.float32.min)


def _refused(sampler: str, _: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    raise UnsupportedOperation(
        f"Expected candidates of a uniform or log-uniform sampler, or of all classes, in a function that runs on the "
        f"IPU. Received: tf.random.{sampler}, which keeps counts or a vocabulary on the host. Sample in the input "
        f"pipeline, and pass the three tensors as sampled_values."
    )


UNIGRAMS = tuple(f"{kind}_unigram_candidate_sampler" for kind in ("fixed", "learned", "thread_unsafe"))
SAMPLERS: dict[str, Callable[..., Any]] = {
    "uniform_candidate_sampler": _sampler(_Uniform),
    "log_uniform_candidate_sampler": _sampler(_LogUniform),
    "all_candidate_sampler": _all,
    "compute_accidental_hits": _accidental_hits,
    **{name: functools.partial(_refused, name) for name in UNIGRAMS},
}
"""Replacements of gen_candidate_sampling_ops' functions, which get the replaced function as first argument."""
