"""Dataset benchmarking: the public names of `tensorflow.python.ipu.dataset_benchmark` (Python API, 18.11.1)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from engine.integers import checked_integer
from ipu._internal.graphs.session_operations import variant_operation
from ipu._internal.names.namespace import public_names

__all__ = ["dataset_benchmark", "infeed_benchmark"]
__getattr__, __dir__ = public_names(__name__, __all__)


def dataset_benchmark(
    dataset: tf.data.Dataset,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    apply_options: bool = True,
    do_memcpy: bool = True,
    apply_debug_options: bool = True,
) -> tf.Tensor:
    """Allows the user to benchmark performance of a tf.data.Dataset.

    Args:
        dataset: an instance of tf.data.Dataset which will be benchmarked; it is iterated once, over all epochs.
        number_of_epochs: the number of epochs this dataset will be run for.
        elements_per_epochs: the number of elements there are in each epoch.
        print_stats: whether to print statistics about the performance to the console.
        apply_options: whether to apply optimization options which can improve the dataset performance.
        do_memcpy: whether to copy each element, as to a buffer of the device.
        apply_debug_options: the name of later releases for `apply_options`.

    Returns:
        A string tensor of shape [1]: JSON, {"epochs": [...]}, with elements_processed, total_bytes_processed,
        time_elapsed in seconds, elements_per_second and bandwidth in GB/s of each epoch. A graph measures when the
        tensor is evaluated.

    Raises:
        TypeError: `dataset` is not an instance of tf.data.Dataset.
        ValueError: `number_of_epochs` or `elements_per_epochs` is less than 1.
        tensorflow.errors.OutOfRangeError: (during the measurement) the dataset has fewer elements.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(f"Expected dataset to be a tf.data.Dataset. Received: {type(dataset).__name__}.")
    for count, name in ((number_of_epochs, "number_of_epochs"), (elements_per_epochs, "elements_per_epochs")):
        checked_integer(name, count)
    if apply_options and apply_debug_options:
        options = tf.data.Options()
        options.deterministic = True
        options.experimental_optimization.apply_default_optimizations = True
        options.autotune.enabled = True
        dataset = dataset.with_options(options)
    structure = dataset.element_spec

    def measure(variant: tf.Tensor) -> tf.Tensor:
        elements = iter(tf.data.experimental.from_variant(variant, structure).as_numpy_iterator())
        epochs = [_epoch(elements, elements_per_epochs, do_memcpy) for _ in range(number_of_epochs)]
        if print_stats:
            for number, epoch in enumerate(epochs):
                print(_line(number, epoch))
        return tf.constant([json.dumps({"epochs": epochs})])

    variant = tf.data.experimental.to_variant(dataset)
    if tf.executing_eagerly():
        return measure(variant)
    return variant_operation(measure, [variant], tf.TensorSpec([1], tf.string))


def infeed_benchmark(
    infeed_queue: object,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    do_memcpy: bool = True,
) -> tf.Tensor:
    """Allows the user to benchmark performance of the dataset of an IPUInfeedQueue.

    Args:
        infeed_queue: an instance of ipu.ipu_infeed_queue.IPUInfeedQueue which will be benchmarked. It need not be
            initialised, and does not change.
        number_of_epochs: see `dataset_benchmark`.
        elements_per_epochs: see `dataset_benchmark`.
        print_stats: see `dataset_benchmark`.
        do_memcpy: see `dataset_benchmark`.

    Returns:
        A string tensor of shape [1]: JSON with the figures of each epoch, as from `dataset_benchmark`.

    Raises:
        TypeError: `infeed_queue` is not an instance of IPUInfeedQueue.
        ValueError: `number_of_epochs` or `elements_per_epochs` is less than 1.
        tensorflow.errors.OutOfRangeError: (during the measurement) the dataset has fewer elements.
    """
    from ipu.ipu_infeed_queue import IPUInfeedQueue

    if not isinstance(infeed_queue, IPUInfeedQueue):
        raise TypeError(f"Expected infeed_queue to be an IPUInfeedQueue. Received: {type(infeed_queue).__name__}.")
    return dataset_benchmark(
        infeed_queue._dataset, number_of_epochs, elements_per_epochs, print_stats, do_memcpy=do_memcpy
    )


def _epoch(elements: Iterator[Any], count: int, do_memcpy: bool) -> dict[str, float]:
    size, processed, began = 0, 0, time.perf_counter()
    for element in elements:
        for leaf in tf.nest.flatten(element):
            array = np.asarray(leaf)
            size += array.nbytes
            if do_memcpy:
                array.copy()
        processed += 1
        if processed == count:
            break
    if processed < count:
        raise tf.errors.OutOfRangeError(
            None,
            None,
            f"Expected {count} elements for each epoch. Received: a dataset that ended after {processed} of one. "
            f"Use dataset.repeat().",
        )
    elapsed = max(time.perf_counter() - began, 1e-9)
    return {
        "elements_processed": processed,
        "total_bytes_processed": size,
        "time_elapsed": elapsed,
        "elements_per_second": processed / elapsed,
        "bandwidth": size / elapsed / 1e9,
    }


def _line(number: int, epoch: dict[str, float]) -> str:
    return (
        f"Epoch {number}: {epoch['elements_processed']} elements, {epoch['total_bytes_processed']} bytes in "
        f"{epoch['time_elapsed']:.3f} s: {epoch['elements_per_second']:.0f} elements/s, {epoch['bandwidth']:.3f} GB/s"
    )
