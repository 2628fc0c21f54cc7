"""Whole models whose throughput Graphcore published, built in their published configurations and estimated.

Each is a Keras model in half precision, whose forward and backward pass are traced. Encoders are built with one and
with two layers; each further layer adds the difference. Nothing runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from keras import layers

from engine.compile import build_program
from engine.partition.schedule import Kind, devices_of, make_schedule
from engine.profile import Assumptions, Estimate, estimate
from engine.profile.links import transfer_cycles
from engine.profile.schedule_timing import lay_out
from engine.profile.step_costs import PartCost
from engine.target import Target, target
from ipu._internal.compiler.trace import trace_step

VOCABULARY = 30_522
HALF_BYTES = 2


@dataclass(frozen=True)
class Prediction:
    """Samples per second and IPU, cycles of a step, and the use of the matrix engines as a share of their peak."""

    samples_per_second: float
    cycles: float
    share_of_peak: float


@dataclass(frozen=True)
class Step:
    """Cost reports of a training step and of the forward pass alone, and the training step's multiply-adds."""

    train: Estimate
    forward: Estimate
    multiply_adds: int

    @property
    def recomputed(self) -> float:
        """Cycles of a step that runs the forward pass twice."""
        return self.train.cycles + self.forward.cycles


def traced(model: keras.Model, specs: list[tf.TensorSpec], chip: str, assumptions: Assumptions) -> Step:
    """Trace the step of a model that maps its inputs to one loss. Its update is one addition, as in accumulation."""

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

    both, multiply_adds = _estimated(train, specs, chip, assumptions)
    return Step(both, _estimated(forward, specs, chip, assumptions)[0], multiply_adds)


def _estimated(
    step: Callable[..., tf.Tensor], specs: list[tf.TensorSpec], chip: str, assumptions: Assumptions
) -> tuple[Estimate, int]:
    """The cost report of a function, and its multiply-adds."""
    trace = trace_step(step, specs)
    program = build_program(trace.module, trace.roles, trace.constants)
    adds = sum(each.work_estimate.multiply_adds for each in program.compute_sets)
    return estimate(program, target(chip), assumptions=assumptions), adds


class MeanLoss(layers.Layer):
    """A layer with the mean cross entropy of logits and labels of class 0, in fp32. Labels do not affect cycles."""

    def call(self, logits: Any) -> Any:
        return -keras.ops.mean(keras.ops.log_softmax(keras.ops.cast(logits, "float32"))[..., 0])


def images(model: keras.Model, size: int, arguments: dict[str, Any]) -> Prediction:
    """The prediction for a classifier on one IPU, for inference, or for training with or without recomputation."""
    batch = arguments["batch"]
    if arguments.get("inference"):
        specs, chip, assumptions = _image_specs(size, arguments)
        found, multiply_adds = _estimated(lambda x: model(x, training=False), specs, chip, assumptions)
        return _prediction(arguments, batch, found.cycles, multiply_adds, 1)
    step = traced(_classifier(model, size), *_image_specs(size, arguments))
    cycles = step.recomputed if arguments.get("recomputation") else step.train.cycles
    return _prediction(arguments, batch, cycles, step.multiply_adds, 1)


def _classifier(model: keras.Model, size: int) -> keras.Model:
    inputs = keras.Input((size, size, 3))
    return keras.Model(inputs, MeanLoss(dtype="float32")(model(inputs)))


def _image_specs(size: int, arguments: dict[str, Any]) -> tuple[list[tf.TensorSpec], str, Assumptions]:
    specs = [tf.TensorSpec((arguments["batch"], size, size, 3), tf.float16)]
    return specs, arguments["chip"], _assumptions(arguments)


