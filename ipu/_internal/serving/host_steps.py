"""The steps of an exported model before and after its program, which TensorFlow runs, for the server."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from engine.serving.manifest import Manifest
from engine.serving.servable import Arrays, BatchFunction


def with_steps(path: Path, manifest: Manifest, program: BatchFunction) -> BatchFunction:
    """The program with its steps; imports TensorFlow."""
    import tensorflow as tf

    model = tf.saved_model.load(str(path))
    lock = threading.Lock()

    def tensors(arrays: Arrays, dtypes: list[str]) -> list[Any]:
        return [tf.constant(array, tf.as_dtype(dtype)) for array, dtype in zip(arrays, dtypes, strict=True)]

    def run(arrays: Arrays, timeout: float | None = None) -> Arrays:
        with lock:
            if manifest.has_preprocessing:
                given = tensors(arrays, [each.dtype for each in manifest.inputs])
                arrays = [each.numpy() for each in model.preprocessing(*given)]
            arrays = program(arrays, timeout)
            if manifest.has_postprocessing:
                given = tensors(arrays, [each.dtype for each in manifest.program_outputs])
                arrays = [each.numpy() for each in model.postprocessing(*given)]
            return arrays

    return run
