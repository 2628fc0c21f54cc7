"""Recurrent layers: those of Keras with the arguments, state order and restrictions of Popnn's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu.scopes import partials_type
from keras_ext.layers.definition import Definition, dtype_or_policy
from keras_ext.layers.errors import LayerArgumentError, LayerInputError
from keras_ext.types import Config, Tensor

ACTIVATIONS = ("tanh", "relu", "softmax", "sigmoid", "hard_sigmoid", "linear")
RECURRENT_ACTIVATIONS = ("tanh", "softmax", "sigmoid", "hard_sigmoid", "linear")
UNSUPPORTED = {
    "use_bias": True,
    **dict.fromkeys(f"{each}_regularizer" for each in ("kernel", "recurrent", "bias", "activity")),
    **dict.fromkeys(f"{each}_constraint" for each in ("kernel", "recurrent", "bias")),
    "recurrent_dropout": 0.0,
    "go_backwards": False,
    "unroll": False,
}
"""Arguments that have one legal value."""


class Recurrent(Definition):
    """The base of PopnnLSTM and PopnnGRU: checked arguments, a mask of dropout for all time steps, time-major
    inputs.
    """

    settings = ("dropout_seed", "seed", "partials_dtype", "time_major")
    cell: Any
    _input_dropout: Any = None

    def _construct(self, given: dict[str, Any]) -> None:
        """Calls the constructor of Keras' layer with those of the arguments `given` that it has."""
        arguments = {name: value for name, value in given.items() if name not in ("self", "kwargs", "__class__")}
        arguments |= given["kwargs"] | {"dtype": dtype_or_policy(given["kwargs"].get("dtype"))}
        name = type(self).__name__
        for argument, legal in UNSUPPORTED.items():
            if arguments[argument] != legal:
                raise LayerArgumentError(
                    f"Expected {argument}={legal!r}, as {name} supports no other. Received: {arguments[argument]!r}. "
                    f"Use {self.framework.__name__}.layers.{self.base}, which the IPU runs, too."
                )
        if arguments.pop("implementation") not in (1, 2):
            raise LayerArgumentError(f"Expected implementation=1 or 2. Received: {given['implementation']!r}.")
        self._check_activation("activation", given["activation"], ACTIVATIONS)
        self._check_activation("recurrent_activation", given["recurrent_activation"], RECURRENT_ACTIVATIONS)
        partials = tf.as_dtype(arguments.pop("partials_dtype"))
        if partials not in (tf.float16, tf.float32):
            raise LayerArgumentError(f"Expected partials_dtype to be float16 or float32. Received: {partials.name}.")
        rate, dropout_seed = arguments.pop("dropout"), arguments.pop("dropout_seed")
        seed, time_major = arguments.pop("seed"), arguments.pop("time_major")
        del arguments["options"], arguments["options_bwd"]
        if seed is not None:
            for argument in ("kernel_initializer", "recurrent_initializer"):
                arguments[argument] = self._seeded(arguments[argument], seed)
        native = "time_major" in inspect.signature(getattr(self.framework.layers, self.base)).parameters
        super().__init__(**arguments, **({"time_major": time_major} if native else {}))
        self.seed, self.dropout_seed, self.partials_dtype, self.time_major = seed, None, partials.name, time_major
        self._swaps = time_major and not native
        if partials == tf.float16:
            self._could_use_gpu_kernel = False  # tf_keras' function for it has products of its own
            self.cell.call = _with_partials(self.cell.call, partials)
        if rate:
            noise_shape = (1, None, None) if time_major else (None, 1, None)
            dropout = self.framework.ipu.layers.Dropout
            self._input_dropout = dropout(rate, noise_shape, dropout_seed, dtype=arguments["dtype"])
            self.dropout_seed = self._input_dropout.seed

    def _check_activation(self, argument: str, value: Any, legal: tuple[str, ...]) -> None:
        name = getattr(self.framework.activations.get(value), "__name__", None)
        if name not in legal:
            raise LayerArgumentError(
                f"Expected {argument} to be None or one of {', '.join(legal)}. Received: {value!r}. Nearest: 'tanh'."
            )

    def _seeded(self, initializer: Any, seed: int) -> Any:
        """The initializer, with the layer's seed if it draws numbers and has none."""
        found = self.framework.initializers.get(initializer)
        config = found.get_config() if hasattr(found, "get_config") else {}
        return type(found).from_config(config | {"seed": seed}) if config.get("seed", 0) is None else found

    @classmethod
    def from_config(cls, config: dict[str, Config]) -> Any:
        """Constructs the layer from a configuration; a layer that Bidirectional has reversed runs backwards.

        Args:
            config: a dictionary of `get_config`.

        Returns:
            The layer, not built.
        """
        layer = cls(**config | {"go_backwards": False})
        layer.go_backwards = config.get("go_backwards", False)
        return layer

    @property
    def dropout(self) -> float:
        """The fraction of the inputs that is dropped."""
        return 0.0 if self._input_dropout is None else self._input_dropout.rate

    @property
    def kernel(self) -> Any:
        """Weights of the inputs, [input_size, gates * units]."""
        return self.cell.kernel

    @property
    def recurrent_kernel(self) -> Any:
        """Weights of the state, [units, gates * units]."""
        return self.cell.recurrent_kernel

    @property
    def biases(self) -> Any:
        """Biases of the gates, in Keras' layout."""
        return self.cell.bias

    def build(self, input_shape: Any) -> None:
        """Create variables of the layer.

        Args:
            input_shape: three dimensions, of which the last is known; a list of shapes starts with it.

        Raises:
            ValueError: the shape has another number of dimensions, or its last one is unknown.
        """
        is_list = isinstance(input_shape, list) and isinstance(input_shape[0], (list, tuple, tf.TensorShape))
        shape = tf.TensorShape(input_shape[0] if is_list else input_shape)
        if shape.rank != 3 or shape.as_list()[2] is None:
            raise LayerInputError(
                f"Expected inputs of three dimensions, with a known last one. Received: inputs of shape {shape}."
            )
        super().build(self._batch_major(tuple(shape.as_list())))

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Infers the shapes of the results.

        Args:
            input_shape: [batch_size, seq_len, input_size], or [seq_len, batch_size, input_size] if `time_major`.

        Returns:
            The shape of the output; with `return_state` also those of the states, after it.
        """
        if not self._swaps:
            return super().compute_output_shape(input_shape)
        shapes = super().compute_output_shape(self._batch_major(input_shape))
        outputs, *states = shapes if self.return_state else [shapes]
        outputs = self._batch_major(outputs) if self.return_sequences else outputs
        return (outputs, *states) if self.return_state else outputs

    def _batch_major(self, shape: Any) -> Any:
        return (shape[1], shape[0], shape[2]) if self._swaps else shape

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer; passes an LSTMStateTuple(c, h) as Keras' list of h and c."""
        state: Any = kwargs.get("initial_state")
        if getattr(state, "_fields", None) == ("c", "h"):
            kwargs["initial_state"] = [state.h, state.c]
        return super().__call__(*args, **kwargs)

    def call(self, inputs: Tensor, training: Any = None, initial_state: Any = None, mask: Any = None) -> Any:
        """Runs the forward step for the layer.

        Args:
            inputs: [batch_size, seq_len, input_size], or [seq_len, batch_size, input_size] if `time_major`.
            training: whether to drop inputs; None takes Keras' context, or False without one.
            initial_state: the states, each [batch_size, units]: Keras' list of them (of an LSTM h and c), or an
                LSTMStateTuple. Zeros, or the last state of a stateful layer, if None.
            mask: bools [batch_size, seq_len], or [seq_len, batch_size] if `time_major`: the time steps to use.

        Returns:
            The last output [batch_size, units], or with `return_sequences` all, in the layout of the inputs; with
            `return_state` a list of the output and the states.
        """
        sequence, *states = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        if self._input_dropout is not None:
            sequence = self._input_dropout(sequence, training=training)
        if self._swaps:
            sequence, mask = (
                None if t is None else tf.transpose(t, [1, 0, *range(2, t.ndim)]) for t in (sequence, mask)
            )
        # Inputs have been dropped: one mask for all time steps, which not every Keras has.
        results = super().call(
            [sequence, *states] if states else sequence, initial_state=initial_state, mask=mask, training=False
        )
        if not self._swaps or not self.return_sequences:
            return results
        outputs, *last = results if self.return_state else [results]
        outputs = tf.transpose(outputs, [1, 0, 2])
        return [outputs, *last] if self.return_state else outputs


