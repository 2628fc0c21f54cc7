"""Estimates of a real chip for a model that has run here: memory per tile, cycles, whether it fits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from engine.errors import ConfigurationError
from engine.partition.accumulation import Accumulation
from engine.profile.links import gradient_bytes
from engine.profile.program_estimate import Estimate
from engine.profile.scaling import POWERS_OF_TWO, Predictions, predict, workload_of
from engine.profile.summary import summary
from engine.shown import Shown
from ipu._internal.compiler.program import TracedProgram
from ipu._internal.profiling.estimates import estimate_of
from keras_ext.accumulation import accumulation_of
from keras_ext.training import Mode, StepFunction
from keras_ext.types import KerasModel


class ChipSummary(str, Shown):
    """The text of a cost report, `estimate`; prompts show it as a table, notebooks with pictures."""

    estimate: Estimate

    def __new__(cls, estimate: Estimate) -> ChipSummary:
        made = super().__new__(cls, summary(estimate))
        made.estimate = estimate
        return made

    def table(self) -> str:
        return str(self)

    __repr__ = Shown.__repr__


def chip_estimate(model: KerasModel, mode: Mode = "train") -> Estimate:
    """The cost report of the program that the last `fit` ("train"), `evaluate` ("test") or `predict` ran.

    The report of a pipeline lists its IPUs in `pipeline`; the program fits if each IPU has the memory for its stages.

    Raises ConfigurationError when the model has not run in this mode inside an IPUStrategy.
    """
    return estimate_of(_latest(model, mode))


def _latest(model: KerasModel, mode: Mode) -> TracedProgram:
    function = getattr(model, f"{mode}_function", None)
    program = function.latest_program() if isinstance(function, StepFunction) else None
    if program is None:
        method = {"train": "fit", "test": "evaluate", "predict": "predict"}[mode]
        raise ConfigurationError(
            f"Expected a model that has run {method}() inside an IPUStrategy. Received: {model.name!r}, which has "
            f"not. Call {method}() on it first."
        )
    return program


def chip_summary(model: KerasModel, mode: Mode = "train") -> str:
    """The cost report as a table of about twenty lines, 88 columns wide; raises as `chip_estimate`."""
    return ChipSummary(chip_estimate(model, mode))


def chip_scaling(
    model: KerasModel,
    mode: Mode = "train",
    replicas: Iterable[int] = POWERS_OF_TWO,
    kind: Literal["weak", "strong"] = "weak",
) -> Predictions:
    """Estimates of the program of `chip_estimate` for each number of replicas; 1 to 1,024 by default.

    A replica of a pipeline has several IPUs. "weak" keeps each replica's micro-batches, "strong" the batch of the first
    number. The tuple of `engine.profile.scaling.Prediction` prints as a table, with its assumptions. Raises as
    `chip_estimate`, and ConfigurationError for numbers of replicas below 1.
    """
    found, program = chip_estimate(model, mode), _latest(model, mode)
    if found.pipeline is not None:
        return predict(workload_of(found), found.target, replicas, kind)
    made = accumulation_of(model) if mode == "train" else Accumulation()
    workload = workload_of(found, gradient_bytes(program.engine_program), made.steps)
    return predict(workload, found.target, replicas, kind)
