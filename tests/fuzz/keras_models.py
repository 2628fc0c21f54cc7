"""Random Keras 3 models: 3 to 12 layers of many kinds on odd shapes, an optimizer with random options, and data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

POLICIES = ("float32", "float32", "mixed_float16", "mixed_bfloat16")
ACTIVATIONS = ("relu", "tanh", "gelu", "swish", "sigmoid", "softplus", "elu", "softmax", None, None)
WORDS = 61
Layer = Callable[[Any, Any], Any]


class RandomModel:
    """A model drawn from a seed. Its methods make the same model again and again, under any dtype policy."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = np.random.default_rng(seed)
        self.policy = str(rng.choice(POLICIES))
        self.batch, self.steps = int(rng.integers(1, 6)), 3
        self.rank = int(rng.integers(1, 4))
        self.tokens = self.rank == 1 and rng.random() < 0.3
        self.shape = tuple(int(rng.choice([3, 4, 5, 7, 9])) for _ in range(self.rank))
        self.accumulation = int(rng.choice([1, 1, 2, 3]))
        self.scale = float(rng.choice([1.0, 1.0, 30.0])) if self.policy == "mixed_float16" else 1.0
        rows = self.batch * self.steps
        if self.tokens:
            self.x = rng.integers(0, WORDS, (rows, *self.shape), dtype=np.int32)
        else:
            self.x = rng.normal(size=(rows, *self.shape)).astype(np.float32)
        self.y = (self.scale * rng.normal(size=(rows, 2))).astype(np.float32)
        self.layers: list[str] = []
        self.description = ""

    def model(self, policy: str) -> keras.Model:
        """An uncompiled model whose weights depend on the seed alone."""
        rng = np.random.default_rng(self.seed + 1)
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy(policy)
        self.layers = []
        try:
            start = keras.Input(self.shape, dtype="int32" if self.tokens else "float32")
            x = keras.layers.Embedding(WORDS, int(rng.choice([3, 4, 8])))(start) if self.tokens else start
            for _ in range(int(rng.integers(2, 12))):
                x = self._one_more(rng, x)
            x = keras.layers.Flatten()(x)
            model = keras.Model(start, keras.layers.Dense(2, dtype="float64" if policy == "float64" else "float32")(x))
        finally:
            keras.config.set_dtype_policy(before)
        numbers = np.random.default_rng(self.seed + 2)
        for variable in model.weights:
            if "seed_generator" not in variable.path:
                value = variable.value.numpy().astype(np.float32)
                noise = numbers.normal(size=value.shape).astype(np.float32)
                is_kernel = value.ndim > 1
                made = noise / np.sqrt(max(1, value[..., 0].size)) if is_kernel else value + np.abs(0.1 * noise)
                variable.assign(made)
        return model

    def _one_more(self, rng: np.random.Generator, x: Any) -> Any:
        rank = len(x.shape) - 1
        choices = [*ANY, *BY_RANK[rank]]
        for _ in range(20):
            name, make = choices[int(rng.integers(len(choices)))]
            try:
                y = make(rng, x)
            except (ValueError, TypeError):  # the layer does not fit the shape
                continue
            if len(y.shape) - 1 in BY_RANK and 0 < np.prod(y.shape[1:]) <= 600:
                self.layers.append(name)
                return y
        return x

    def optimizer(self) -> Any:
        """A new optimizer, always of the same class and options."""
        rng = np.random.default_rng(self.seed + 3)
        name = list(OPTIMIZERS)[int(rng.integers(len(OPTIMIZERS)))]
        options = {k: v for k, v in OPTIMIZERS[name].items() if rng.random() < 0.5}
        clip = str(rng.choice(["", "clipnorm", "global_clipnorm", "clipvalue"]))
        if clip:
            options[clip] = float(rng.choice([0.05, 1.0]))
        if rng.random() < 0.3:
            options["weight_decay"] = 0.01
        if rng.random() < 0.3:
            options |= {"use_ema": True, "ema_momentum": 0.9}
            if rng.random() < 0.5:
                options["ema_overwrite_frequency"] = 2
        if self.accumulation > 1:
            options["gradient_accumulation_steps"] = self.accumulation
        self.description = f"{name}({options})"
        made = getattr(keras.optimizers, name)(learning_rate=0.02, **options)
        if self.policy == "mixed_float16" and rng.random() < 0.3:
            # With this scale the first steps overflow.
            return keras.optimizers.LossScaleOptimizer(made, initial_scale=2.0**24, dynamic_growth_steps=2)
        return made

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.policy}, input {self.x.dtype}{list(self.x.shape[1:])}, batch {self.batch}, "
            f"{', '.join(self.layers)}; {self.description}"
        )


def _activation(rng: np.random.Generator) -> Any:
    return ACTIVATIONS[int(rng.integers(len(ACTIVATIONS)))]


def _size(rng: np.random.Generator) -> int:
    return int(rng.choice([1, 2, 3, 4, 5, 7, 8]))


def _layer(name: str, arguments: Callable[[np.random.Generator], dict[str, Any]] | None = None) -> tuple[str, Layer]:
    def make(rng: np.random.Generator, x: Any) -> Any:
        return getattr(keras.layers, name)(**(arguments(rng) if arguments else {}))(x)

    return name, make


def _window(rng: np.random.Generator) -> dict[str, Any]:
    return {"padding": str(rng.choice(["same", "valid"])), "strides": int(rng.integers(1, 3))}


