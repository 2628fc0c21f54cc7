"""`ipu.ProfileReport`: a callback of either Keras that writes a report on what it has seen running."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import OutOfTileMemory
from ipu._internal.profiling.failures import listen, listen_no_more
from ipu._internal.profiling.saying import PATH, tell_written
from ipu._internal.types import Nest

if TYPE_CHECKING:
    from engine.report import Report


def _nothing(*_: object, **__: object) -> None:
    """What happens with each batch. Both Keras look for the mark, and then need not wait for callbacks."""


_nothing._is_default = True  # type: ignore[attr-defined]


class ProfileReport:
    """A callback for `fit`, `evaluate` and `predict` that writes a report like `ipu.profile`.

    The report is written after the first epoch and at the end, when it knows the queues; one line says then where it
    is (in the log with verbose=0, or after `keras.utils.disable_interactive_logging()`). And if the program does not
    fit into the chip's memory, before the error is raised. It suits both Keras, as it is no subclass of either.

    Args:
        path: the page to write; the same comes beside it as .json, .trace.json and .txt.
        name: what the report calls the program; None for the model's name.

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
        """Keras says whose callback this is."""
        self.model = model

    def set_params(self, params: dict[str, Any]) -> None:
        """Keras says how many epochs and steps there will be."""
        self.params = params

    def on_train_begin(self, logs: Nest = None) -> None:
        """Programs are compiled from now on."""
        self._training, self._epochs = True, 0
        listen(self.model, self._failed)

    def on_epoch_begin(self, epoch: int, logs: Nest = None) -> None:
        """An epoch begins."""

    def on_epoch_end(self, epoch: int, logs: Nest = None) -> None:
        """Writes the report early, if there are more epochs to come."""
        self._epochs += 1
        if self._epochs == 1 and self.params.get("epochs", 1) > 1:
            self._write("train")

    def on_train_end(self, logs: Nest = None) -> None:
        """Writes the report."""
        self._training = False
        listen_no_more(self.model, self._failed)
        self._write("train")
        self._tell()

    def on_test_begin(self, logs: Nest = None) -> None:
        """An evaluation begins, maybe one of `fit`."""
        listen(self.model, self._failed)

    def on_test_end(self, logs: Nest = None) -> None:
        """Writes the report on `evaluate`."""
        self._ended("test")

    def on_predict_begin(self, logs: Nest = None) -> None:
        """A prediction begins."""
        listen(self.model, self._failed)

    def on_predict_end(self, logs: Nest = None) -> None:
        """Writes the report on `predict`."""
        self._ended("predict")

    def _implements_train_batch_hooks(self) -> bool:
        return False

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False

    def _ended(self, mode: str) -> None:
        if self._training:
            return  # the report is on what `fit` does
        listen_no_more(self.model, self._failed)
        self._write(mode)
        self._tell(in_bar=True)

    def _write(self, mode: str) -> None:
        # What makes reports loads Numba, which takes long; by now the engine has loaded it.
        from ipu._internal.profiling.making import report_of_model

        self.report = report_of_model(self.model, mode, self.name or self.model.name)
        self._files = self.report.save(self.path)

    def _tell(self, *, in_bar: bool = False) -> None:
        """Says where the report is; in the log where the run itself is told to be silent (verbose=0).

        `in_bar` says that a progress bar, where there is one, has not ended its line.
        """
        verbose = self.params.get("verbose", 1)
        if self._files:
            tell_written(self._files, aloud=verbose != 0, after_bar=in_bar and verbose == 1)

    def _failed(self, error: OutOfTileMemory) -> None:
        """Writes the report on what does not fit, and says so in the error."""
        listen_no_more(self.model, self._failed)
        self._training = False
        from ipu._internal.profiling.making import write_failure

        self.report = write_failure(error, self.name or self.model.name, self.path)
