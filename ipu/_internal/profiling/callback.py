"""`ipu.ProfileReport`: a callback of either Keras that writes a report on the program that ran."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import OutOfTileMemory
from ipu._internal.profiling.failures import listen, listen_no_more
from ipu._internal.profiling.messages import PATH, announce_written
from ipu._internal.types import Nest

if TYPE_CHECKING:
    from engine.report import Report


def _nothing(*_: object, **__: object) -> None:
    """Hook for each batch, without effect: both Keras look for its mark, and then need not wait for callbacks."""


_nothing._is_default = True  # type: ignore[attr-defined]


class ProfileReport:
    """A callback for `fit`, `evaluate` and `predict` that writes a report like `ipu.profile`.

    The report is written after the first epoch and at the end, with measurements of the queues; one line then prints
    its path (in the log with verbose=0, or after `keras.utils.disable_interactive_logging()`). If the program does not
    fit into the chip's memory, it is written before the error is raised. The class works with both Keras, and derives
    from neither.

    Args:
        path: the page to write; .json, .trace.json and .txt files with the same contents are written beside it.
        name: the program's name in the report; None for the model's name.

    Attributes:
        report: the latest report; None before the first.
    """

    async_safe = True
    _supports_tf_logs = True

    on_batch_begin = on_batch_end = staticmethod(_nothing)
    on_train_batch_begin = on_train_batch_end = staticmethod(_nothing)
    on_test_batch_begin = on_test_batch_end = staticmethod(_nothing)
    on_predict_batch_begin = on_predict_batch_end = staticmethod(_nothing)

    def __init__(self, path: str | PathLike[str] = PATH, name: str | None = None) -> None:
        self.path = Path(path)
        self.name = name
        self.report: Report | None = None
        self.model: Any = None
        self.params: dict[str, Any] = {}
        self._training = False
        self._epochs = 0
        self._files: list[Path] = []

    def set_model(self, model: object) -> None:
        """Called by Keras with the callback's model.

        Args:
            model: the model whose programs the reports are on.
        """
        self.model = model

    def set_params(self, params: dict[str, Any]) -> None:
        """Called by Keras with the numbers of epochs and steps.

        Args:
            params: a dictionary, of which "epochs" and "verbose" have an effect; both are 1 where they are missing.
        """
        self.params = params

    def on_train_begin(self, logs: Nest = None) -> None:
        """Listens for programs that do not fit, before they are compiled.

        Args:
            logs: no effect.
        """
        self._training, self._epochs = True, 0
        listen(self.model, self._failed)

    def on_epoch_begin(self, epoch: int, logs: Nest = None) -> None:
        """No effect.

        Args:
            epoch: no effect.
            logs: no effect.
        """

    def on_epoch_end(self, epoch: int, logs: Nest = None) -> None:
        """Writes the report after the first of several epochs.

        Args:
            epoch: no effect: epochs are counted from the start of `fit`, whatever its `initial_epoch`.
            logs: no effect.
        """
        self._epochs += 1
        if self._epochs == 1 and self.params.get("epochs", 1) > 1:
            self._write("train")

    def on_train_end(self, logs: Nest = None) -> None:
        """Writes the report.

        Args:
            logs: no effect.
        """
        self._training = False
        listen_no_more(self.model, self._failed)
        self._write("train")
        self._announce()

    def on_test_begin(self, logs: Nest = None) -> None:
        """Listens for programs that do not fit; also called by `fit`.

        Args:
            logs: no effect.
        """
        listen(self.model, self._failed)

    on_predict_begin = on_test_begin

    def on_test_end(self, logs: Nest = None) -> None:
        """Writes the report on `evaluate`.

        Args:
            logs: no effect.
        """
        self._ended("test")

    def on_predict_end(self, logs: Nest = None) -> None:
        """Writes the report on `predict`.

        Args:
            logs: no effect.
        """
        self._ended("predict")

    def _implements_train_batch_hooks(self) -> bool:
        return False

    _implements_test_batch_hooks = _implements_predict_batch_hooks = _implements_train_batch_hooks

    def _ended(self, mode: str) -> None:
        if self._training:
            return  # the report is on `fit`
        listen_no_more(self.model, self._failed)
        self._write(mode)
        self._announce(in_bar=True)

    def _write(self, mode: str) -> None:
        # Imports Numba, which takes long; by now the engine has loaded it.
        from ipu._internal.profiling.make_report import report_of_model

        self.report = report_of_model(self.model, mode, self.name or self.model.name)
        self._files = self.report.save(self.path)

    def _announce(self, *, in_bar: bool = False) -> None:
        """Prints the path of the report; in the log where the run itself is silent (verbose=0).

        `in_bar`: a progress bar, if any, has not ended its line.
        """
        verbose = self.params.get("verbose", 1)
        if self._files:
            announce_written(self._files, aloud=verbose != 0, after_bar=in_bar and verbose == 1)

    def _failed(self, error: OutOfTileMemory) -> None:
        """Writes the report on a program that does not fit, and notes its path in the error."""
        listen_no_more(self.model, self._failed)
        self._training = False
        from ipu._internal.profiling.make_report import write_failure

        self.report = write_failure(error, self.name or self.model.name, self.path)
