"""Layers whose product or look-up is computed in slices, one after the other, to reduce the memory it needs."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from ipu._internal.operators.serialization import serialized_lookup, serialized_product
from keras_ext.layers.definition import Definition
from keras_ext.layers.errors import LayerArgumentError
from keras_ext.types import Tensor

DIMENSIONS = {
    "input_columns": "a_columns",
    "input_rows_kernel_columns": "a_rows_b_columns",
    "kernel_rows": "b_rows",
}
"""Dimensions of the product of inputs [m, k] and kernel [k, n], in this order: the layer's names and the operator's."""


class SerialDense(Definition):
    """Keras' Dense, which computes its product, and those of its gradient, as `serialization_factor` smaller ones.

    Args:
        units: the number of outputs, n.
        serialization_factor: the number of smaller products, which divides the dimension.
        serialization_dimension: "input_columns" for the inputs' rows m, all dimensions but the last taken as one;
            "input_rows_kernel_columns" for k, or "kernel_rows" for n.
        activation, use_bias, **kwargs: as in Keras' Dense.

    Raises:
        ValueError: `serialization_dimension` has another value.
    """

    base = "Dense"
    settings = ("serialization_factor", "serialization_dimension")

    def __init__(
        self,
        units: int,
        serialization_factor: int,
        serialization_dimension: str,
        activation: Any = None,
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        if serialization_dimension not in DIMENSIONS:
            raise LayerArgumentError(
                f"Expected serialization_dimension to be one of {', '.join(DIMENSIONS)}. "
                f"Received: {serialization_dimension!r}."
            )
        super().__init__(units, activation, use_bias, **kwargs)
        self.serialization_factor = serialization_factor
        self.serialization_dimension = serialization_dimension

    def call(self, inputs: Tensor, training: Any = None) -> Tensor:
        """Computes activation(inputs · kernel + bias).

        Args:
            inputs: [..., columns], cast to the layer's compute dtype.
            training: has no effect.

        Returns:
            A tensor of the compute dtype, [..., units].

        Raises:
            ValueError: `serialization_factor` does not divide the dimension.
        """
        inputs = tf.cast(inputs, self.compute_dtype)
        kernel = tf.cast(self.kernel, self.compute_dtype)
        *outer, columns = inputs.shape.as_list()
        rows = None if None in outer else math.prod(outer)
        flat = tf.ensure_shape(tf.reshape(inputs, [-1, columns]), [rows, columns])
        if rows is None and self.serialization_dimension == "input_columns":
            outputs = flat @ kernel  # of a model built for any number of rows, which has one when it runs
        else:
            dimension = DIMENSIONS[self.serialization_dimension]
            outputs = serialized_product(flat, kernel, self.serialization_factor, dimension)
        outputs = tf.reshape(outputs, tf.concat([tf.shape(inputs)[:-1], [self.units]], 0))
        if self.bias is not None:
            outputs += tf.cast(self.bias, self.compute_dtype)
        outputs = outputs if self.activation is None else self.activation(outputs)
        return tf.ensure_shape(outputs, [*outer, self.units])


class Embedding(Definition):
    """Keras' Embedding, whose look-up may be computed in slices of the table.

    Args:
        input_dim: the number of rows, more than 0.
        output_dim: the size of a row, more than 0.
        embeddings_initializer: initializer of the table.
        serialization_factor: the number of slices of the table, which divides `input_dim`. Above 1, indices out of
            range give rows of zeros.
        **kwargs: as in Keras' Embedding.

    Raises:
        ValueError: a size is not positive, or the factor does not divide `input_dim`.
    """

    base = "Embedding"
    settings = ("serialization_factor",)

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        serialization_factor: int = 1,
        **kwargs: Any,
    ) -> None:
        if input_dim < 1 or output_dim < 1:
            raise LayerArgumentError(
                f"Expected input_dim and output_dim to be positive. Received: {input_dim} and {output_dim}."
            )
        if serialization_factor < 1 or input_dim % serialization_factor:
            raise LayerArgumentError(
                f"Expected serialization_factor to be a positive divisor of input_dim, {input_dim}. "
                f"Received: {serialization_factor}."
            )
        super().__init__(input_dim, output_dim, embeddings_initializer, **kwargs)
        self.serialization_factor = serialization_factor

    def call(self, inputs: Tensor, training: Any = None) -> Tensor:
        """Looks rows of the table up.

        Args:
            inputs: indices of rows, integers of any shape.
            training: has no effect.

        Returns:
            The rows, [*inputs.shape, output_dim], of the layer's compute dtype.
        """
        if self.serialization_factor == 1:
            return super().call(inputs)
        table = tf.convert_to_tensor(self.embeddings)
        ids = tf.cast(inputs, tf.int32)
        return tf.cast(serialized_lookup(table, ids, self.serialization_factor), self.compute_dtype)

    def compute_output_spec(self, inputs: Tensor, training: Any = None) -> Any:
        """Infers the result, for Keras 3.

        Args:
            inputs: a symbolic tensor of Keras.
            training: has no effect.

        Returns:
            A symbolic tensor with the shape and dtype of the result.
        """
        return super().compute_output_spec(inputs)
