"""Writes data sets and inputs to files, and moves initializers; NumPy and TensorFlow are loaded only when used."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import ConfigurationError
from engine.integers import checked_integer
from engine.whole_files import write_all, write_whole

if TYPE_CHECKING:
    import tensorflow as tf


def export_dataset_to_file(
    dataset_or_infeed: object,
    output_filename: str,
    num_elements: int,
    feed_name: str = "",
    apply_options: bool = True,
    apply_debug_options: bool = True,
) -> None:
    """Export as binary `num_elements` from the given infeed to the specified output_filename.

    Files have NumPy's format .npy, whatever their ending: `numpy.load` reads them, [num_elements, ...]. If elements
    have several tensors, one file for each is created: name.0.bin, name.1.bin and so on for name.bin, in the order of
    tf.nest.flatten.

    Args:
        dataset_or_infeed: a tf.data.Dataset or an IPUInfeedQueue.
        output_filename: where to export the tensors to.
        num_elements: number of elements to export from the dataset.
        feed_name: put into the names of the files, if it is given: name.feed_name.bin.
        apply_options: whether the dataset may use several threads.
        apply_debug_options: the name of later releases for `apply_options`.

    Raises:
        TypeError: `dataset_or_infeed` is neither.
        ValueError: `num_elements` is no positive integer, or the dataset has fewer elements.
    """
    import numpy as np
    import tensorflow as tf

    dataset = getattr(dataset_or_infeed, "_dataset", dataset_or_infeed)
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(
            f"Expected a tf.data.Dataset or an IPUInfeedQueue. Received: {dataset_or_infeed!r} of type "
            f"{type(dataset_or_infeed).__name__}."
        )
    num_elements = checked_integer("num_elements", num_elements)
    if apply_options and apply_debug_options:
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
    elements = [tf.nest.flatten(element) for element in _elements(dataset.take(num_elements))]
    if len(elements) < num_elements:
        raise ConfigurationError(
            f"Expected a dataset of at least {num_elements} elements. Received: one of {len(elements)}. "
            f"Nearest: num_elements={len(elements)}, or dataset.repeat()."
        )
    tensors = list(zip(*elements, strict=True))
    paths = [_named(Path(output_filename), feed_name, k if len(tensors) > 1 else None) for k in range(len(tensors))]
    write_all({path: _content(np.save, np.stack(values)) for path, values in zip(paths, tensors, strict=True)})


def export_inputs_to_file(inputs: Iterable[Any], output_filename: str, feed_dict: Mapping[Any, Any]) -> None:
    """Export as binary the list of inputs provided to the specified output_filename.

    The file has NumPy's format .npz, whatever its ending: `numpy.load` gives an array under the name of each input.

    Args:
        inputs: list of graph inputs to export.
        output_filename: where to export the tensors to.
        feed_dict: feed dictionary containing the inputs' values.

    Raises:
        ValueError: an input has no value in `feed_dict`.
    """
    import numpy as np
    import tensorflow as tf

    values = {key.ref() if isinstance(key, tf.Tensor | tf.Variable) else key: value for key, value in feed_dict.items()}
    arrays = {}
    for each in inputs:
        if each.ref() not in values:
            raise ConfigurationError(f"Expected a value for each input in feed_dict. Received: none for {each.name!r}.")
        arrays[each.name] = np.asarray(values[each.ref()], each.dtype.as_numpy_dtype)
    write_whole(output_filename, _content(np.savez, **arrays))


def move_variable_initialization_to_cpu(graph: tf.Graph | None = None) -> None:
    """Moves the initialisation of all variables in the VARIABLES collection to the CPU.

    Variables that are created eagerly are initialised on the host in any case.

    Args:
        graph: operations are moved around on this graph; the default graph if not specified.
    """
    import tensorflow as tf

    graph = graph or tf.compat.v1.get_default_graph()
    pending = [variable.initializer for variable in graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)]
    seen = set()
    while pending:
        operation = pending.pop()
        if operation is not None and operation not in seen:
            seen.add(operation)
            operation._set_device("/device:CPU:0")
            pending += [tensor.op for tensor in operation.inputs]


def _elements(dataset: tf.data.Dataset) -> Iterator[Any]:
    """The elements as arrays. A session reads those of a data set in a tf.Graph."""
    import tensorflow as tf

    variant = tf.data.experimental.to_variant(dataset)
    if hasattr(variant, "numpy"):
        with tf.init_scope():
            yield from dataset.as_numpy_iterator()
        return
    with variant.graph.as_default(), tf.compat.v1.Session() as session:
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        following = iterator.get_next()
        session.run(iterator.initializer)
        with contextlib.suppress(tf.errors.OutOfRangeError):
            while True:
                yield session.run(following)


def _content(write: Callable[..., None], *arrays: Any, **named: Any) -> bytes:
    content = io.BytesIO()
    write(content, *arrays, **named)
    return content.getvalue()


def _named(path: Path, feed_name: str, number: int | None) -> Path:
    parts = [path.stem, *([feed_name] if feed_name else []), *([str(number)] if number is not None else [])]
    return path.with_name(".".join(parts) + path.suffix)
