"""`accumulate_outfeed`: logs of an execution that are means over its micro-batches, computed on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ipu._internal.compiler.variables import IPUVariable
from ipu._internal.pipelining.sums import names_of, summed_as
from keras_ext.pipelining.assigned import is_pipelined
from keras_ext.pipelining.options import accumulates_outfeed, outfeed_sum_dtype
from keras_ext.types import KerasModel, Logs, Tensor

_COUNTERS = "_ipu_outfeed_counters"


def has_accumulated_logs(model: KerasModel, mode: str) -> bool:
    """Whether callbacks get means once an execution, even if they are asynchronous; never true for `predict`."""
    return mode != "predict" and accumulates_outfeed(model) and is_pipelined(model)


def accumulated_logs(model: KerasModel, mode: str, logs: Logs, period: int | None) -> Any:
    """The means of a step's logs over the micro-batches so far, while the step is traced.

    The means are reset after `period` micro-batches, or by `begin_execution` if `period` is None.
    """
    asked = outfeed_sum_dtype(model)
    named = zip(names_of(logs), tf.nest.flatten(logs), strict=True)
    parts = [summed_as(leaf, asked, name) for name, leaf in named if _is_mean(leaf)]
    with tf.init_scope():
        counter = _variable("count", ())
        sums = [_variable("sum", part.shape, part.dtype) for part in parts]
    vars(model).setdefault(_COUNTERS, {})[mode] = counter
    before = tf.convert_to_tensor(counter)
    count = before + 1
    counter.assign(count if period is None else tf.where(count >= period, 0.0, count))
    following = zip(sums, parts, strict=True)

    def mean(leaf: Tensor) -> Any:
        if not _is_mean(leaf):
            return leaf
        total, part = next(following)
        kept = tf.where(before > 0, tf.convert_to_tensor(total), tf.zeros_like(part))
        moved = kept + part
        total.assign(moved)
        return tf.cast(moved, leaf.dtype) / tf.cast(count, leaf.dtype)

    return tf.nest.map_structure(mean, logs)


def begin_execution(model: KerasModel, mode: str) -> None:
    """Resets the means of an execution without a period."""
    counter = vars(model).get(_COUNTERS, {}).get(mode)
    if counter is not None and mode != "train":
        counter.assign(np.float32(0))


def _variable(name: str, shape: tf.TensorShape | tuple[int, ...], dtype: tf.DType = tf.float32) -> IPUVariable:
    return IPUVariable(initial_value=tf.zeros(shape, dtype), trainable=False, name=f"ipu_outfeed_{name}")


def _is_mean(leaf: Tensor) -> bool:
    return tf.is_tensor(leaf) and leaf.dtype.is_floating
