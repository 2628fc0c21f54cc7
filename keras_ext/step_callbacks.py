"""Keras' callback lists with asynchronous callbacks: a program reports each step, so the list skips the execution."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from keras_ext.callback_options import has_asynchronous_callbacks
from keras_ext.pipelining.outfeed import has_accumulated_logs
from keras_ext.types import KerasCallbackList, KerasModel, Logs
from keras_ext.wrapping import Original, wrap

STOPS = {"train": "stop_training", "test": "stop_evaluating", "predict": "stop_predicting"}
"""The model's attribute by which callbacks end a run, for each mode."""

Dispatch = Callable[[Any, int, Any], None]


class StepCallbacks:
    """The batch callbacks of one execution; the callback list has already begun its first step."""

    def __init__(
        self, callback_list: KerasCallbackList, model: KerasModel, mode: str, first: int, begin: Dispatch, end: Dispatch
    ) -> None:
        self._list, self._model, self._mode = callback_list, model, mode
        self._next = self._first = first
        self._begin, self._end = begin, end
        self.taken = False

    def report(self, logs: Logs, steps: int = 1) -> bool:
        """Calls the callbacks at the end of the next steps, which share logs; returns whether the run is to stop."""
        for _ in range(steps):
            if self._next > self._first:
                self._begin(self._list, self._next, None)
            self._end(self._list, self._next, logs)
            self._next += 1
        return bool(getattr(self._model, STOPS[self._mode], False))


def take_callbacks(model: KerasModel, mode: str) -> StepCallbacks | None:
    """The callbacks that wait for the steps of the execution about to run; None if those are not asynchronous."""
    waiting = vars(model).get("_ipu_step_callbacks", {}).pop(mode, None)
    if waiting is not None:
        waiting.taken = True
    return waiting


def note_steps(model: KerasModel, mode: str, steps: int) -> None:
    """Notes the number of steps of each replica in an execution: fewer than `steps_per_execution` where data end."""
    vars(model).setdefault("_ipu_steps_made", {})[mode] = steps


def _last_step(model: KerasModel, mode: str, first: int, last: int) -> int:
    """The number of an execution's last step: as the execution noted, else the framework's `last`."""
    made = vars(model).get("_ipu_steps_made", {}).pop(mode, None)
    return last if made is None else first + made - 1


def install(callback_list: type, direct: str = "") -> None:
    """Wraps the batch methods of a framework's callback list for asynchronous callbacks and short executions.

    `direct` is the prefix of the names of the methods that end a batch in the calling thread.
    """
    for mode in STOPS:
        begin, end = f"on_{mode}_batch_begin", f"on_{mode}_batch_end"
        wrap(callback_list, begin, functools.partial(_begin_batch, mode, getattr(callback_list, direct + end)))
        wrap(callback_list, end, functools.partial(_end_batch, mode))


def _begin_batch(
    mode: str, end: Dispatch, begin: Original, callback_list: KerasCallbackList, batch: int, logs: Logs = None
) -> None:
    callback_list._ipu_execution, callback_list._ipu_first_step = None, batch
    begin(callback_list, batch, logs)
    model = model_of(callback_list)
    if model is None:
        return
    vars(model).get("_ipu_steps_made", {}).pop(mode, None)
    if has_asynchronous_callbacks(model) and not has_accumulated_logs(model, mode):
        callback_list._ipu_execution = StepCallbacks(callback_list, model, mode, batch, begin, end)
        vars(model).setdefault("_ipu_step_callbacks", {})[mode] = callback_list._ipu_execution


def _end_batch(mode: str, end: Original, callback_list: KerasCallbackList, batch: int, logs: Logs = None) -> None:
    execution, callback_list._ipu_execution = getattr(callback_list, "_ipu_execution", None), None
    model, first = model_of(callback_list), getattr(callback_list, "_ipu_first_step", None)
    if model is not None and first is not None:
        batch = _last_step(model, mode, first, batch)
    if execution is None or not execution.taken:
        end(callback_list, batch, logs)


def model_of(callback_list: KerasCallbackList) -> Any:
    """The model of a list of callbacks; None before it has one."""
    return getattr(callback_list, "_model", None) or getattr(callback_list, "model", None)
