"""Data sets that only select and batch rows of tensors: the position of each element's parts, without tf.data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops.dataset_ops import DatasetV1Adapter

ENDLESS = 1 << 62
"""More elements than any program takes."""

Locate = Callable[[Sequence[int], np.ndarray], list[np.ndarray]]


@dataclass(frozen=True, slots=True)
class RowSequence:
    """`length` elements. Each leaf k of an element consists of `parts[k]` rows of `tensors`.

    `locate(addresses of the tensors, numbers of elements [n])` gives the rows' addresses for each leaf, [n, parts[k]].
    """

    length: int
    parts: tuple[int, ...]
    tensors: tuple[tf.Tensor, ...]
    locate: Locate


def row_sequence(dataset: tf.data.Dataset) -> RowSequence | None:
    """The elements of the data set; None if it does more than select and batch, or depends on unknown values."""
    if isinstance(dataset, DatasetV1Adapter):
        dataset = dataset._dataset
    step, inputs = STEPS.get(type(dataset).__name__), [row_sequence(each) for each in dataset._inputs()]
    known = [each for each in inputs if each is not None]
    return None if step is None or len(known) < len(inputs) else step(dataset, *known)


def _slices(dataset: Any) -> RowSequence | None:
    return _source(dataset._tensors, 1)


def _whole(dataset: Any) -> RowSequence | None:
    return _source(dataset._tensors, 0)


def _source(tensors: Sequence[tf.Tensor], axes: int) -> RowSequence | None:
    """The elements of tensors: with 1 for `axes` the slices along the first axis, with 0 the whole tensors as one."""
    if not all(tensor.shape.is_fully_defined() for tensor in tensors):
        return None
    shapes = [tensor.shape.as_list() for tensor in tensors]
    row_bytes = [math.prod(shape[axes:]) * t.dtype.size for shape, t in zip(shapes, tensors, strict=True)]

    def locate(addresses: Sequence[int], numbers: np.ndarray) -> list[np.ndarray]:
        return [(a + size * numbers)[:, None] for a, size in zip(addresses, row_bytes, strict=True)]

    return RowSequence(shapes[0][0] if axes else 1, (1,) * len(tensors), tuple(tensors), locate)


def _numbered(
    source: RowSequence, length: int, numbers: Callable[[np.ndarray], np.ndarray] | None = None
) -> RowSequence:
    """A sequence of `length` elements of `source`: those to whose numbers `numbers` maps, or the first ones."""
    length = min(max(length, 0), ENDLESS)
    if numbers is None:
        return RowSequence(length, source.parts, source.tensors, source.locate)
    return RowSequence(length, source.parts, source.tensors, lambda a, n: source.locate(a, numbers(n)))


def _integers(*tensors: tf.Tensor) -> Iterator[int | None]:
    """Values of scalars, integers; None where they are not known before a graph runs."""
    for value in map(tf.get_static_value, tensors):
        yield None if value is None else int(value)


def _same(dataset: Any, source: RowSequence) -> RowSequence:
    return source


def _cached(dataset: Any, source: RowSequence) -> RowSequence | None:
    return source if tf.get_static_value(dataset._filename) == b"" else None  # else it writes a file


def _repeated(dataset: Any, source: RowSequence) -> RowSequence | None:
    (count,) = _integers(dataset._count)
    if count is None:
        return None
    length = source.length * (ENDLESS if count < 0 else count)
    return _numbered(source, length, lambda numbers: numbers % source.length)


def _taken(dataset: Any, source: RowSequence) -> RowSequence | None:
    (count,) = _integers(dataset._count)
    return None if count is None else _numbered(source, source.length if count < 0 else min(count, source.length))


def _skipped(dataset: Any, source: RowSequence) -> RowSequence | None:
    (count,) = _integers(dataset._count)
    if count is None:
        return None
    return _numbered(source, 0 if count < 0 else source.length - count, lambda numbers: numbers + count)


def _shard(dataset: Any, source: RowSequence) -> RowSequence | None:
    shards, index = _integers(dataset._num_shards, dataset._index)
    if shards is None or index is None or not 0 <= index < shards:
        return None
    return _numbered(source, -(-(source.length - index) // shards), lambda numbers: numbers * shards + index)


def _batched(dataset: Any, source: RowSequence) -> RowSequence | None:
    size, drop_remainder = _integers(dataset._batch_size, dataset._drop_remainder)
    if not size or size < 0 or drop_remainder is None or not drop_remainder and source.length % size:
        return None

    def locate(addresses: Sequence[int], numbers: np.ndarray) -> list[np.ndarray]:
        rows = source.locate(addresses, (numbers[:, None] * size + np.arange(size)).reshape(-1))
        return [each.reshape(len(numbers), size * each.shape[1]) for each in rows]

    return RowSequence(source.length // size, tuple(size * count for count in source.parts), source.tensors, locate)


def _concatenated(dataset: Any, first: RowSequence, second: RowSequence) -> RowSequence | None:
    if first.parts != second.parts:
        return None

    def locate(addresses: Sequence[int], numbers: np.ndarray) -> list[np.ndarray]:
        here, rows = numbers < first.length, []
        own, others = addresses[: len(first.tensors)], addresses[len(first.tensors) :]
        leaves = first.locate(own, numbers[here]), second.locate(others, numbers[~here] - first.length)
        for each, other in zip(*leaves, strict=True):
            rows.append(np.empty((len(numbers), each.shape[1]), np.int64))
            rows[-1][here], rows[-1][~here] = each, other
        return rows

    return RowSequence(min(first.length + second.length, ENDLESS), first.parts, first.tensors + second.tensors, locate)


def _zipped(dataset: Any, *sources: RowSequence) -> RowSequence:
    def locate(addresses: Sequence[int], numbers: np.ndarray) -> list[np.ndarray]:
        rest, rows = list(addresses), []
        for source in sources:
            own, rest = rest[: len(source.tensors)], rest[len(source.tensors) :]
            rows += source.locate(own, numbers)
        return rows

    parts, tensors = (sum((getattr(s, name) for s in sources), ()) for name in ("parts", "tensors"))
    return RowSequence(min(source.length for source in sources), parts, tensors, locate)


STEPS: dict[str, Callable[..., RowSequence | None]] = {
    "_TensorSliceDataset": _slices,
    "_TensorDataset": _whole,
    "_BatchDataset": _batched,
    "_ParallelBatchDataset": _batched,
    "CacheDataset": _cached,
    "_ConcatenateDataset": _concatenated,
    "_OptionsDataset": _same,
    "_PrefetchDataset": _same,
    "_RepeatDataset": _repeated,
    "_ShardDataset": _shard,
    "_SkipDataset": _skipped,
    "_TakeDataset": _taken,
    "_ZipDataset": _zipped,
}
