"""Whole models whose throughput Graphcore published, built in their published configurations and estimated.

Each is a Keras model in half precision, or in that of its row, whose forward and backward pass are traced. Encoders are
built with one and with two layers; each further layer adds the difference. Nothing runs.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, pairwise, zip_longest
from math import ceil, prod
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from benchmarks import published_networks as networks
from benchmarks.published import program_key
from benchmarks.published_steps import Programs, multiply_adds, program_of, traced
from engine.partition.schedule import Kind, devices_of, make_schedule
from engine.profile.links import all_reduce, transfer_cycles
from engine.profile.options import Assumptions
from engine.profile.program_estimate import Estimate, estimate
from engine.profile.schedule_timing import lay_out, period_of
from engine.profile.step_costs import PartCost
from engine.target import Target, target

VOCABULARY = 30_522
BLOCK = re.compile(r"block(\d+)")
POLICIES = {"f16": "float16", "f32": "float32"}
STATE_BYTES = 8
"""An optimizer's two averages of each parameter, in fp32."""


@dataclass(frozen=True)
class Prediction:
    """Samples per second and IPU, cycles of a step, and the use of the matrix engines as a share of their peak."""

    samples_per_second: float
    cycles: float
    share_of_peak: float


class MeanLoss(layers.Layer):
    """A layer with the mean cross entropy of logits and labels of class 0, in fp32. Labels do not affect cycles."""

    def call(self, logits: Any) -> Any:
        return -keras.ops.mean(keras.ops.log_softmax(keras.ops.cast(logits, "float32"))[..., 0])


def images(model: keras.Model, shape: tuple[int, ...], arguments: dict[str, Any]) -> Prediction:
    """The prediction for a classifier on one IPU, for inference, or for training with or without recomputation."""
    batch = arguments["batch"]
    if arguments.get("inference"):
        program = program_of(lambda x: model(x, training=False), _image_specs(shape, arguments))
        found = estimate(program, target(arguments["chip"]), assumptions=_assumptions(arguments))
        return _prediction(arguments, batch, found.cycles, multiply_adds(program), 1)
    programs = traced(_classifier(model, shape), _image_specs(shape, arguments))
    step = programs.on(arguments["chip"], _assumptions(arguments))
    cycles = step.recomputed if arguments.get("recomputation") else step.train.cycles
    # The state of one IPU's optimizer is on its tiles.
    summed = replace(_update(model.count_params(), 0, 1, arguments), streaming=0)
    cycles += summed.cycles / arguments["accumulation"]
    return _prediction(arguments, batch, cycles, step.multiply_adds, 1)


def _classifier(model: keras.Model, shape: tuple[int, ...]) -> keras.Model:
    inputs = keras.Input(shape)
    return keras.Model(inputs, MeanLoss(dtype="float32")(model(inputs)))


def _image_specs(shape: tuple[int, ...], arguments: dict[str, Any]) -> list[tf.TensorSpec]:
    return [tf.TensorSpec((arguments["batch"], *shape), _policy(arguments))]


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
    tied = {"tied": VOCABULARY * width}
    return _pipelined(lambda n: encoder(n, width, heads, length, embedding, head, 0.1), specs, arguments | tied)


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


_encoders: dict[Hashable, list[tuple[Programs, int]]] = {}
"""The programs of encoders of one and of two layers, and their numbers of parameters."""