def encoder(
    count: int,
    width: int,
    heads: int,
    length: int,
    embedding: Callable[[], tuple[Any, Any]],
    head: Callable[[Any], Any],
    attention_dropout: float,
) -> keras.Model:
    """Transformer layers between an embedding, which returns (inputs, states), and a head, which returns the loss."""
    inputs, states = embedding()
    for _ in range(count):
        attended = layers.MultiHeadAttention(heads, width // heads, dropout=attention_dropout)(states, states)
        states = layers.LayerNormalization()(states + layers.Dropout(0.1)(attended))
        wide = layers.Dense(4 * width, "gelu")(states)
        narrow = layers.Dropout(0.1)(layers.Dense(width)(wide))
        states = layers.LayerNormalization()(states + narrow)
    return keras.Model(inputs, head(states))


def bert(arguments: dict[str, Any]) -> Prediction:
    """Predict masked language modelling, pipelined as published; each stage recomputes in its backward pass."""
    width, heads, length = arguments["width"], arguments["heads"], arguments["length"]

    def embedding() -> tuple[Any, Any]:
        words, positions = keras.Input((length,), dtype="int32"), layers.Embedding(length, width)
        summed = layers.Embedding(VOCABULARY, width)(words) + positions(keras.ops.arange(length))
        return words, layers.Dropout(0.1)(layers.LayerNormalization()(summed))

    def head(states: Any) -> Any:
        chosen = states[:, : arguments["masked"]]
        hidden = layers.LayerNormalization()(layers.Dense(width, "gelu")(chosen))
        return MeanLoss(dtype="float32")(layers.Dense(VOCABULARY)(hidden))

    specs = [tf.TensorSpec((arguments["batch"], length), tf.int32)]
    return _pipelined(lambda n: encoder(n, width, heads, length, embedding, head, 0.1), specs, arguments)


def vision_transformer(arguments: dict[str, Any]) -> Prediction:
    """Predict ViT on patches of 16 x 16 pixels and a class token, which is a row of zeros here."""
    width, heads, length = arguments["width"], arguments["heads"], arguments["length"]

    def embedding() -> tuple[Any, Any]:
        pixels = keras.Input((224, 224, 3))
        patches = layers.Reshape((length - 1, width))(layers.Conv2D(width, 16, 16)(pixels))
        tokens = layers.ZeroPadding1D((1, 0))(patches)
        return pixels, tokens + layers.Embedding(length, width)(keras.ops.arange(length))

    def head(states: Any) -> Any:
        return MeanLoss(dtype="float32")(layers.Dense(1000)(states[:, 0]))

    specs = [tf.TensorSpec((arguments["batch"], 224, 224, 3), tf.float16)]
    return _pipelined(lambda n: encoder(n, width, heads, length, embedding, head, 0.0), specs, arguments)


def _pipelined(
    build: Callable[[int], keras.Model], specs: list[tf.TensorSpec], arguments: dict[str, Any]
) -> Prediction:
    """Extrapolate from one and two layers to all of them, on IPUs with a grouped schedule.

    The first IPU has the embedding and the loss besides its layers. The last stage, on IPU `last_stage`, is not
    recomputed; if that is the first IPU, only its layers are recomputed.
    """
    one, two = (traced(build(count), specs, arguments["chip"], _assumptions(arguments)) for count in (1, 2))
    chip, ipus, last = target(arguments["chip"]), arguments["layers_by_ipu"], arguments["last_stage"]
    micro_batches, adds = arguments["accumulation"], two.multiply_adds - one.multiply_adds
    layer = two.forward.cycles - one.forward.cycles, two.train.cycles - one.train.cycles
    rest = one.forward.cycles - layer[0], one.train.cycles - layer[1]
    costs: dict[tuple[Kind, int], PartCost] = {}
    for ipu, count in enumerate(ipus):
        ahead, whole = ((ipu == 0) * r + count * each for r, each in zip(rest, layer, strict=True))
        there = rest[0] if last == 0 else ahead
        back = whole - there if ipu == last else whole
        for kind, cycles, source in (("forward", ahead, ipu - 1), ("backward", back, ipu + 1)):
            links = _transfer(arguments, source, ipu, chip) if 0 <= source < len(ipus) else 0
            sync = chip.external_sync_cycles(len(ipus))
            costs[kind, ipu] = PartCost(kind, ipu, compute=cycles, sync=sync, links=links)
    schedule = make_schedule("Grouped", devices_of(len(ipus), None), micro_batches, training=True)
    cycles = lay_out(schedule, costs).cycles / micro_batches
    return _prediction(arguments, arguments["batch"], cycles, one.multiply_adds + (sum(ipus) - 1) * adds, len(ipus))


def _transfer(arguments: dict[str, Any], source: int, destination: int, chip: Target) -> int:
    """Cycles of the transfer of a micro-batch's states, or of their gradients, from another IPU."""
    size = HALF_BYTES * arguments["batch"] * arguments["length"] * arguments["width"]
    return transfer_cycles(size, source, destination, chip)


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


def predict(arguments: dict[str, Any]) -> Prediction:
    """The prediction for the arguments of a whole model in engine/data/measurements.toml."""
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy("float16")
    try:
        return BUILDERS[arguments["model"]](arguments)
    finally:
        keras.mixed_precision.set_dtype_policy(before)


def _resnet50(arguments: dict[str, Any]) -> Prediction:
    return images(keras.applications.ResNet50(weights=None, classifier_activation=None), 224, arguments)


def _efficient_net_b4(arguments: dict[str, Any]) -> Prediction:
    """The prediction for replicas of two IPUs: the first runs everything before block 4, the second the rest."""
    step = traced(_classifier(_group_net_b4(), 380), *_image_specs(380, arguments))
    cycles = max(_stages(step.train)[k] + _stages(step.forward)[k] for k in range(2))
    return _prediction(arguments, arguments["batch"], cycles, step.multiply_adds, 2)


def _stages(found: Estimate) -> tuple[int, int]:
    """Cycles of EfficientNet-B4's two stages. A cost without a layer's name is in the stage of the cost before it."""
    cycles, stage = [0, 0], 0
    for cost in found.costs:
        named = re.search(r"block(\d)|stem|head", cost.op_name)
        if named:
            stage = int(named[0] == "head" or int(named[1] or 0) >= 4)
        cycles[stage] += cost.cycles
    return cycles[0], cycles[1]


GROUP_NET_B4 = ((1, 3, 1, 24, 2), (4, 3, 2, 32, 4), (4, 5, 2, 56, 4), (4, 3, 2, 112, 6), (4, 5, 1, 160, 6))
GROUP_NET_B4 += ((4, 5, 2, 272, 8), (4, 3, 1, 448, 2))
"""Expand ratio, taps, stride, features and repeats of each block of EfficientNet-B4 with groups of 16."""


def _group_net_b4() -> keras.Model:
    """EfficientNet-B4 with convolutions in groups of 16 features where the original has depthwise ones."""

    def unit(x: Any, features: int, taps: int, stride: int, name: str, group: int = 0, act: bool = True) -> Any:
        groups = features // group if group else 1
        x = layers.Conv2D(features, taps, stride, "same", groups=groups, use_bias=False, name=f"{name}_convolution")(x)
        x = layers.BatchNormalization(name=f"{name}_norm")(x)
        return layers.Activation("silu", name=f"{name}_silu")(x) if act else x

    inputs = keras.Input((380, 380, 3))
    x = unit(inputs, 48, 3, 2, "stem")
    for number, (ratio, taps, stride, features, repeats) in enumerate(GROUP_NET_B4, 1):
        for repeat in range(repeats):
            name, entry, wide = f"block{number}{chr(97 + repeat)}", x, x.shape[-1] * ratio
            y = unit(x, wide, 1, 1, f"{name}_expand") if ratio > 1 else x
            y = unit(y, wide, taps, 1 if repeat else stride, f"{name}_groups", 16)
            squeezed = layers.GlobalAveragePooling2D(keepdims=True, name=f"{name}_squeeze")(y)
            squeezed = layers.Conv2D(max(1, entry.shape[-1] // 4), 1, activation="silu", name=f"{name}_reduce")(
                squeezed
            )
            gate = layers.Conv2D(wide, 1, activation="sigmoid", name=f"{name}_gate")(squeezed)
            x = unit(layers.Multiply(name=f"{name}_excite")([y, gate]), features, 1, 1, f"{name}_project", act=False)
            x = layers.Add(name=f"{name}_add")([x, entry]) if repeat else x
    x = layers.GlobalAveragePooling2D(name="head_pool")(unit(x, 1792, 1, 1, "head"))
    return keras.Model(inputs, layers.Dense(1000, name="head_dense")(x))


BUILDERS: dict[str, Callable[[dict[str, Any]], Prediction]] = {
    "resnet50": _resnet50,
    "efficientnetb4": _efficient_net_b4,
    "bert": bert,
    "vit": vision_transformer,
}
