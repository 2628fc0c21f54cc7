"""A notice, before a step is traced, that the activations of a model alone exceed a chip's memory."""

from __future__ import annotations

import logging
import math
import weakref
from typing import Any

import tensorflow as tf

from ipu._internal.compiler.fit import chip_is_checked, out_of_memory_is_allowed
from ipu._internal.config.chip import configured_target
from ipu._internal.config.system import current_system
from keras_ext.types import Batch, KerasModel

logger = logging.getLogger("ipu")
_noticed: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()
NOTICE = (
    "The inputs and outputs of the weighted layers of %r, which its gradients read, come to %s for a batch of %d. "
    "The memory of one chip is %s, so this step is likely to be refused; the check needs the traced step, which "
    "takes long for large models. A smaller batch needs less; ipu.allow_out_of_memory() trains it here as it is."
)


def notice_large_activations(model: KerasModel, batch: Batch) -> None:
    """Logs once for each model and size of `batch` that a training step of it is unlikely to fit one chip.

    Only layers of Functional and Sequential models have known shapes; a step that recomputes activations, or that need
    not fit, has no notice.
    """
    given = (leaf.shape for leaf in tf.nest.flatten(batch) if leaf is not None)
    samples = next((int(shape[0] or 0) for shape in given if shape.rank), 0)
    noticed = _noticed.setdefault(model, set())
    recomputes = current_system().config.allow_recompute
    if samples in noticed or recomputes or not chip_is_checked.value or out_of_memory_is_allowed():
        return
    noticed.add(samples)
    chip = configured_target()
    capacity, needed = chip.tiles * chip.bytes_per_tile, samples * bytes_per_sample(model)
    if needed > capacity:
        logger.warning(NOTICE, model.name, _told(needed), samples, _told(capacity))


def bytes_per_sample(model: KerasModel) -> int:
    """Bytes for a sample of the distinct floating-point tensors that layers with a kernel read and write.

    Layers without known inputs and outputs, such as those of subclassed models, count nothing.
    """
    kept: dict[int, int] = {}
    for layer in model._flatten_layers(include_self=False):
        read, written = (tf.nest.flatten(getattr(layer, side, None)) for side in ("input", "output"))
        # A layer of tf_keras that was not called may hold models whose weights raise an error.
        if hasattr(layer, "layers") or any(each is None for each in (*read, *written)):
            continue
        floats = all(tf.as_dtype(each.dtype).is_floating for each in (*read, *written))
        if floats and any(len(weight.shape) > 1 for weight in layer.trainable_weights):
            kept |= {id(each): _bytes(each) for each in (*read, *written)}
    return sum(kept.values())


def _told(size: int) -> str:
    """Text for a number of bytes, in the largest unit that it reaches."""
    units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    return next((f"{size / unit:.2f} {name}" for unit, name in units if size >= unit), f"{size} bytes")


def _bytes(tensor: Any) -> int:
    """Bytes of a sample, 0 if a dimension is not known."""
    sizes = tf.TensorShape(tensor.shape).as_list()[1:]
    return 0 if None in sizes else math.prod(sizes) * int(tf.as_dtype(tensor.dtype).size)