def _with_partials(call: Callable[..., Any], partials: tf.DType) -> Callable[..., Any]:
    """A cell's call whose products have this type of partials: scopes do not reach into the loop around it."""

    def scoped(inputs: Tensor, states: Any, training: Any = False) -> Any:
        with partials_type(partials.as_numpy_dtype):
            return call(inputs, states, training=training)

    return scoped


class PopnnLSTM(Recurrent):
    """Keras' LSTM with the arguments of Popnn's. Its weights are Keras', in the same order.

    Args:
        units: dimensionality of the output, above 0.
        activation: "tanh", "relu", "softmax", "sigmoid", "hard_sigmoid", or None for none.
        recurrent_activation: one of the same names except "relu".
        kernel_initializer, recurrent_initializer, bias_initializer, unit_forget_bias: as in Keras' LSTM.
        dropout: fraction of the inputs to drop, in [0, 1), by one mask for all time steps.
        dropout_seed: a pair of integers, from which the mask follows; None draws another one at each step.
        use_bias, recurrent_dropout, go_backwards, unroll: must be Keras' defaults: True, 0, False and False.
        kernel_regularizer, recurrent_regularizer, bias_regularizer, activity_regularizer: must be None.
        kernel_constraint, recurrent_constraint, bias_constraint: must be None.
        implementation: 1 or 2, without effect.
        return_sequences, return_state, stateful: as in Keras' LSTM; the states are h and c, in this order.
        partials_dtype: float16 or float32, what the cost report assumes for the partials of forward products; float32
            leaves it to the `matmuls` of IPUConfig. Results do not change.
        seed: an integer for initializers of kernels that have none.
        time_major: whether inputs and outputs are [seq_len, batch_size, ...].
        options, options_bwd: flags of Poplar's layer, accepted; they have no effect.
        **kwargs: arguments of every Keras layer.

    Bidirectional sets `go_backwards` itself.

    Raises:
        ValueError: an argument has another value.
    """

    base = "LSTM"

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        dropout_seed: Any = None,
        recurrent_dropout: float = 0.0,
        implementation: int = 1,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        partials_dtype: Any = tf.float32,
        seed: int | None = None,
        time_major: bool = False,
        options: dict[str, Any] | None = None,
        options_bwd: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._construct(dict(locals()))

    def state_shape(self, batch_size: int) -> tuple[list[int], list[int]]:
        """Gives the shapes of the states.

        Args:
            batch_size: the number of samples.

        Returns:
            The shapes of h and of c, both [batch_size, units].
        """
        return [batch_size, self.units], [batch_size, self.units]


