"""Predicted throughput of whole models beside Graphcore's published one: `python -m benchmarks.published [MODEL ...]`.

Each model is built at its published configuration as a Keras model in half precision, its forward and backward pass
traced, and its cost on the chip estimated. Encoders are built with one and with two layers, and the difference counts
for each further layer. Nothing runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from keras import layers

from engine.compile import build_program
from engine.profile import Assumptions, Estimate, estimate
from engine.profile.validation import whole_models
from engine.target import target
from ipu._internal.compiler.trace import trace_step

VOCABULARY = 30_522
MASKED_SHARE = 20 / 128
"""Positions of a sequence that are predicted: 20 of 128 in BERT's first phase."""


@dataclass(frozen=True)
class Prediction:
    """Samples per second and IPU, cycles of a step, and the flop of the matrix engines over their peak."""

    samples_per_second: float
    cycles: float
    share_of_peak: float


@dataclass(frozen=True)
class Step:
    """Cost reports of a training step and of the forward pass alone, and the multiply-adds of the former."""

    train: Estimate
    forward: Estimate
    multiply_adds: int

    @property
    def recomputed(self) -> float:
        """Cycles of a step that runs forward twice."""
        return self.train.cycles + self.forward.cycles


def traced(model: keras.Model, specs: list[tf.TensorSpec], chip: str, assumptions: Assumptions) -> Step:
    """The step of a model that maps its inputs to one loss; updates are additions, as those of accumulation."""

    def train(*inputs: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = model(list(inputs) if len(inputs) > 1 else inputs[0], training=True)
        variables = [v.value for v in model.trainable_variables]
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            if isinstance(gradient, tf.IndexedSlices):
                variable.scatter_sub(gradient)
            elif gradient is not None:
                variable.assign_sub(gradient)
        return loss

    def forward(*inputs: tf.Tensor) -> tf.Tensor:
        return model(list(inputs) if len(inputs) > 1 else inputs[0], training=True)

    estimates = []
    multiply_adds = 0
    for step in (train, forward):
        trace = trace_step(step, specs)
        program = build_program(trace.module, trace.roles, trace.constants)
        estimates.append(estimate(program, target(chip), assumptions=assumptions))
        if step is train:
            multiply_adds = sum(each.work_estimate.multiply_adds for each in program.compute_sets)
    return Step(estimates[0], estimates[1], multiply_adds)


class MeanLoss(layers.Layer):
    """The mean cross entropy of logits and labels of class 0, in fp32: the labels change no cycles."""

    def call(self, logits: Any) -> Any:
        return -keras.ops.mean(keras.ops.log_softmax(keras.ops.cast(logits, "float32"))[..., 0])


def images(model: keras.Model, size: int, row: dict[str, Any]) -> Prediction:
    """Prediction of a classifier on one IPU, with recomputation of its activations if the row has it."""
    arguments = row["arguments"]
    inputs = keras.Input((size, size, 3))
    whole = keras.Model(inputs, MeanLoss(dtype="float32")(model(inputs)))
    specs = [tf.TensorSpec((arguments["batch"], size, size, 3), tf.float16)]
    step = traced(whole, specs, arguments["chip"], _assumptions(arguments))
    cycles = step.recomputed if arguments.get("recomputation") else step.train.cycles
    return _prediction(arguments, arguments["batch"], cycles, step.multiply_adds, 1)


def encoder(
    count: int,
    width: int,
    heads: int,
    length: int,
    embedding: Callable[[], tuple[Any, Any]],
    head: Callable[[Any], Any],
) -> keras.Model:
    """Transformer layers between an embedding, which gives (inputs, states), and a head, which gives the loss."""
    inputs, states = embedding()
    for _ in range(count):
        attended = layers.MultiHeadAttention(heads, width // heads)(states, states)
        states = layers.LayerNormalization()(states + layers.Dropout(0.1)(attended))
        wide = layers.Dense(4 * width, "gelu")(states)
        narrow = layers.Dropout(0.1)(layers.Dense(width)(wide))
        states = layers.LayerNormalization()(states + narrow)
    return keras.Model(inputs, head(states))


def bert(row: dict[str, Any]) -> Prediction:
    """Masked language modelling, pipelined over IPUs as published, each stage recomputed in its backward pass."""
    arguments = row["arguments"]
    width, heads, length = arguments["width"], arguments["heads"], arguments["length"]

    def embedding() -> tuple[Any, Any]:
        words, positions = keras.Input((length,), dtype="int32"), layers.Embedding(length, width)
        summed = layers.Embedding(VOCABULARY, width)(words) + positions(keras.ops.arange(length))
        return words, layers.Dropout(0.1)(layers.LayerNormalization()(summed))

    def head(states: Any) -> Any:
        chosen = states[:, : round(length * MASKED_SHARE)]
        hidden = layers.LayerNormalization()(layers.Dense(width, "gelu")(chosen))
        return MeanLoss(dtype="float32")(layers.Dense(VOCABULARY)(hidden))

    specs = [tf.TensorSpec((arguments["batch"], length), tf.int32)]
    return _pipelined(lambda n: encoder(n, width, heads, length, embedding, head), specs, arguments)


def vision_transformer(row: dict[str, Any]) -> Prediction:
    """ViT on patches of 16 x 16 pixels."""
    arguments = row["arguments"]
    width, heads, length = arguments["width"], arguments["heads"], 196

    def embedding() -> tuple[Any, Any]:
        pixels = keras.Input((224, 224, 3))
        patches = layers.Reshape((length, width))(layers.Conv2D(width, 16, 16)(pixels))
        return pixels, patches + layers.Embedding(length, width)(keras.ops.arange(length))

    def head(states: Any) -> Any:
        return MeanLoss(dtype="float32")(layers.Dense(1000)(states[:, 0]))

    specs = [tf.TensorSpec((arguments["batch"], 224, 224, 3), tf.float16)]
    return _pipelined(lambda n: encoder(n, width, heads, length, embedding, head), specs, arguments)


def _pipelined(
    build: Callable[[int], keras.Model], specs: list[tf.TensorSpec], arguments: dict[str, Any]
) -> Prediction:
    """Extrapolates from one and two layers to all of them, distributed over IPUs: the slowest sets the period."""
    assumptions = _assumptions(arguments)
    one, two = (traced(build(count), specs, arguments["chip"], assumptions) for count in (1, 2))
    each, adds = two.recomputed - one.recomputed, two.multiply_adds - one.multiply_adds
    rest, rest_adds = one.recomputed - each, one.multiply_adds - adds
    ipus = arguments["layers_by_ipu"]
    # The first IPU has embedding and heads besides.
    slowest = max(rest + ipus[0] * each, *(count * each for count in ipus)) if len(ipus) > 1 else rest + ipus[0] * each
    return _prediction(arguments, arguments["batch"], slowest, rest_adds + sum(ipus) * adds, len(ipus))


def _prediction(arguments: dict[str, Any], samples: int, cycles: float, multiply_adds: int, ipus: int) -> Prediction:
    chip = target(arguments["chip"])
    seconds = cycles / chip.clock_hz
    peak = chip.peak_flops("f16", arguments["partials_type"])
    return Prediction(samples / seconds / ipus, cycles, 2 * multiply_adds / seconds / ipus / peak)


def _assumptions(arguments: dict[str, Any]) -> Assumptions:
    proportion = arguments.get("memory_proportion", 0.6)
    return Assumptions(
        partials_type=arguments["partials_type"],
        available_memory_proportion=proportion,
        convolution_memory_proportion=proportion,
    )


def predict(row: dict[str, Any]) -> Prediction:
    """The prediction for a row of `whole_models`."""
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy("float16")
    try:
        return BUILDERS[row["arguments"]["model"]](row)
    finally:
        keras.mixed_precision.set_dtype_policy(before)


def _resnet50(row: dict[str, Any]) -> Prediction:
    return images(keras.applications.ResNet50(weights=None, classifier_activation=None), 224, row)


def _efficient_net_b4(row: dict[str, Any]) -> Prediction:
    model = keras.applications.EfficientNetB4(weights=None, classifier_activation=None)
    return images(model, 380, row)


BUILDERS: dict[str, Callable[[dict[str, Any]], Prediction]] = {
    "resnet50": _resnet50,
    "efficientnetb4": _efficient_net_b4,
    "bert": bert,
    "vit": vision_transformer,
}


def main() -> None:
    """Reads the command line, predicts, prints."""
    names = [row["name"] for row in whole_models()]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published", description=__doc__)
    parser.add_argument("models", nargs="*", default=names, metavar="MODEL", help=", ".join(names))
    options = parser.parse_args()
    print(f"{'samples per second and IPU':<44}{'published':>10}{'predicted':>10}{'error':>8}{'of peak':>9}")
    for row in whole_models():
        if row["name"] in options.models:
            made = predict(row)
            error = made.samples_per_second / row["published"] - 1
            print(
                f"{row['name']:<44}{row['published']:>10,}{made.samples_per_second:>10,.0f}{error:>+8.0%}"
                f"{made.share_of_peak:>9.0%}  {row['caveat']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
