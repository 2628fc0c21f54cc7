"""The variables in which optimizers accumulate gradients, and their updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow.python.framework import ops

from engine.partition.accumulation import Reduction
from ipu._internal.compiler.marks import is_function_of_variables
from ipu._internal.graphs.variables import zeros_variable
from ipu._internal.types import TensorLike, Variable

AccumulatorType: TypeAlias = tf.DType | Callable[[Any], Any] | None


def running_mean_terms(mean: tf.Tensor, gradient: tf.Tensor, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Two tensors, of the dtype of `mean`, whose sum is the mean of `gradient` and the `count` gradients in `mean`."""
    exact = tf.float64 if mean.dtype == tf.float64 else tf.float32  # half types hold no large counts
    number = tf.cast(count + 1, exact)
    return mean * tf.cast((number - 1) / number, mean.dtype), gradient / tf.cast(number, mean.dtype)


class Accumulators:
    """The sum of each variable's gradients since the last update, and the number of batches in the sums."""

    def __init__(self, batches: int, dtype: AccumulatorType, reduction: Reduction, name: str) -> None:
        self._batches, self._dtype, self._reduction, self._name = batches, dtype, reduction, name
        self._sums: dict[Any, Any] = {}
        self._count: Any = None

    @property
    def sums(self) -> dict[str, Any]:
        """The sums created so far, by the names of their variables."""
        return {ref.deref().name: total for ref, total in self._sums.items()}

    def begin(self, variables: Sequence[Any]) -> tf.Tensor:
        """Creates missing sums; returns the count of batches since the last update, int32[]."""
        with ops.init_scope():
            if self._count is None:
                self._count = zeros_variable([], tf.int32, f"{self._name}/count")
            for variable in variables:
                if variable.ref() not in self._sums:
                    name = f"{variable.name.partition(':')[0]}/{self._name}"
                    self._sums[variable.ref()] = zeros_variable(variable.shape, self._type(variable), name)
        return self._count.read_value()

    def add(self, variable: Variable, gradient: TensorLike, count: tf.Tensor) -> tf.Tensor:
        """Adds `gradient` to the sum of `variable`, in the sum's dtype; `count` of 0 restarts the sum. Returns it."""
        total = self._sums[variable.ref()]
        gradient = tf.cast(tf.convert_to_tensor(gradient), total.dtype)
        if self._reduction == "mean":
            gradient = gradient / tf.cast(self._batches, total.dtype)
        so_far = total.read_value()
        if self._reduction == "running_mean":
            so_far, gradient = running_mean_terms(so_far, gradient, count)
        accumulated = tf.where(tf.equal(count, 0), gradient, so_far + gradient)
        total.assign(accumulated, read_value=False)
        return accumulated

    def end(self, count: tf.Tensor) -> None:
        """Counts a batch; the count restarts from 0 after the last batch of an update."""
        self._count.assign(tf.math.floormod(count + 1, self._batches), read_value=False)

    def _type(self, variable: Variable) -> tf.DType:
        wanted = self._dtype(variable) if is_function_of_variables(self._dtype) else self._dtype
        return variable.dtype.base_dtype if wanted is None else tf.as_dtype(wanted)
