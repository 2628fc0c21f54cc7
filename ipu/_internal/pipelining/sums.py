"""`accumulate_outfeed_dtype`: the dtype in which outputs are summed over micro-batches (Python API, `pipeline()`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import tensorflow as tf

from ipu._internal.pipelining.errors import PipelineTypeError
from ipu._internal.types import Nest


def checked_sum_dtype(asked: object) -> Any:
    """`accumulate_outfeed_dtype`, unchanged: None, a dtype of numbers or a function of the summed tensor.

    Raises PipelineTypeError for anything else.
    """
    return asked if asked is None or _is_function(asked) else _checked(asked)


def summed_as(tensor: tf.Tensor, asked: object, name: str) -> tf.Tensor:
    """The output of that name, cast to the dtype in which it is summed over micro-batches.

    A function gets a `tf.TensorSpec`: names of tensors in the program get numbers that no program can know.
    Raises PipelineTypeError for a function that returns no dtype of numbers.
    """
    if _is_function(asked):
        asked = asked(tf.TensorSpec(tensor.shape, tensor.dtype, name))
    return tensor if asked is None else tf.cast(tensor, tf.as_dtype(_checked(asked)))


def names_of(structure: Nest, positions: Sequence[int] | None = None) -> list[str]:
    """The names of nested outputs in the order of `tf.nest.flatten`: their keys, or `output_<k>` at index k of a list.

    `positions` are the indices of the elements of a list, if some have been left out.
    """
    return ["/".join(path) or "output_0" for path in _paths(structure, positions)]


def _paths(structure: Nest, positions: Sequence[int] | None = None) -> Iterator[tuple[str, ...]]:
    if isinstance(structure, Mapping):
        inner = [(str(key), structure[key]) for key in sorted(structure)]
    elif isinstance(structure, list | tuple):
        numbered = [
            f"output_{position}" for position in (positions if positions is not None else range(len(structure)))
        ]
        inner = list(zip(getattr(structure, "_fields", numbered), structure, strict=True))
    else:
        yield ()
        return
    for name, each in inner:
        yield from ((name, *path) for path in _paths(each))


def _is_function(asked: object) -> TypeGuard[Callable[[tf.TensorSpec], object]]:
    return callable(asked) and not isinstance(asked, tf.DType | type)


def _checked(asked: object) -> Any:
    try:
        dtype = tf.as_dtype(asked)
    except TypeError:
        dtype = None
    if dtype is None or not (dtype.is_floating or dtype.is_integer):
        raise PipelineTypeError(
            f"Expected accumulate_outfeed_dtype to be a dtype of numbers, a function that returns one for what is "
            f"summed, or None. Received: {asked!r}. Nearest: tf.float32."
        )
    return asked
