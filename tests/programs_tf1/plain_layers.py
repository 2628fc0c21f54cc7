"""The oracle's operators: recurrent layers, norms and embeddings, of TensorFlow's own operations."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow.compat.v1 as v1


class PopnnLSTM:
    """An LSTM that is unrolled, with the gates i, f, c, o."""

    GATES, NAME = 4, "popnn_lstm"

    def __init__(self, num_units: int, dtype: Any = v1.float32, **named: Any) -> None:
        self._units, self._dtype, self._named = num_units, dtype, named

    def _variables(self, size: int) -> list[Any]:
        named, units, gates = self._named, self._units, self.GATES
        kernel = named.get("weights_initializer") or v1.glorot_uniform_initializer(named.get("seed"))
        bias = named.get("bias_initializer") or v1.zeros_initializer()
        with v1.variable_scope(named.get("name"), self.NAME):
            return [
                v1.get_variable("kernel", [size + units, gates * units], self._dtype, kernel, use_resource=True),
                v1.get_variable("biases", [gates, units], self._dtype, bias, use_resource=True),
            ]

    def __call__(self, inputs: Any, initial_state: Any = None, training: bool = True) -> Any:
        steps, batch, size = v1.convert_to_tensor(inputs).shape.as_list()
        kernel, biases = self._variables(size)
        zeros = v1.zeros([batch, self._units], self._dtype)
        state = self._first(initial_state, zeros)
        outputs = []
        for step in range(steps):
            state = self._step(inputs[step], state, kernel, biases)
            outputs.append(state[-1])
        return v1.stack(outputs), self._last(state)

    def _first(self, initial: Any, zeros: Any) -> Any:
        return (zeros, zeros) if initial is None else tuple(initial)

    def _last(self, state: Any) -> Any:
        from tf_keras.src.layers.rnn.legacy_cells import LSTMStateTuple

        return LSTMStateTuple(*state)

    def _step(self, x: Any, state: Any, kernel: Any, biases: Any) -> Any:
        c, h = state
        gates = v1.matmul(v1.concat([x, h], 1), kernel) + v1.reshape(biases, [-1])
        i, f, candidate, o = v1.split(gates, 4, 1)
        c = v1.sigmoid(f) * c + v1.sigmoid(i) * v1.tanh(candidate)
        return c, v1.sigmoid(o) * v1.tanh(c)


class PopnnGRU(PopnnLSTM):
    """A GRU that is unrolled, with the gates z, r, h; the reset gate scales the state."""

    GATES, NAME = 3, "popnn_gru"

    def _first(self, initial: Any, zeros: Any) -> Any:
        return (zeros if initial is None else initial,)

    def _last(self, state: Any) -> Any:
        return state[0]

    def _step(self, x: Any, state: Any, kernel: Any, biases: Any) -> Any:
        (h,), units = state, self._units
        z, r = v1.split(v1.matmul(v1.concat([x, h], 1), kernel[:, : 2 * units]) + v1.reshape(biases[:2], [-1]), 2, 1)
        z, r = v1.sigmoid(z), v1.sigmoid(r)
        candidate = v1.tanh(v1.matmul(v1.concat([x, r * h], 1), kernel[:, 2 * units :]) + biases[2])
        return (z * h + (1 - z) * candidate,)


def group_norm(inputs: Any, groups: int = 2, epsilon: float = 1e-6, scope: Any = None, **named: Any) -> Any:
    """Group normalization over the last dimension; channel c is of group c % groups unless `strided_...` is false."""
    shape, strided = inputs.shape.as_list(), named.get("strided_channel_grouping", True)
    axis = len(shape) - 1
    with v1.variable_scope(scope, "GroupNorm", reuse=named.get("reuse")):
        beta = v1.get_variable("beta", shape[-1:], inputs.dtype, v1.zeros_initializer(), use_resource=True)
        gamma = v1.get_variable("gamma", shape[-1:], inputs.dtype, v1.ones_initializer(), use_resource=True)
    split = [shape[-1] // groups, groups] if strided else [groups, shape[-1] // groups]
    x = v1.reshape(inputs, [*shape[:-1], *split])
    mean, variance = v1.nn.moments(x, [*range(1, axis), axis if strided else axis + 1], keep_dims=True)
    return v1.reshape((x - mean) * v1.rsqrt(variance + epsilon), shape) * gamma + beta


def layer_norm(inputs: Any, **named: Any) -> Any:
    """Group normalization with one group."""
    return group_norm(inputs, **{"scope": "LayerNorm", **named, "groups": 1})


def instance_norm(inputs: Any, **named: Any) -> Any:
    """Group normalization with a group for each channel."""
    return group_norm(inputs, **{"scope": "InstanceNorm", **named, "groups": inputs.shape[-1]})


def gelu(features: Any, **_: Any) -> Any:
    """TensorFlow's GELU, approximated by a hyperbolic tangent."""
    import tensorflow

    return tensorflow.nn.gelu(features, approximate=True)


def dropout(x: Any, rate: float = 0.5, **_: Any) -> Any:
    """Drops nothing, as random numbers cannot be compared."""
    assert rate == 0
    return v1.identity(x)


def cross_replica_sum(x: Any, *_: Any, **__: Any) -> Any:
    """The sum over one device."""
    return v1.identity(x)


cross_replica_mean = cross_replica_sum


def serialized_matmul(a: Any, b: Any, *_: Any, transpose_a: bool = False, transpose_b: bool = False, **__: Any) -> Any:
    """The product, computed in one piece."""
    return v1.matmul(a, b, transpose_a, transpose_b)


def embedding_lookup(params: Any, ids: Any, name: Any = None, serialization_factor: int = 1) -> Any:
    """Rows of a table; the gradient is dense, as that of the original is."""
    return v1.gather(params * v1.ones([], params.dtype.base_dtype), ids)


class HostEmbeddingOptimizerSpec:
    """The optimizer of tables, which must equal the program's: gradient descent with the same learning rate."""

    def __init__(self, learning_rate: float, *_: Any) -> None:
        self.rate = learning_rate


HostEmbeddingSGDGAOptimizerSpec = HostEmbeddingOptimizerSpec


class _Embedding:
    def __init__(self, table: Any) -> None:
        self._table = table

    def get_embedding_tensor(self) -> Any:
        """The variable."""
        return self._table

    def lookup(self, indices: Any, clip_indices: bool = True) -> Any:
        """Rows of the variable."""
        return v1.gather(self._table, indices)

    @contextlib.contextmanager
    def register(self, session: Any = None) -> Iterator[None]:
        """Registers nothing."""
        yield

    __call__ = register


def create_host_embedding(
    name: str, shape: Any, dtype: Any, *_: Any, optimizer_spec: Any = None, initializer: Any = None, **__: Any
) -> Any:
    """A table in a variable of the graph, which is trained if there is an optimizer."""
    initializer = v1.zeros_initializer() if initializer is None else initializer
    trained = optimizer_spec is not None
    return _Embedding(v1.get_variable(name, shape, dtype, initializer, trainable=trained, use_resource=True))