def _pipelined(
    build: Callable[[int], keras.Model], specs: list[tf.TensorSpec], arguments: dict[str, Any]
) -> Prediction:
    """Extrapolate from one and two layers to all of them, on IPUs with a grouped schedule.

    The first IPU has the embedding and the loss besides its layers. The last stage, on IPU `last_stage`, is not
    recomputed; if that is the first IPU, only its layers are recomputed.
    """
    key = program_key(arguments)
    if key not in _encoders:
        models = [build(count) for count in (1, 2)]
        _encoders[key] = [(traced(model, specs), model.count_params()) for model in models]
    (of_one, counted), (of_two, counted_of_two) = _encoders[key]
    one, two = (each.on(arguments["chip"], _assumptions(arguments)) for each in (of_one, of_two))
    parameters = counted_of_two - counted
    others = counted - parameters - arguments.get("tied", 0)
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
        costs["update", ipu] = _update((ipu == 0) * others + count * parameters, ipu, len(ipus), arguments)
    schedule = make_schedule("Grouped", devices_of(len(ipus), None), micro_batches, training=True)
    cycles = lay_out(schedule, costs).cycles / micro_batches
    return _prediction(arguments, arguments["batch"], cycles, one.multiply_adds + (sum(ipus) - 1) * adds, len(ipus))


def _update(parameters: int, stage: int, ipus: int, arguments: dict[str, Any]) -> PartCost:
    """An update of the parameters of one IPU: a sum over replicas, and states that come from streaming memory."""
    chip = target(arguments["chip"])
    summed = all_reduce(_item_bytes(arguments) * parameters, arguments.get("replicas", 1), chip, ipus)
    streamed = 2 * STATE_BYTES * parameters / chip.streaming_memory_bytes_per_second
    links, syncs, streaming = (ceil(each * chip.clock_hz) for each in (summed.transfer, summed.syncs, streamed))
    return PartCost("update", stage, links=links, sync=syncs, streaming=streaming)


def _transfer(arguments: dict[str, Any], source: int, destination: int, chip: Target) -> int:
    """Cycles of the transfer of a micro-batch's states, or of their gradients, from another IPU."""
    size = _item_bytes(arguments) * arguments["batch"] * arguments["length"] * arguments["width"]
    return transfer_cycles(size, source, destination, chip)


def _prediction(arguments: dict[str, Any], samples: int, cycles: float, multiply_adds: int, ipus: int) -> Prediction:
    chip = target(arguments["chip"])
    seconds = cycles / chip.clock_hz
    peak = chip.peak_flops(arguments.get("element_type", "f16"), arguments["partials_type"])
    return Prediction(samples / seconds / ipus, cycles, 2 * multiply_adds / seconds / ipus / peak)


def _policy(arguments: dict[str, Any]) -> str:
    return POLICIES[arguments.get("element_type", "f16")]


def _item_bytes(arguments: dict[str, Any]) -> int:
    return tf.as_dtype(_policy(arguments)).size


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
    keras.mixed_precision.set_dtype_policy(_policy(arguments))
    try:
        return BUILDERS[arguments["model"]](arguments)
    finally:
        keras.mixed_precision.set_dtype_policy(before)


def _resnet50(arguments: dict[str, Any]) -> Prediction:
    return images(keras.applications.ResNet50(weights=None, classifier_activation=None), (224, 224, 3), arguments)


def _efficient_net_b4(arguments: dict[str, Any]) -> Prediction:
    """The prediction for replicas of two IPUs: the first runs everything before block 4, the second the rest."""
    return _staged(networks.group_net_b4(), (380, 380, 3), arguments, 2, at=(4,))


def _resnext101(arguments: dict[str, Any]) -> Prediction:
    return _staged(networks.resnext101(), (224, 224, 3), arguments, 2)


def _swin_tiny(arguments: dict[str, Any]) -> Prediction:
    return _staged(networks.swin_tiny(), (224, 224, 3), arguments, 4)


def _unet(arguments: dict[str, Any]) -> Prediction:
    return _staged(networks.unet(512), (512, 512, 1), arguments, 4)


