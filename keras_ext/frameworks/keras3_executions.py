"""The executions of an epoch of Keras 3, if `ipu.accelerate` chose the number of steps of an execution.

Keras itself runs only whole executions. So an epoch of `steps_per_epoch` steps, or a pass over validation data, would
have more steps than the program asks for, because of a `steps_per_execution` that the program did not set.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from keras_ext.epochs.limited import LimitedIterator
from keras_ext.runs import pace


def executions(epoch: Any, replicas: int) -> Iterator[tuple[int, int, LimitedIterator]]:
    """The first and the last step of each execution, and the data of these steps, for an epoch of a known length.

    `epoch` is an EpochIterator. Batches, warnings and passes over the data are those of Keras' `_enumerate_iterator`
    with `steps_per_execution=1`.
    """
    epoch.data_adapter.on_epoch_begin()
    if epoch._current_iterator is None or epoch.steps_per_epoch is None:
        _begin_pass(epoch)
    step, steps = 0, epoch.steps_per_epoch or epoch._num_batches
    while step < steps:
        begun, number = time.perf_counter(), min(epoch.steps_per_execution, steps - step)
        if pace.value is not None:
            number = pace.value.steps(number)
        if epoch._num_batches:
            number = min(number, epoch._num_batches - epoch._steps_seen)
        if number <= 0:
            if epoch.steps_per_epoch:
                epoch._interrupted_warning()
            break
        epoch._steps_seen += number
        data = LimitedIterator(epoch._current_iterator, number, replicas)
        yield step, step + number - 1, data
        if data.error is not None:
            raise data.error
        if pace.value is not None:
            pace.value.measured(number, begun)
        if data.ended:
            _end_pass(epoch)
            return
        step += number
    if epoch._num_batches and epoch._steps_seen >= epoch._num_batches:
        _begin_pass(epoch)
    epoch.data_adapter.on_epoch_end()


def _begin_pass(epoch: Any) -> None:
    epoch._current_iterator = iter(epoch._get_iterator())
    epoch._steps_seen = 0


def _end_pass(epoch: Any) -> None:
    """Ends a pass like Keras, where data run out within an epoch."""
    with epoch.catch_stop_iteration():
        raise StopIteration
