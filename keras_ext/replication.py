"""Automatic data parallelism: the number of a model's replicas, and how they divide the batches of a data set."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import tensorflow as tf

from engine.errors import StepCountError
from ipu._internal.config.system import current_system
from ipu._internal.thread_values import ThreadValue
from keras_ext.epochs.feeds import BatchSource, FeedIterator, as_runs, take

logger = logging.getLogger("ipu")
_warned: set[str] = set()

_ipus = ThreadValue(1)


def ipus_of_replica(ipus: int) -> AbstractContextManager[int]:
    """Gives each replica of the model that runs `ipus` IPUs, while the context is open."""
    return _ipus.replaced_by(ipus)


def replicas_of(strategy: tf.distribute.Strategy) -> int:
    """The number of replicas of a strategy's models in the configuration in force, by the IPUs of `ipus_of_replica`.

    Raises ConfigurationError when the strategy's device is not configured, or its IPUs do not divide among replicas.
    """
    return current_system().device(strategy.ordinal).replicas(_ipus.value)


def steps_per_replica(batches: int | None, replicas: int) -> int | None:
    """The number of steps each replica makes with a number of batches; None or negative if that is not known.

    Warns once in a process of each number of batches left over; raises StepCountError when there are too few for all.
    """
    if batches is None or batches < 0 or replicas == 1:
        return batches
    refuse_too_few(batches, replicas)
    if batches % replicas:
        _notice_dropped(batches % replicas, batches, replicas)
    return batches // replicas


def refuse_partial_batch(partial: tuple[int, int] | None, cause: str) -> None:
    """Raises StepCountError unless `partial` is None: the rows of the partial last batch, and of the others."""
    if partial is not None:
        raise _partial_batch_error(*partial, cause)


def one_run(taken: list[BatchSource], cause: str) -> BatchSource:
    """Parts of the data joined into one. Raises StepCountError for batches of more than one shape."""
    first, *others = as_runs(taken)
    if others:
        raise _partial_batch_error(others[0].signature.rows, first.signature.rows, cause)
    return first


def _partial_batch_error(rows: int, batch_size: int, cause: str) -> StepCountError:
    return StepCountError(
        f"Expected batches of one size, with {cause}. Received: a batch of {rows} samples after batches of "
        f"{batch_size}. Batch the data set with drop_remainder=True, or give arrays whose length is a multiple of "
        f"{batch_size}."
    )


def refuse_too_few(batches: int, replicas: int) -> None:
    """Raises StepCountError for fewer batches than replicas."""
    if batches < replicas:
        raise StepCountError(
            f"Expected at least one batch for each of {replicas} replicas. Received: a data set or number of steps of "
            f"{batches}. Use smaller batches or more data, or set auto_select_ipus = {max(batches, 1)}."
        )


def _notice_dropped(dropped: int, batches: int, replicas: int) -> None:
    text = (
        f"{dropped} of {batches} batches are left out: they do not divide among {replicas} replicas, which make the "
        f"same number of steps. Nearest numbers of batches: {batches - dropped}, {batches - dropped + replicas}."
    )
    if text not in _warned:
        _warned.add(text)
        logger.warning(text)


class ReplicatedBatches:
    """An epoch whose batches go to replicas in turn (round robin): a step is one batch for each."""

    def __init__(self, source: Iterable[Any], replicas: int) -> None:
        self._source = source
        self._replicas = replicas

    def __iter__(self) -> ReplicaIterator:
        return ReplicaIterator(iter(self._source), self._replicas)


class ReplicaIterator(FeedIterator):
    """One pass. Iterating gives a `BatchSource`, one batch for each replica."""

    def __init__(self, source: Iterator[Any], replicas: int) -> None:
        self.source = source
        self._replicas = replicas
        self._seen = 0

    def __next__(self) -> BatchSource:
        return self.take(1)[0]

    def take(self, limit: int) -> list[BatchSource]:
        """The feeds of up to `limit` steps of all replicas; StopIteration when no step is left.

        Raises StepCountError for a batch smaller than the others, and for fewer batches than replicas.
        """
        taken = take(self.source, limit * self._replicas)
        batches = one_run(taken, f"{self._replicas} replicas")
        self._seen += batches.steps
        rest = batches.steps % self._replicas
        if rest == batches.steps and batches.error is not None:
            raise batches.error
        refuse_too_few(self._seen, self._replicas)
        if rest == batches.steps:
            raise StopIteration
        return [replace(batches, steps=batches.steps - rest)]
