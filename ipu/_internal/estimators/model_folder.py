"""The folder of a model: its checkpoints, and the summaries of its evaluations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from engine.errors import ConfigurationError

v1 = tf.compat.v1


class ModelFolder:
    """The part of an estimator that reads from its folder, and writes summaries there."""

    _model_dir: str

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints and summaries."""
        return self._model_dir

    def eval_dir(self, name: str | None = None) -> str:
        """The folder of the summaries of the evaluation with that name.

        Args:
            name: the name given to `evaluate`; None for evaluations without one.

        Returns:
            The path, below `model_dir`: "eval_NAME", or "eval".
        """
        return os.path.join(self._model_dir, f"eval_{name}" if name else "eval")

    def latest_checkpoint(self) -> str | None:
        """The path of the latest checkpoint in the model's folder; None if there is none."""
        return tf.train.latest_checkpoint(self._model_dir)

    def get_variable_names(self) -> list[str]:
        """The names of the variables in the latest checkpoint. Raises ValueError if there is none."""
        return [name for name, _ in tf.train.list_variables(self._checkpoint(None))]

    def get_variable_value(self, name: str | list[str]) -> Any:
        """The array of the variable `name` in the latest checkpoint, or those of a list of names.

        Args:
            name: the name of a variable, or a list of names.

        Returns:
            A NumPy array of the variable's dtype and shape, or a list of them.

        Raises:
            ValueError: there is no checkpoint.
            tf.errors.NotFoundError: the checkpoint has no such variable.
        """
        reader = tf.train.load_checkpoint(self._checkpoint(None))
        return reader.get_tensor(name) if isinstance(name, str) else [reader.get_tensor(each) for each in name]

    def _checkpoint(self, path: str | None) -> str:
        checkpoint = path or self.latest_checkpoint()
        if not checkpoint:
            raise ConfigurationError(
                f"Expected a checkpoint in {self._model_dir!r}. Received: none. Train the model first."
            )
        return checkpoint

    def _saved_step(self) -> int:
        checkpoint = self.latest_checkpoint()
        return int(tf.train.load_variable(checkpoint, "global_step")) if checkpoint else 0

    def _write_summary(self, folder: str, results: Mapping[str, Any]) -> None:
        values = [
            v1.Summary.Value(tag=name, simple_value=float(value))
            for name, value in results.items()
            if name != "global_step" and np.ndim(value) == 0 and np.asarray(value).dtype.kind in "fiub"
        ]
        writer = v1.summary.FileWriterCache.get(folder)  # another writer of the same second would truncate its file
        writer.add_summary(v1.Summary(value=values), int(results["global_step"]))
        writer.flush()
