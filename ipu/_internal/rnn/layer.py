"""The base of the layers of rnn_ops: arguments, variables in scopes of TensorFlow 1, and their checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from engine.integers import checked_integer
from ipu._internal.rnn.cells import ACTIVATIONS, Cell
from ipu._internal.types import TensorLike, Variable

v1 = tf.compat.v1


class RecurrentLayer(tf.Module):
    """A layer whose one kernel [inputs + units, gates * units] has the rows of the inputs before those of the state.

    The first call, or `build`, creates its variables with `tf.compat.v1.get_variable` in the layer's variable scope.
    """

    GATES: int
    """Number of gates: blocks of columns of the kernel."""
    SCOPE: str
    """Name of the variable scope of a layer without a name."""

    reset_after: bool = False
    """Whether a GRU's reset gate scales the product of state and kernel. Otherwise it scales the state itself."""

    def __init__(
        self,
        num_units: int,
        dtype: Any = tf.float32,
        partials_dtype: Any = tf.float32,
        seed: int | None = None,
        weights_initializer: Any = None,
        bias_initializer: Any = None,
        activation: str = "tanh",
        recurrent_activation: str = "sigmoid",
        name: str | None = None,
        *,
        return_state: bool = True,
        options: dict[str, Any] | None = None,
        options_bwd: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        floats = [tf.float32, tf.float16]
        self.num_units = checked_integer("num_units", num_units)
        self.dtype = _one_of(tf.as_dtype(dtype), floats, "dtype")
        self.cell = Cell(
            _one_of(activation, list(ACTIVATIONS), "activation"),
            _one_of(recurrent_activation, [each for each in ACTIVATIONS if each != "relu"], "recurrent_activation"),
            _one_of(tf.as_dtype(partials_dtype), floats, "partials_dtype").as_numpy_dtype,
        )
        self.return_state = return_state
        glorot = v1.glorot_uniform_initializer(seed)
        self._kernel_initializer = glorot if weights_initializer is None else weights_initializer
        self._biases_initializer = v1.zeros_initializer() if bias_initializer is None else bias_initializer
        self._scope: Any = name
        self.input_size = 0
        self.kernel: Variable = None
        self.biases: Variable = None

    @property
    def built(self) -> bool:
        """Whether the variables exist."""
        return self.kernel is not None

    def __call__(self, inputs: TensorLike, *args: Any, **kwargs: Any) -> Any:
        """Runs `call`, after `build` if there are no variables yet."""
        inputs = tf.convert_to_tensor(inputs, self.dtype)
        if not self.built:
            self.build(inputs.shape)
        with self._variable_scope():
            return self.call(inputs, *args, **kwargs)

    def call(self, inputs: TensorLike, *args: Any, **kwargs: Any) -> Any:
        """The forward step of the layer."""
        raise NotImplementedError

    def build(self, input_shape: Any) -> None:
        """Create variables of the layer. Later calls create none.

        Args:
            input_shape: a TensorShape of 3 dimensions, of which the last is known.

        Raises:
            ValueError: the shape has another number of dimensions, or its last one is unknown.
        """
        shape = tf.TensorShape(input_shape)
        if shape.rank != 3 or shape.as_list()[2] is None:
            raise ConfigurationError(
                f"Expected inputs of shape [time_len, batch_size, input_size], with a known input_size. "
                f"Received: {shape}."
            )
        self.input_size = shape.as_list()[2]
        with self._variable_scope() as self._scope:
            self._create()
        self._name = self._scope.name

    def _create(self) -> None:
        columns = self.GATES * self.num_units
        self.kernel = self._variable("kernel", [self.input_size + self.num_units, columns], self._kernel_initializer)
        each = [2, self.num_units] if self.reset_after else [self.num_units]
        self.biases = self._variable("biases", [self.GATES, *each], self._biases_initializer)

    def _variable_scope(self) -> Any:
        return v1.variable_scope(self._scope, self.SCOPE)

    def _variable(self, name: str, shape: list[int], initializer: Any) -> Variable:
        if not callable(initializer):
            initializer = v1.constant_initializer(initializer)
        return v1.get_variable(name, shape, self.dtype, initializer, use_resource=True)

    def _state(self, state: TensorLike | None, inputs: tf.Tensor) -> tf.Tensor:
        """An initial state [B, U] for inputs [T, B, I]: zeros if there is none."""
        batch = inputs.shape.as_list()[1]
        if state is None:
            return tf.zeros([tf.shape(inputs)[1] if batch is None else batch, self.num_units], self.dtype)
        state = tf.convert_to_tensor(state, self.dtype)
        if not state.shape.is_compatible_with([batch, self.num_units]):
            raise ConfigurationError(
                f"Expected an initial_state of shape [batch_size, num_units] = {[batch, self.num_units]}. "
                f"Received: {state.shape}."
            )
        return state

    def _kernels(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The rows of the kernel for the inputs and those for the state."""
        kernel = tf.convert_to_tensor(self.kernel)
        return kernel[: self.input_size], kernel[self.input_size :]

    def _result(self, sequence: tf.Tensor, state: Any) -> Any:
        return (sequence, state) if self.return_state else sequence


def _one_of(value: Any, legal: Sequence[Any], argument: str) -> Any:
    if value not in legal:
        shown = ", ".join(getattr(each, "name", repr(each)) for each in legal)
        raise ConfigurationError(
            f"Expected {argument} to be one of {shown}. Received: {value!r}. Nearest: {legal[0]!r}."
        )
    return value


def checked_lengths(seq_len: TensorLike, inputs: tf.Tensor) -> tf.Tensor:
    """Lengths of sequences, int32[B], for inputs [T, B, I]."""
    lengths = tf.cast(tf.convert_to_tensor(seq_len), tf.int32)
    if not lengths.shape.is_compatible_with(inputs.shape[1:2]):
        raise ConfigurationError(
            f"Expected a seq_len of shape [batch_size] = {inputs.shape[1:2]}. Received: {lengths.shape}."
        )
    return lengths
