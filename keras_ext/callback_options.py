"""`set_asynchronous_callbacks`: whether batch callbacks fire for each step while the engine runs."""

from __future__ import annotations

from typing import Any, ClassVar

from engine.errors import ConfigurationError
from keras_ext.extension import Extension, option, options_of
from keras_ext.types import KerasModel

ASYNCHRONOUS = "asynchronous_callbacks"


class CallbackOptions(Extension):
    """The methods about callbacks."""

    SAVED: ClassVar[dict[str, Any]] = {ASYNCHRONOUS: False}

    def set_asynchronous_callbacks(self: KerasModel, asynchronous: bool = False) -> None:
        """Sets whether `fit`, `evaluate` and `predict` call batch callbacks after each step or once an execution.

        Asynchronous callbacks are called in order from a thread of their own while the engine runs. A step takes a
        batch in each replica and has one call, with the metrics of all replicas, or their predictions in the order of
        the data; `params["steps"]`, progress bars and `steps_per_execution` count these steps, too. Steps that
        accumulate gradients are reported one by one, too, with logs of their own, before the update; only where logs
        depend on updated variables, they are the update's for all its steps. A callback that reads a variable of
        the model (`get_weights()`, the learning rate, `ModelCheckpoint` with `save_freq`) waits for the end of the
        execution and sees the value after it; meanwhile the engine continues, whatever `buffer_depth` is. An exception
        or `model.stop_training` ends the execution after a whole step, with accumulation or stages after a whole
        update; steps that were complete by then are still reported, except after an exception and except other steps
        of the same update.

        Args:
            asynchronous: whether each step has a call.

        Raises:
            ConfigurationError: anything but a bool.
        """
        if not isinstance(asynchronous, bool):
            raise ConfigurationError(f"Expected asynchronous to be True or False. Received: {asynchronous!r}.")
        options_of(self)[ASYNCHRONOUS] = asynchronous


def has_asynchronous_callbacks(model: KerasModel) -> bool:
    """Whether the model's batch callbacks are to fire for each step."""
    return bool(option(model, ASYNCHRONOUS, False))
