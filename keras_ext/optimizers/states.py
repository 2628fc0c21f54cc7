"""Optimizers whose states have dtypes of their own, and whose updates are computed in dtypes of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import tensorflow as tf

from keras_ext.layers.definition import Definition
from keras_ext.layers.errors import LayerArgumentError
from keras_ext.types import Tensor


class WithStates(Definition):
    """The base of these optimizers, with named states of given dtypes for each variable, and stages of computation."""

    family = "optimizers"
    stages: ClassVar[int] = 1
    """The number of dtypes in `optimizer_compute_precisions`."""

    def _set_precisions(self, precisions: Sequence[Any] | None) -> None:
        """Sets the attribute to names. Raises LayerArgumentError for a number of dtypes other than `stages`."""
        names = tuple(tf.as_dtype(each).name for each in precisions or ["float32"] * self.stages)
        if len(names) != self.stages:
            raise LayerArgumentError(
                f"Expected optimizer_compute_precisions of {self.stages} dtypes, one for each stage of the update. "
                f"Received: {names}."
            )
        self.optimizer_compute_precisions = names

    def _create_states(self, variables: Iterable[Any], dtypes: dict[str, str | None]) -> None:
        """Creates zeros like each variable under each name, of a dtype or, for None, the variable's."""
        if getattr(self, "_states_of", None) is not None:
            return
        variables = list(variables)
        self.framework.optimizers.Optimizer.build(self, variables)
        names = [getattr(variable, "path", variable.name) for variable in variables]
        # Attributes set in the usual way would be tracked a second time.
        self.__dict__["_names"] = names
        self.__dict__["_states_of"] = [
            tuple(
                self.add_variable(
                    shape=variable.shape,
                    dtype=dtype or getattr(variable, "true_dtype", variable.dtype),
                    name=f"{name}_{state}".replace("/", "_").replace(":", "_"),
                )
                for state, dtype in dtypes.items()
            )
            for name, variable in zip(names, variables, strict=True)
        ]
        self._built = True

    def _index(self, variable: Any) -> int:
        if hasattr(self, "_get_variable_index"):
            return int(self._get_variable_index(variable))
        return int(self._index_dict[self._var_key(variable)])

    def _states(self, variable: Any) -> tuple[Any, ...]:
        """The states of a variable, in the order of their names."""
        return tuple(self.__dict__["_states_of"][self._index(variable)])


def dtype_name(dtype: Any) -> str | None:
    """The name of a dtype, which a configuration holds; None for None."""
    return None if dtype is None else tf.as_dtype(dtype).name


def tensor(value: Tensor, dtype: str) -> tf.Tensor:
    """A gradient or variable of either Keras as a dense tensor of a dtype."""
    return tf.cast(tf.convert_to_tensor(value), dtype)
