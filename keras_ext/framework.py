"""The interface of one Keras to the functions that run its models' steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from keras_ext.epochs.batch_types import BatchType
from keras_ext.types import Batch, KerasModel

Mode = Literal["train", "test", "predict"]


class Framework(Protocol):
    """The interface of a file in `frameworks` to its models."""

    def prepare(self, model: KerasModel, mode: Mode, batch: Batch, batch_type: BatchType = None) -> None:
        """Builds what a step needs before it is traced, for a nested batch of specs of this type."""

    def step_of(self, model: KerasModel, mode: Mode) -> Callable[..., Any] | None:
        """The model's step method if Keras looks it up when it makes a function; None if it does so in each trace."""
        return None

    def step(self, model: KerasModel, mode: Mode, data: Batch, method: Callable[..., Any] | None = None) -> Any:
        """Traces one step of `mode` on the nested batch `data`: by `method`, or by the one that the model has now."""

    def steps_per_execution(self, model: KerasModel) -> int:
        """The number of steps that one call runs."""

    def optimizer(self, model: KerasModel) -> Any:
        """The optimizer of steps that are traced from now on; None before `compile`."""
        return getattr(model, "optimizer", None)

    def metric_variables(self, model: KerasModel) -> list[Any]:
        """TensorFlow's variables of the model's metrics."""