class PopnnGRU(Recurrent):
    """Keras' GRU with the arguments of Popnn's. Its weights are Keras', in the same order.

    Args:
        units, activation, recurrent_activation, use_bias: as in PopnnLSTM.
        kernel_initializer, recurrent_initializer, bias_initializer: as in Keras' GRU.
        kernel_regularizer, recurrent_regularizer, bias_regularizer, activity_regularizer: must be None.
        kernel_constraint, recurrent_constraint, bias_constraint: must be None.
        dropout, dropout_seed, recurrent_dropout, implementation: as in PopnnLSTM.
        return_sequences, return_state, stateful: as in Keras' GRU.
        go_backwards, unroll, seed, partials_dtype, time_major, options, options_bwd, **kwargs: as in PopnnLSTM.
        reset_after: whether the reset gate comes after the product of the state.

    Raises:
        ValueError: an argument has another value.
    """

    base = "GRU"

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        dropout_seed: Any = None,
        recurrent_dropout: float = 0.0,
        implementation: int = 1,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        reset_after: bool = True,
        seed: int | None = None,
        partials_dtype: Any = tf.float32,
        time_major: bool = False,
        options: dict[str, Any] | None = None,
        options_bwd: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._construct(dict(locals()))

    def state_shape(self, batch_size: int) -> list[int]:
        """Gives the shape of the state.

        Args:
            batch_size: the number of samples.

        Returns:
            [batch_size, units].
        """
        return [batch_size, self.units]
