"""Exporters, which `train_and_evaluate` calls with a model after each evaluation."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from engine.whole_files import remove
from ipu._internal.estimators.estimator import Estimator


class Exporter:
    """Exports a model after an evaluation: tf.estimator.Exporter. Subclasses have a `name` and an `export`."""

    name: str

    def export(
        self, estimator: Estimator, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """Exports the checkpoint to a folder below `export_path`, or does not.

        Returns the path of what was exported, or None.
        """
        raise NotImplementedError("Expected a subclass of Exporter to define export.")


class _SavedModelExporter(Exporter):
    """Exports SavedModels, and keeps the latest `exports_to_keep` of them; None keeps all."""

    def __init__(
        self,
        name: str,
        receiver: Callable[[], Any] | None,
        assets_extra: Any,
        as_text: bool,
        exports_to_keep: int | None,
    ) -> None:
        if receiver is None:
            raise ConfigurationError("Expected a serving_input_receiver_fn. Received: None.")
        if exports_to_keep is not None and exports_to_keep < 1:
            raise ConfigurationError(f"Expected exports_to_keep to be 1 or more, or None. Received: {exports_to_keep}.")
        self.name, self._keep = name, exports_to_keep
        self._arguments = receiver, assets_extra, as_text

    def export(
        self, estimator: Estimator, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """The path of the SavedModel, whose folder is named by the time."""
        path = estimator.export_saved_model(export_path, *self._arguments, checkpoint_path)
        earlier = sorted(
            (each for each in Path(export_path).iterdir() if each.name.isdigit()), key=lambda p: int(p.name)
        )
        for folder in earlier[: -self._keep] if self._keep else ():
            remove(folder)  # a server that watches the parent never sees a part of it
        return path


class FinalExporter(_SavedModelExporter):
    """Exports a SavedModel at the end of a training: tf.estimator.FinalExporter."""

    def __init__(
        self, name: str, serving_input_receiver_fn: Callable[[], Any], assets_extra: Any = None, as_text: bool = False
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, None)

    def export(self, estimator: Estimator, *arguments: Any) -> Any:
        """The path of the SavedModel, None before the end."""
        return super().export(estimator, *arguments) if arguments[-1] else None


class LatestExporter(_SavedModelExporter):
    """Exports a SavedModel after each evaluation, and keeps the latest: tf.estimator.LatestExporter.

    Raises ValueError for `exports_to_keep` below 1.
    """

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Any = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)


def _is_loss_smaller(best_eval_result: dict[str, Any], current_eval_result: dict[str, Any]) -> bool:
    return bool(current_eval_result["loss"] < best_eval_result["loss"])


class BestExporter(_SavedModelExporter):
    """Exports a SavedModel after an evaluation that is better than all before: tf.estimator.BestExporter.

    Args:
        name: the name of the exporter, and of the folder below `export`.
        serving_input_receiver_fn: as that of LatestExporter; likewise assets_extra, as_text and exports_to_keep.
        event_file_pattern: the event files, below the model's folder, that hold the evaluations of earlier processes;
            None means that they do not count.
        compare_fn: a function of best_eval_result and current_eval_result, whether the current one is better.

    Raises:
        ValueError: there is no `serving_input_receiver_fn`, or `exports_to_keep` is below 1.
    """

    def __init__(
        self,
        name: str = "best_exporter",
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        event_file_pattern: str | None = "eval/*.tfevents.*",
        compare_fn: Callable[..., bool] = _is_loss_smaller,
        assets_extra: Any = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)
        self._pattern, self._is_better = event_file_pattern, compare_fn
        self._best: dict[str, Any] | None = None
        self._model_dir: str | None = None

    def export(
        self, estimator: Estimator, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """The path of the SavedModel, None where an earlier evaluation was as good."""
        if self._pattern is not None and self._model_dir != estimator.model_dir:
            self._model_dir, self._best = estimator.model_dir, None
            for result in _evaluations(os.path.join(estimator.model_dir, self._pattern), eval_result["global_step"]):
                self._note(result)
        if not self._note(eval_result):
            return None
        return super().export(estimator, export_path, checkpoint_path, eval_result, is_the_final_export)

    def _note(self, result: dict[str, Any]) -> bool:
        """Notes an evaluation as the best, if it is."""
        if self._best is not None and not self._is_better(best_eval_result=self._best, current_eval_result=result):
            return False
        self._best = result
        return True


def _evaluations(pattern: str, step: int) -> list[dict[str, Any]]:
    """The metrics in event files, except those of one step."""
    found = []
    for path in sorted(tf.io.gfile.glob(pattern)):
        for event in tf.compat.v1.train.summary_iterator(path):
            values = {each.tag: each.simple_value for each in event.summary.value if each.HasField("simple_value")}
            if values and event.step != step:
                found.append(values)
    return found
