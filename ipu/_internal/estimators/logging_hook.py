"""`IPULoggingTensorHook`: logs tensors of a program, which an outfeed brings to the host."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.training.basic_session_run_hooks import NeverTriggerTimer, SecondOrStepTimer
from tensorflow.python.training.session_run_hook import SessionRunHook

from engine.errors import ConfigurationError
from ipu._internal.compiler.tokens import current_ordinal
from ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue

LOGGER = logging.getLogger("tensorflow")


class IPULoggingTensorHook(SessionRunHook):
    """Prints tensors of a program every N runs of the session, every N seconds, or at its end (Python API, 18.12.4).

    Args:
        every_n_iter: the number of runs after which tensors are logged.
        every_n_secs: the seconds after which tensors are logged.
        at_end: whether tensors are logged at the end of the session.
        formatter: a function of a dictionary of arrays that returns the text; None means "name = value, ...".
        logging_mode: an IPUOutfeedMode: the values of the last iteration, or all of them.
        feed_name, replication_factor: deprecated, without effect.

    Raises:
        ValueError: both `every_n_iter` and `every_n_secs` are given, or none of them and not `at_end`.
    """

    LoggingMode = IPUOutfeedMode

    def __init__(
        self,
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[str, Any]], str] | None = None,
        logging_mode: IPUOutfeedMode = IPUOutfeedMode.LAST,
        feed_name: str | None = None,
        replication_factor: int | None = None,
    ) -> None:
        if every_n_iter is not None and every_n_secs is not None:
            raise ConfigurationError("Expected one of every_n_iter and every_n_secs. Received: both. Leave one out.")
        if every_n_iter is None and every_n_secs is None and not at_end:
            raise ConfigurationError("Expected every_n_iter, every_n_secs or at_end. Received: none of them.")
        if every_n_iter is not None and every_n_iter <= 0:
            raise ConfigurationError(f"Expected every_n_iter to be 1 or more. Received: {every_n_iter}.")
        never = every_n_iter is None and every_n_secs is None
        self._timer = NeverTriggerTimer() if never else SecondOrStepTimer(every_n_secs, every_n_iter)
        self._at_end, self._formatter, self._mode = at_end, formatter, logging_mode
        self._outfeed: IPUOutfeedQueue | None = None
        self._rows: Any = None
        self._deleter: Any = None
        self._runs = 0

    def log(self, tensors: Any) -> Any:
        """Logs the given tensors of the program that is traced.

        Args:
            tensors: a dictionary of tensors, a list or tuple of tensors, which go by their names, or a tensor.

        Returns:
            The logging operation.

        Raises:
            RuntimeError: it has been called already.
            TypeError: something is no tensor.
        """
        if self._outfeed is not None:
            raise RuntimeError("Expected one call of log for each IPULoggingTensorHook. Received: a second one.")
        if not isinstance(tensors, dict):
            listed = tensors if isinstance(tensors, list | tuple) else [tensors]
            for tensor in listed:
                _check_tensor(tensor)
            tensors = {tensor.name: tensor for tensor in listed}
        for tensor in tensors.values():
            _check_tensor(tensor)
        self._outfeed = IPUOutfeedQueue(self._mode, device_ordinal=current_ordinal())
        return self._outfeed.enqueue(tensors)

    def begin(self) -> None:
        """Adds the operations that bring the tensors to the host.

        Raises:
            RuntimeError: `log` was not called.
        """
        if self._outfeed is None:
            raise RuntimeError(
                "Expected the model to call hook.log. Received: a model that does not. Call hook.log(...) in model_fn."
            )
        self._rows, self._deleter = self._outfeed.dequeue(), self._outfeed.deleter

    def after_create_session(self, session: Any, coord: object) -> None:
        """Starts to count.

        Args:
            session: no effect.
            coord: no effect.
        """
        self._timer.reset()
        self._runs = 0
        if not isinstance(self._timer, NeverTriggerTimer):
            self._timer.update_last_triggered_step(0)

    def after_run(self, run_context: Any, run_values: object) -> None:
        """Logs the tensors after a run that the timer selects.

        Args:
            run_context: a tf.estimator.SessionRunContext, whose session dequeues the tensors.
            run_values: no effect.
        """
        self._runs += 1
        if self._timer.should_trigger_for_step(self._runs):
            self._log(run_context.session)

    def end(self, session: Any) -> None:
        """Logs the tensors at the end, and deletes the outfeed.

        Args:
            session: the session, which is about to be closed.
        """
        if self._at_end:
            self._log(session)
        session.run(self._deleter)

    def _log(self, session: Any) -> None:
        values = session.run(self._rows)
        seconds, _ = self._timer.update_last_triggered_step(self._runs)
        if self._formatter is not None:
            LOGGER.info(self._formatter(values))
            return
        text = ", ".join(f"{name} = {value}" for name, value in values.items())
        LOGGER.info("%s (%.3f sec)" if seconds is not None else "%s", *([text] if seconds is None else [text, seconds]))


def _check_tensor(tensor: Any) -> None:
    if not tf.is_tensor(tensor):
        raise TypeError(f"Expected tensors to log. Received: {tensor!r}.")