def _staged(
    model: keras.Model, shape: tuple[int, ...], arguments: dict[str, Any], stages: int, at: tuple[int, ...] = ()
) -> Prediction:
    """The prediction for stages of whole blocks, which begin `at` blocks, or else where the period is the shortest.

    Each stage has its own of the `memory_proportions`, or all have the one `memory_proportion`.
    Stages are on IPUs of their own, in a grouped schedule with recomputation.
    """
    batch, chip = arguments["batch"], target(arguments["chip"])
    proportions = arguments.get("memory_proportions", [arguments.get("memory_proportion", 0.6)] * stages)
    programs, costs_at = traced(_classifier(model, shape), _image_specs(shape, arguments)), {}
    for each in set(proportions):
        step = programs.on(arguments["chip"], _assumptions(arguments | {"memory_proportion": each}))
        costs_at[each] = np.transpose([*zip_longest(_blocks(step.train), _blocks(step.forward), fillvalue=0)])
    micro_batches, devices = arguments["accumulation"], devices_of(stages, None)
    schedule = make_schedule("Grouped", devices, micro_batches, training=True, recomputation="then_backpropagate")
    parameters = _parameters(model)
    scale = batch * _item_bytes(arguments)
    crossing = [(scale * size, made, used) for size, made, used in _between_blocks(model)]

    def costs_of(edges: tuple[int, ...]) -> dict[tuple[Kind, int], PartCost]:
        costs, sync = {}, chip.external_sync_cycles(stages)
        links = {kind: [0] * stages for kind in ("forward", "recompute", "backward")}
        for size, made, used in crossing:
            source, *sinks = (bisect_right(edges, block) - 1 for block in (made, *used))
            for sink in {*sinks} - {source}:
                links["forward"][sink] += transfer_cycles(size, source, sink, chip)
                links["backward"][source] += transfer_cycles(size, sink, source, chip)
        for stage, (first, end) in enumerate(pairwise(edges)):
            both, ahead = costs_at[proportions[stage]][:, first:end].sum(axis=1)
            for kind, cycles in (("forward", ahead), ("recompute", ahead), ("backward", both - ahead)):
                costs[kind, stage] = PartCost(kind, stage, compute=cycles, sync=sync, links=links[kind][stage])
            held = sum(number for block, number in parameters.items() if first <= block < end)
            costs["update", stage] = _update(held, stage, stages, arguments)
        return costs

    blocks = costs_at[proportions[0]].shape[1]
    cuts = [at] if at else combinations(range(1, blocks), stages - 1)
    costs = min((costs_of((0, *cut, blocks)) for cut in cuts), key=partial(period_of, schedule))
    cycles = lay_out(schedule, costs).cycles / micro_batches
    return _prediction(arguments, batch, cycles, multiply_adds(programs.train), stages)


def _parameters(model: keras.Model) -> dict[int, int]:
    """The number of parameters of each block."""
    found: dict[int, int] = {}
    for each in model.layers:
        if named := BLOCK.search(each.name):
            found[int(named[1])] = found.get(int(named[1]), 0) + each.count_params()
    return found


def _between_blocks(model: keras.Model) -> list[tuple[int, int, set[int]]]:
    """Arrays that other blocks read: elements for one image, the block that makes them, the blocks that read them."""
    found: dict[Any, tuple[int, int, set[int]]] = {}
    block = {each.name: int(named[1]) for each in model.layers if (named := BLOCK.search(each.name))}
    for reader in model.layers:
        for node in reader._inbound_nodes:
            for array in node.arguments.keras_tensors:
                made = block.get(array._keras_history.operation.name)
                if made is not None and made != block[reader.name]:
                    size = prod(array.shape[1:])
                    found.setdefault(id(array), (size, made, set()))[2].add(block[reader.name])
    return list(found.values())


def _blocks(found: Estimate) -> list[int]:
    """Cycles of each block, by the number in its layers' names. Other costs belong to the block of the cost before."""
    cycles, block = [0], 0
    for cost in found.costs:
        named = BLOCK.search(cost.op_name)
        block = int(named[1]) if named else block
        cycles += [0] * (block + 1 - len(cycles))
        cycles[block] += cost.cycles
    return cycles


BUILDERS: dict[str, Callable[[dict[str, Any]], Prediction]] = {
    "resnet50": _resnet50,
    "efficientnetb4": _efficient_net_b4,
    "resnext101": _resnext101,
    "swin": _swin_tiny,
    "unet": _unet,
    "bert": bert,
    "vit": vision_transformer,
}
