"""The functions Keras calls for each execution: they feed, run and unpack; a program does the rest."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from typing import Any, Literal, Protocol

import numpy as np
import tensorflow as tf

from ipu.compiler.program import Program
from keras_ext.epochs.feeds import Batches, BatchSignature, grouped, take
from keras_ext.program_cache import ProgramCache

Mode = Literal["train", "test", "predict"]
logger = logging.getLogger("ipu")
_noticed: weakref.WeakSet[Any] = weakref.WeakSet()


class Framework(Protocol):
    """What a file in `frameworks` knows about its models."""

    def step(self, model: Any, mode: Mode, data: Any) -> Any:
        """Traces one step of `mode` on the nested batch `data`."""

    def steps_per_execution(self, model: Any) -> int:
        """How many steps one call runs."""

    def optimizer(self, model: Any) -> Any:
        """The object whose replacement makes programs useless."""


class StepFunction:
    """Runs the steps of one mode of one model, which it refers to weakly so that the model can die."""

    def __init__(self, framework: Framework, model: Any, mode: Mode) -> None:
        self._framework = framework
        self._model = weakref.ref(model)
        self._mode = mode
        self._programs = ProgramCache()

    @property
    def model(self) -> Any:
        """The model; it owns this function, so it is alive whenever Keras calls."""
        model = self._model()
        assert model is not None
        return model

    def latest_program(self) -> Program | None:
        """The program that was compiled last, None before the first."""
        return self._programs.latest()

    def program(self, batches: Batches) -> Program:
        """The program for these batches."""
        model = self.model
        known = self._programs.other_than(batches.signature)
        if known is not None:
            _notice_reload(model, known, batches.signature)
        return self._programs.get(
            batches.signature,
            self._framework.optimizer(model),
            lambda data: self._framework.step(model, self._mode, data),
        )


def _notice_reload(model: Any, known: BatchSignature, new: BatchSignature) -> None:
    """Says once for each model that a chip would pay for what is free here."""
    if model in _noticed:
        return
    _noticed.add(model)
    logger.warning(
        "Batches of another shape (%s after %s) need a second program. It works here, but a chip would have "
        "to reload its program each time. Choose a batch size that divides the number of samples, or drop "
        "the remainder.",
        list(map(list, new.shapes)),
        list(map(list, known.shapes)),
    )


class EpochFunction(StepFunction):
    """The train or test function: runs up to `steps_per_execution` steps, returns the last logs."""

    def __call__(self, iterator: Iterator[Any]) -> Any:
        """Feeds from an iterator of batches; raises StopIteration when it has none left."""
        for batches in take(iterator, self._framework.steps_per_execution(self.model)):
            program = self.program(batches)
            results = program.run(batches.steps, batches.feeds)
        return program.pack([_log(result) for result in results])


class PredictFunction(StepFunction):
    """The predict function: takes a list of batches, returns the outputs of all of them, concatenated."""

    def __call__(self, data: list[Any]) -> Any:
        """The structure of the model's outputs, as tensors with the rows of all batches."""
        parts: list[list[np.ndarray]] = []
        for batches in grouped(data):
            program = self.program(batches)
            results = program.run(batches.steps, batches.feeds, outputs="all")
            parts.append([_all_rows(result) for result in results])
        columns = (part[0] if len(part) == 1 else np.concatenate(part) for part in zip(*parts, strict=True))
        return program.pack([tf.convert_to_tensor(column) for column in columns])


def _log(result: np.ndarray) -> Any:
    """Keras makes Python numbers of scalar logs; anything larger reaches callbacks as a tensor."""
    return result if result.ndim == 0 else tf.convert_to_tensor(result)


def _all_rows(result: np.ndarray) -> np.ndarray:
    """Outputs [steps, batch, ...] as rows; outputs without a batch axis, one for each step."""
    return result if result.ndim == 1 else result.reshape(-1, *result.shape[2:])