def _filters(rng: np.random.Generator) -> dict[str, Any]:
    made = {"filters": _size(rng), "kernel_size": int(rng.integers(1, 4)), "activation": _activation(rng)}
    return {**made, **_window(rng), "use_bias": bool(rng.random() < 0.7)}


def _pool(rng: np.random.Generator) -> dict[str, Any]:
    return {"pool_size": int(rng.integers(1, 4)), **_window(rng)}


def _recurrent(rng: np.random.Generator) -> dict[str, Any]:
    return {"units": _size(rng), "return_sequences": bool(rng.random() < 0.6), "go_backwards": bool(rng.random() < 0.3)}


def _residual(rng: np.random.Generator, x: Any) -> Any:
    inner = keras.layers.Dense(x.shape[-1], activation=_activation(rng))(x)
    return getattr(keras.layers, str(rng.choice(["Add", "Multiply", "Average", "Maximum", "Subtract"])))()([x, inner])


def _joined(rng: np.random.Generator, x: Any) -> Any:
    return keras.layers.Concatenate()([x, keras.layers.Dense(_size(rng))(x)])


def _attended(rng: np.random.Generator, x: Any) -> Any:
    layer = keras.layers.MultiHeadAttention(int(rng.integers(1, 4)), int(rng.integers(1, 5)))
    return layer(x, x, use_causal_mask=bool(rng.random() < 0.5))


def _permuted(rng: np.random.Generator, x: Any) -> Any:
    return keras.layers.Permute([int(d) + 1 for d in rng.permutation(len(x.shape) - 1)])(x)


def _reshaped(rng: np.random.Generator, x: Any) -> Any:
    last = [n for n in (2, 3, 4, 5, 7) if np.prod(x.shape[1:]) % n == 0]
    return keras.layers.Reshape((-1, last[int(rng.integers(len(last)))]))(x) if last else x


def _bidirectional(rng: np.random.Generator, x: Any) -> Any:
    return keras.layers.Bidirectional(keras.layers.GRU(_size(rng), return_sequences=True))(x)


def _distributed(rng: np.random.Generator, x: Any) -> Any:
    return keras.layers.TimeDistributed(keras.layers.Dense(_size(rng), activation="tanh"))(x)


ANY: list[tuple[str, Layer]] = [
    _layer("Dense", lambda rng: {"units": _size(rng), "activation": _activation(rng)}),
    _layer("Dense", lambda rng: {"units": _size(rng), "kernel_regularizer": "l2"}),
    _layer("BatchNormalization", lambda rng: {"momentum": 0.5, "scale": bool(rng.random() < 0.7)}),
    _layer("LayerNormalization"),
    _layer("GroupNormalization", lambda rng: {"groups": int(rng.choice([1, 2, -1]))}),
    _layer("UnitNormalization"),
    _layer("Rescaling", lambda rng: {"scale": 0.5, "offset": 0.1}),
    _layer("Activation", lambda rng: {"activation": _activation(rng) or "selu"}),
    _layer("LeakyReLU"),
    _layer("PReLU"),
    _layer("ReLU", lambda rng: {"max_value": 2.0, "negative_slope": 0.1}),
    _layer("Dropout", lambda rng: {"rate": 0.0}),
    ("residual", _residual),
    ("Concatenate", _joined),
]
BY_RANK: dict[int, list[tuple[str, Layer]]] = {
    1: [_layer("RepeatVector", lambda rng: {"n": _size(rng)}), ("Reshape", _reshaped)],
    2: [
        *(_layer("Conv1D", _filters), _layer("SeparableConv1D", _filters), _layer("Conv1DTranspose", _filters)),
        *(_layer("MaxPooling1D", _pool), _layer("AveragePooling1D", _pool), _layer("GlobalAveragePooling1D")),
        *(_layer("LSTM", _recurrent), _layer("GRU", _recurrent), _layer("SimpleRNN", _recurrent)),
        *(_layer("UpSampling1D"), _layer("ZeroPadding1D"), _layer("Cropping1D"), _layer("Flatten")),
        *(("MultiHeadAttention", _attended), ("Permute", _permuted), ("Reshape", _reshaped)),
        *(("Bidirectional", _bidirectional), ("TimeDistributed", _distributed)),
    ],
    3: [
        *(_layer("Conv2D", _filters), _layer("SeparableConv2D", _filters), _layer("Conv2DTranspose", _filters)),
        _layer(
            "DepthwiseConv2D", lambda rng: {"kernel_size": 2, "depth_multiplier": 2, "activation": _activation(rng)}
        ),
        *(_layer("MaxPooling2D", _pool), _layer("AveragePooling2D", _pool), _layer("GlobalMaxPooling2D")),
        *(_layer("UpSampling2D"), _layer("ZeroPadding2D"), _layer("Cropping2D"), _layer("Flatten")),
        *(("Permute", _permuted), ("Reshape", _reshaped)),
    ],
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "nesterov": True},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "Adam": {"amsgrad": True},
    "AdamW": {"amsgrad": True},
    "Adamax": {"beta_1": 0.8},
    "Nadam": {"beta_1": 0.8},
    "Adagrad": {"initial_accumulator_value": 0.3},
    "Adadelta": {"rho": 0.9},
    "Ftrl": {"l1_regularization_strength": 0.01, "l2_regularization_strength": 0.01},
    "Lion": {"beta_1": 0.8},
    "Lamb": {"beta_1": 0.8},
    "Adafactor": {"relative_step": False},
    "Muon": {"nesterov": False},
}
