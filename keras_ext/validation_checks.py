"""Checks that the validation data of a `fit` suit its replicas, before the first epoch and not after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from keras_ext.epochs.partial_batch import partial_batch
from keras_ext.replication import refuse_partial_batch, refuse_too_few
from keras_ext.types import Batch

USUAL_BATCH = 32


def check_validation(fit: Mapping[str, Any], replicas: int) -> None:
    """Raises StepCountError for a partial batch, or fewer batches than `replicas`, in the arguments of `fit`.

    Checks arrays and tf.data sets. Others are checked when they are read.
    """
    data, steps = fit.get("validation_data"), fit.get("validation_steps")
    if replicas == 1 or data is None:
        return
    if isinstance(data, tf.data.Dataset):
        partial, batches = partial_batch(data, steps), int(data.cardinality())
    else:
        rows = _rows(data)
        if rows is None:
            return
        size = fit.get("validation_batch_size") or fit.get("batch_size") or USUAL_BATCH
        partial, batches = (rows % size, size) if rows % size else None, -(-rows // size)
    cause = f"{replicas} replicas in validation"
    refuse_partial_batch(partial, cause)
    batches = batches if steps is None else steps
    if batches >= 0:
        refuse_too_few(batches, replicas)


def _rows(data: Batch) -> int | None:
    """The length of arrays, None for anything else."""
    leaves = tf.nest.flatten(data) if isinstance(data, tuple | list) else [data]
    first = next((leaf for leaf in leaves if leaf is not None), None)
    shape = getattr(first, "shape", None)
    return int(shape[0]) if shape else None
