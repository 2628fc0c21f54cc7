"""The `fit`, `evaluate` or `predict` under way, from which the code that opens its data gets the model's options."""

from __future__ import annotations

import functools
import inspect
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from engine.partition.accumulation import Accumulation
from ipu._internal.thread_values import ThreadValue
from keras_ext.accumulation import accumulation_of
from keras_ext.epochs.passes import DataPasses
from keras_ext.epochs.read_ahead import ReadAhead
from keras_ext.own_functions import refuse_own_function
from keras_ext.pipelining.micro_batches import pipelined_run
from keras_ext.processes import share_statistics, writes_files
from keras_ext.queue_options import prefetch_depth
from keras_ext.queue_report import begin_report, queue_report
from keras_ext.replication import replicas_of
from keras_ext.types import KerasModel
from keras_ext.validation_checks import check_validation
from keras_ext.wrapping import Original, wrap

logger = logging.getLogger("ipu")
MODES = {"fit": "train", "evaluate": "test", "predict": "predict"}


@dataclass
class MethodRun:
    """One call of a method of MODES; `opened` says whether its own data have been opened, not its validation data.

    `observed` says whether code of the program runs between its steps: callbacks, or Python that gives validation data.
    `passes` are those over the data of a fit, if tf.data orders them.
    """

    model: Any
    mode: str
    epochs: int = 1
    observed: bool = False
    readers: list[ReadAhead] = field(default_factory=list)
    opened: bool = False
    passes: DataPasses | None = None

    def accumulation(self) -> Accumulation:
        """The accumulation of the batches of its data.

        Raises ConfigurationError for an optimizer that cannot be used with the model's accumulation.
        """
        return accumulation_of(self.model) if self.mode == "train" else Accumulation()


class Pace:
    """The number of steps of an execution at which a progress bar moves as often as Keras draws it."""

    DRAWN = 0.05
    """Seconds between two drawings of Keras' bars."""

    def __init__(self) -> None:
        self._step: float | None = None

    def steps(self, most: int) -> int:
        """The steps of the next execution; one before a step has been measured."""
        if self._step is None:
            return 1
        return max(1, min(most, int(self.DRAWN / max(self._step, 1e-9))))

    def measured(self, steps: int, begun: float) -> None:
        """Notes that `steps` steps have taken the time since `begun`, by `time.perf_counter`."""
        self._step = (time.perf_counter() - begun) / steps


_run: ThreadValue[MethodRun | None] = ThreadValue(None)
steps_are_chosen = ThreadValue(False)
"""Whether `ipu.accelerate` chose the steps of a call of the engine, in the method that runs in this thread."""
pace: ThreadValue[Pace | None] = ThreadValue(None)
"""Pace of the running method in this thread, if it shows a progress bar and the steps are chosen."""


def executions_ahead() -> int | None:
    """The number of executions for which the run under way is to prepare data ahead; None where it is not set."""
    run = _run.value
    return None if run is None else prefetch_depth(run.model)


def opening() -> MethodRun | None:
    """The run under way if the data that are opened now are its own; None for others, such as validation data."""
    run = _run.value
    if run is None or run.opened:
        return None
    run.opened = True
    return run


def arrays_may_change() -> bool:
    """Whether code of the program may run, and write into its arrays, before their data are used for the last time.

    Outside of a run this is true, as the owner of the data may use them at any time.
    """
    run = _run.value
    return run is None or run.observed or threading.active_count() > 1


def closed_after(reader: ReadAhead) -> ReadAhead:
    """The given reader. It stops reading when the run under way ends, which may be before its last epoch."""
    if _run.value is not None:
        _run.value.readers.append(reader)
    return reader


def passes_of_training() -> DataPasses | None:
    """The passes over the data of the fit under way; None if they are not of tf.data, and in other threads."""
    run = _run.value
    return None if run is None else run.passes


def install(model_class: type, strategy_serves: Callable[[Any], bool]) -> None:
    """Wraps the methods of one framework's models: for a strategy's models each call is a run with a queue report."""
    for method, mode in MODES.items():
        signature = inspect.signature(getattr(model_class, method))
        wrap(model_class, method, functools.partial(_run_method, mode, signature, strategy_serves))


def _epochs(given: Mapping[str, Any]) -> int:
    """The number of epochs that the arguments of a method ask for; 1 where they give none."""
    return max(1, given.get("epochs", 1) - given.get("initial_epoch", 0))


def _is_observed(given: Mapping[str, Any]) -> bool:
    validation = given.get("validation_data")
    is_inert = validation is None or isinstance(validation, tuple | list | tf.data.Dataset)
    return bool(given.get("callbacks")) or not is_inert


def _run_method(
    mode: str,
    signature: inspect.Signature,
    strategy_serves: Callable[[Any], bool],
    method: Original,
    model: KerasModel,
    *arguments: object,
    **named: object,
) -> Any:
    if not strategy_serves(model):
        return method(model, *arguments, **named)
    refuse_own_function(model, mode)
    given = signature.bind(model, *arguments, **named).arguments
    if "verbose" not in given and not writes_files(model):
        named["verbose"] = 0  # process 0 alone draws progress bars, unless the program asks for more
    begin_report(model, mode)
    run = MethodRun(model, mode, _epochs(given), _is_observed(given))
    try:
        with _run.replaced_by(run), pipelined_run(model, mode, given):
            if mode == "train":
                check_validation(given, replicas_of(model.distribute_strategy))
            if mode == "test":
                share_statistics(model)
            result = method(model, *arguments, **named)
            if mode == "train":
                share_statistics(model)
            return result
    finally:
        for reader in run.readers:
            reader.close()
        logger.debug("Queues of %s of model %r: %s", method.__name__, model.name, queue_report(model, mode))
