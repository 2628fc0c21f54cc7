"""Cases of what a model is compiled with or made of: losses, metrics, optimizers, schedules, activations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from tests.differential.case import (
    CLASSES,
    Case,
    Sampler,
    bit,
    bits,
    classes,
    descent,
    inputs_of,
    logits_loss,
    normal,
    one_hot,
    probabilities,
    reals,
    signs,
    tokens,
)
from tests.differential.layer_cases import layer

FEATURES = (normal(6),)
Of = Callable[[ModuleType], Any]


def network(outputs: int, activation: str | None) -> Of:
    """Two dense layers."""

    def build(keras: ModuleType) -> Any:
        inputs = inputs_of(keras, FEATURES)
        hidden = keras.layers.Dense(5, "tanh")(inputs[0])
        return keras.Model(inputs[0], keras.layers.Dense(outputs, activation)(hidden))

    return build


def loss(name: str, labels: Sampler, activation: str | None = "softmax", variant: str = "", **named: Any) -> Case:
    build = network(CLASSES, activation)
    return Case("losses", name, variant, FEATURES, labels, build, lambda k: getattr(k.losses, name)(**named), descent)


def _on_sphere(keras: ModuleType) -> Any:
    inputs = inputs_of(keras, FEATURES)
    return keras.Model(inputs[0], keras.layers.UnitNormalization()(keras.layers.Dense(4)(inputs[0])))


def _spoken(keras: ModuleType) -> Any:
    inputs = keras.Input((6, 4))
    return keras.Model(inputs, keras.layers.Dense(5)(inputs))


def _words(generator: np.random.Generator, rows: int) -> np.ndarray:
    return generator.integers(1, 5, (rows, 2))


LOSSES = [
    loss("BinaryCrossentropy", bits, "sigmoid"),
    loss("BinaryCrossentropy", bits, None, "from logits", from_logits=True),
    loss("BinaryFocalCrossentropy", bits, "sigmoid", apply_class_balancing=True),
    Case("losses", "CTC", "", (normal(6, 4),), _words, _spoken, lambda k: k.losses.CTC(), descent),
    loss("CategoricalCrossentropy", one_hot),
    loss("CategoricalCrossentropy", one_hot, None, "from logits", from_logits=True, label_smoothing=0.1),
    loss("CategoricalFocalCrossentropy", one_hot),
    loss("CategoricalGeneralizedCrossEntropy", classes),
    loss("CategoricalHinge", one_hot),
    Case("losses", "Circle", "", FEATURES, classes, _on_sphere, lambda k: k.losses.Circle(gamma=4), descent),
    loss("CosineSimilarity", reals),
    loss("Dice", bits, "sigmoid"),
    loss("Hinge", signs, "tanh"),
    loss("Huber", reals, None, delta=0.5),
    loss("KLDivergence", probabilities),
    loss("LogCosh", reals, None),
    loss("MeanAbsoluteError", reals, None),
    loss("MeanAbsolutePercentageError", reals, None),
    loss("MeanSquaredError", reals, None),
    loss("MeanSquaredLogarithmicError", reals, None),
    loss("Poisson", reals, "softplus"),
    loss("SparseCategoricalCrossentropy", classes),
    loss("SparseCategoricalCrossentropy", classes, None, "from logits", from_logits=True, ignore_class=1),
    loss("SquaredHinge", signs, "tanh"),
    loss("Tversky", bits, "sigmoid"),
]


def metric(
    name: str,
    labels: Sampler,
    activation: str | None = "softmax",
    outputs: int = CLASSES,
    variant: str = "",
    **named: Any,
) -> Case:
    """A metric of a network that learns with a loss of its own."""
    objective = (lambda k: "sparse_categorical_crossentropy") if labels is classes else (lambda k: "mse")
    make = lambda k: [getattr(k.metrics, name)(**named)]  # noqa: E731
    return Case(
        "metrics", name, variant, FEATURES, labels, network(outputs, activation), objective, descent, metrics=make
    )


def binary(name: str, **named: Any) -> Case:
    return metric(name, bit, "sigmoid", outputs=1, **named)


def tracking(name: str, **named: Any) -> Case:
    """A metric of values, which a layer keeps of its own."""

    def build(keras: ModuleType) -> Any:
        class Tracking(keras.layers.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.tracked = getattr(keras.metrics, name)(name="tracked", **named)

            def call(self, x: Any) -> Any:
                self.tracked.update_state(tf.reduce_mean(x, axis=0))
                return x

        inputs = inputs_of(keras, FEATURES)
        return keras.Model(inputs[0], keras.layers.Dense(CLASSES)(Tracking()(keras.layers.Dense(5)(inputs[0]))))

    return Case("metrics", name, "", FEATURES, reals, build, lambda k: "mse", descent)


def _furthest(y: Any, prediction: Any) -> Any:
    return tf.reduce_max(tf.abs(tf.cast(y, prediction.dtype) - prediction), axis=-1)


METRICS = [
    tracking("Mean"),
    tracking("Sum"),
    tracking("MeanTensor", shape=(5,)),
    metric("MeanMetricWrapper", reals, None, fn=_furthest),
    binary("AUC"),
    binary("AUC", variant="PR", curve="PR", num_thresholds=20),
    metric("AUC", bits, "sigmoid", variant="multi-label", multi_label=True),
    metric("Accuracy", one_hot),
    binary("BinaryAccuracy"),
    binary("BinaryCrossentropy"),
    binary("BinaryIoU"),
    metric("CategoricalAccuracy", one_hot),
    metric("CategoricalCrossentropy", one_hot),
    metric("CategoricalHinge", one_hot),
    metric("ConcordanceCorrelation", reals, None),
    metric("CosineSimilarity", reals, None),
    metric("F1Score", one_hot),
    metric("FBetaScore", one_hot, average="macro", beta=2.0),
    *(binary(f"{truth}{sign}") for truth in ("True", "False") for sign in ("Positives", "Negatives")),
    metric("Hinge", signs, "tanh"),
    metric("IoU", classes, num_classes=CLASSES, target_class_ids=[0, 2], sparse_y_pred=False),
    metric("KLDivergence", probabilities),
    metric("LogCoshError", reals, None),
    metric("MeanAbsoluteError", reals, None),
    metric("MeanAbsolutePercentageError", reals, None),
    metric("MeanIoU", classes, num_classes=CLASSES, sparse_y_pred=False),
    metric("MeanRelativeError", reals, None, normalizer=[0.5] * CLASSES),
    metric("MeanSquaredError", reals, None),
    metric("MeanSquaredLogarithmicError", reals, None),
    metric("OneHotIoU", one_hot, num_classes=CLASSES, target_class_ids=[1]),
    metric("OneHotMeanIoU", one_hot, num_classes=CLASSES),
    metric("PearsonCorrelation", reals, None),
    metric("Poisson", reals, "softplus"),
    binary("Precision"),
    metric("Precision", one_hot, variant="top 2", top_k=2),
    binary("PrecisionAtRecall", recall=0.5),
    metric("R2Score", reals, None),
    binary("Recall"),
    binary("Recall", variant="two thresholds", thresholds=[0.4, 0.6]),
    binary("RecallAtPrecision", precision=0.5),
    metric("RootMeanSquaredError", reals, None),
    binary("SensitivityAtSpecificity", specificity=0.5),
    metric("SparseCategoricalAccuracy", classes),
    metric("SparseCategoricalCrossentropy", classes),
    metric("SparseTopKCategoricalAccuracy", classes, k=2),
    binary("SpecificityAtSensitivity", sensitivity=0.5),
    metric("SquaredHinge", signs, "tanh"),
    metric("TopKCategoricalAccuracy", one_hot, k=2),
]


def optimizer(name: str, make: Of, variant: str = "", kind: str = "optimizers") -> list[Case]:
    """The optimizer on dense layers and, without a variant, on an embedding with duplicate rows."""
    dense = Case(kind, name, variant, FEATURES, classes, network(CLASSES, None), logits_loss, make)
    return [dense] if variant else [dense, embedding(kind, name, make)]


def embedding(kind: str, name: str, make: Of) -> Case:
    """A model of few words, which batches name several times."""
    features = (tokens(6),)

    def build(keras: ModuleType) -> Any:
        inputs = inputs_of(keras, features)
        rows = keras.layers.Embedding(10, 4)(inputs[0])
        return keras.Model(inputs[0], keras.layers.Dense(CLASSES)(keras.layers.Flatten()(rows)))

    return Case(kind, name, "embedding", features, classes, build, logits_loss, make)


def named_optimizer(name: str, variant: str = "", **named: Any) -> list[Case]:
    return optimizer(name, lambda k: getattr(k.optimizers, name)(**named), variant)


def _several(k: ModuleType) -> Any:
    matrices, vectors = k.optimizers.Adam(0.01), k.optimizers.SGD(0.1)
    return k.optimizers.MultiOptimizer(lambda variable: matrices if len(variable.shape) == 2 else vectors)


def _scaled(k: ModuleType) -> Any:
    return k.optimizers.LossScaleOptimizer(k.optimizers.Adam(0.01), initial_scale=64.0, dynamic_growth_steps=2)


def legacy(name: str, **named: Any) -> list[Case]:
    return optimizer(name, lambda k: getattr(k.optimizers.legacy, name)(**named), kind="legacy optimizers")


# Rates at which four steps move the weights visibly.
RATES = {
    "Adadelta": 20.0,
    "Adafactor": 0.05,
    "Adagrad": 0.1,
    "Adam": 0.01,
    "AdamW": 0.01,
    "Adamax": 0.01,
    "Ftrl": 0.1,
    "Lamb": 0.01,
    "Lion": 0.01,
    "Muon": 0.01,
    "Nadam": 0.01,
    "RMSprop": 0.01,
    "SGD": 0.1,
    "ScheduleFreeAdamW": 0.01,
}
OPTIMIZERS = [
    case
    for cases in (
        *(named_optimizer(name, learning_rate=rate) for name, rate in RATES.items() if name != "Nadam"),
        # Nadam of tf_keras counts updates in Python.
        [replace(case, counts_traces=True) for case in named_optimizer("Nadam", learning_rate=RATES["Nadam"])],
        *(
            legacy(name, learning_rate=RATES[name])
            for name in "Adadelta Adagrad Adam Adamax Ftrl Nadam RMSprop SGD".split()
        ),
        optimizer("LossScaleOptimizer", _scaled),
        optimizer("MultiOptimizer", _several),
        named_optimizer("Adam", "clipnorm, amsgrad", learning_rate=0.05, clipnorm=0.1, amsgrad=True),
        named_optimizer("Adam", "averaged", learning_rate=0.05, use_ema=True, ema_overwrite_frequency=2),
        named_optimizer("AdamW", "clipvalue", learning_rate=0.05, clipvalue=0.01, weight_decay=0.1),
        named_optimizer("RMSprop", "centred", learning_rate=0.05, momentum=0.5, centered=True),
        named_optimizer(
            "SGD", "Nesterov, global_clipnorm", learning_rate=0.1, momentum=0.9, nesterov=True, global_clipnorm=0.1
        ),
        [
            replace(case, framework="keras")
            for case in named_optimizer("SGD", "accumulating", learning_rate=0.1, gradient_accumulation_steps=2)
        ],
    )
    for case in cases
]


def schedule(name: str, *arguments: Any, variant: str = "", **named: Any) -> Case:
    def make(k: ModuleType) -> Any:
        return k.optimizers.SGD(getattr(k.optimizers.schedules, name)(*arguments, **named))

    return Case("schedules", name, variant, FEATURES, classes, network(CLASSES, None), logits_loss, make)


SCHEDULES = [
    schedule("CosineDecay", 0.1, 3),
    schedule("CosineDecay", 0.0, 3, variant="warm-up", warmup_steps=2, warmup_target=0.2),
    schedule("CosineDecayRestarts", 0.1, 2),
    schedule("ExponentialDecay", 0.1, 2, 0.5),
    schedule("ExponentialDecay", 0.1, 2, 0.5, variant="staircase", staircase=True),
    schedule("InverseTimeDecay", 0.1, 2, 0.5),
    schedule("PiecewiseConstantDecay", [1, 2], [0.1, 0.05, 0.01]),
    schedule("PolynomialDecay", 0.1, 3, power=2.0),
    schedule("PolynomialDecay", 0.1, 2, variant="cycling", cycle=True),
]


def activation(name: str, *arguments: Any) -> Case:
    def apply(keras: ModuleType, x: Any) -> Any:
        return keras.layers.Lambda(lambda y: getattr(keras.activations, name)(y, *arguments))(x)

    made = layer(name, normal(6, 4), apply)
    return replace(made, kind="activations")


ACTIVATIONS = [
    *(
        activation(name)
        for name in (
            "celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_tanh leaky_relu linear log_sigmoid "
            "log_softmax mish relu relu6 selu sigmoid silu soft_shrink softmax softplus softsign sparse_plus "
            "sparse_sigmoid sparsemax squareplus swish tanh tanh_shrink"
        ).split()
    ),
    activation("threshold", 0.3, -0.5),
]

COMPILED_CASES = [*LOSSES, *METRICS, *OPTIMIZERS, *SCHEDULES, *ACTIVATIONS]
