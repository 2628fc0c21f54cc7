"""The `fit`, `evaluate` or `predict` under way, from which the code that opens its data gets the model's options."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from engine.partition.accumulation import Accumulation
from keras_ext.accumulation import accumulation_of
from keras_ext.epochs.passes import DataPasses
from keras_ext.pipelining.micro_batches import pipelined_run
from keras_ext.queue_options import prefetch_depth
from keras_ext.queue_report import begin_report, queue_report
from keras_ext.replication import replicas_of
from keras_ext.types import KerasModel
from keras_ext.validation_checks import check_validation

logger = logging.getLogger("ipu")
MODES = {"fit": "train", "evaluate": "test", "predict": "predict"}


@dataclass
class MethodRun:
    """One call of a method of MODES; `opened` says whether its own data have been opened; validation data follow later.

    `passes` are those over the data of a fit, if tf.data orders them.
    """

    model: Any
    mode: str
    opened: bool = False
    passes: DataPasses | None = None

    def accumulation(self) -> Accumulation:
        """The accumulation of the batches of its data.

        Raises ConfigurationError for an optimizer that cannot be used with the model's accumulation.
        """
        return accumulation_of(self.model) if self.mode == "train" else Accumulation()


_run: ContextVar[MethodRun | None] = ContextVar("run under way", default=None)


def executions_ahead() -> int | None:
    """The number of executions for which the run under way is to prepare data ahead; None where it is not set."""
    run = _run.get()
    return None if run is None else prefetch_depth(run.model)


def opening() -> MethodRun | None:
    """The run under way if the data that are opened now are its own; None for others, such as validation data."""
    run = _run.get()
    if run is None or run.opened:
        return None
    run.opened = True
    return run


def passes_of_training() -> DataPasses | None:
    """The passes over the data of the fit under way; None unless they are of tf.data, and in another thread."""
    run = _run.get()
    return None if run is None else run.passes


def install(model_class: type, strategy_serves: Callable[[Any], bool]) -> None:
    """Wraps the methods of one framework's models: for a strategy's models each call is a run with a queue report."""
    for method, mode in MODES.items():
        setattr(model_class, method, _running(getattr(model_class, method), mode, strategy_serves))


def _running(method: Callable[..., Any], mode: str, strategy_serves: Callable[[Any], bool]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def run(self: KerasModel, *arguments: object, **named: object) -> Any:
        if not strategy_serves(self):
            return method(self, *arguments, **named)
        given = signature.bind(self, *arguments, **named).arguments
        begin_report(self, mode)
        before = _run.set(MethodRun(self, mode))
        try:
            with pipelined_run(self, mode, given):
                if mode == "train":
                    check_validation(given, replicas_of(self.distribute_strategy))
                return method(self, *arguments, **named)
        finally:
            _run.reset(before)
            logger.debug("Queues of %s of model %r: %s", method.__name__, self.name, queue_report(self, mode))

    return run
