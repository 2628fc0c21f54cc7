"""Small models of each sort, in every schedule and recomputation mode, give the bits of the model without stages."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from ipu.config import IPUConfig
from ipu.ops.pipelining_ops import PipelineSchedule, RecomputationMode
from ipu.utils import reset_ipu_seed
from tests.keras.helpers import CLASSES, KITS, Kit, data
from tests.keras.pipelines import BATCH, mlp, twins
from tests.keras.test_pipelining_sharing import LENGTH, WORDS, tied_functional
from tests.keras.test_pipelining_training import convolutional, transformer

GROUPED, INTERLEAVED, SEQUENTIAL = PipelineSchedule
THEN, TOGETHER = RecomputationMode.RecomputeThenBackpropagate, RecomputationMode.RecomputeAndBackpropagateInterleaved
WAYS: list[tuple[PipelineSchedule, Any]] = [
    *((GROUPED, mode) for mode in (False, None, THEN, TOGETHER)),
    *((INTERLEAVED, mode) for mode in (False, None, THEN)),
    *((SEQUENTIAL, mode) for mode in (False, None, TOGETHER)),
]
"""Schedules with their recomputation modes; False is for none, None for the schedule's default."""


def labels(classes: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(4).integers(0, classes, shape).astype(np.int32)


def pictures(samples: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(5).normal(size=(samples, 6, 6, 2)).astype(np.float32)
    return x, labels(CLASSES, samples)


def words(samples: int) -> tuple[np.ndarray, np.ndarray]:
    return labels(9, samples, LENGTH), labels(CLASSES, samples)


def language(samples: int) -> tuple[np.ndarray, np.ndarray]:
    return labels(WORDS, samples, LENGTH), labels(WORDS, samples, LENGTH)


@functools.cache
def half(kit_name: str) -> list[int]:
    """The stages of the transformer, whose calls are cut in halves."""
    from ipu.ipu_strategy import IPUStrategy

    with IPUStrategy().scope():
        count = len(transformer(KITS[kit_name]).get_pipeline_stage_assignment())
    return [0 if number < count // 2 else 1 for number in range(count)]


MODELS: dict[str, tuple[Any, Any, Any]] = {
    "perceptron": (mlp, data, lambda kit: [0, 1, 1, 2]),
    "convolutions": (convolutional, pictures, lambda kit: [0, 0, 0, 1, 1, 1]),
    "transformer": (transformer, words, half),
    "tied": (tied_functional, language, lambda kit: [0, 1, 2]),
}
STEPS = 12
"""A legal number of steps for two and three stages in each schedule."""


def configure(ipus: int, recompute: bool = False) -> None:
    config = IPUConfig()
    config.auto_select_ipus = ipus
    config.allow_recompute = recompute
    config.configure_ipu_system()


def trained(kit: Kit, model: Any, feed: Any, replicas: int) -> list[np.ndarray]:
    kit.keras.utils.set_random_seed(5)
    reset_ipu_seed(5)
    x, y = feed(2 * STEPS * BATCH * replicas)
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    return model.get_weights()


@functools.cache
def unsplit(kit_name: str, name: str, replicas: int) -> list[np.ndarray]:
    build, feed, stages = MODELS[name]
    configure(replicas)
    plain, _ = twins(KITS[kit_name], build, stages(kit_name), STEPS)
    return trained(KITS[kit_name], plain, feed, replicas)


@functools.cache
def pipelined(
    kit_name: str, name: str, schedule: PipelineSchedule, mode: Any, replicas: int = 1
) -> tuple[list[np.ndarray], set[str]]:
    """The weights after training, and the kinds of rows in the schedule."""
    kit, (build, feed, stages) = KITS[kit_name], MODELS[name]
    ipus = 4 if name == "perceptron" else 2
    configure(ipus * replicas, mode is not False)
    options = {"pipeline_schedule": schedule, "recomputation_mode": mode or None}
    _, model = twins(kit, build, stages(kit_name), STEPS, **options)
    weights = trained(kit, model, feed, replicas)
    return weights, {row.kind for row in model.get_pipeline_schedule()}


def kit_name(kit: Kit) -> str:
    return "keras" if kit.is_keras3 else "tf_keras"


def draws_in_sequence(kit: Kit, name: str, schedule: PipelineSchedule) -> bool:
    """tf_keras draws from one sequence: only a sequential schedule draws the numbers of the model without stages."""
    return kit.is_keras3 or name != "transformer" or schedule is SEQUENTIAL


# The first and the last stage of the tied model share an IPU, which an interleaved schedule refuses. Schedules do not
# depend on Keras: in tf_keras every model is tried in every second way, and every way with two models.
CASES = [
    (kit_name, name, *way)
    for kit_name in KITS
    for row, name in enumerate(MODELS)
    for column, way in enumerate(WAYS)
    if (name != "tied" or way[0] is not INTERLEAVED) and (kit_name == "keras" or (row + column) % 2 == 0)
]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("kit", "name", "schedule", "mode"),
    CASES,
    ids=[f"{k}-{n}-{s.name}-{m and m.name}" for k, n, s, m in CASES],
    indirect=["kit"],
)
def test_same_bits(kit: Kit, name: str, schedule: PipelineSchedule, mode: Any) -> None:
    weights, kinds = pipelined(kit_name(kit), name, schedule, mode)
    assert ("recompute" in kinds) == (mode is not False and mode is not TOGETHER and schedule is not SEQUENTIAL)
    if draws_in_sequence(kit, name, schedule):
        expected = unsplit(kit_name(kit), name, 1)
    else:
        expected, _ = pipelined(kit_name(kit), name, schedule, False)
    for one, other in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", list(MODELS))
def test_two_replicas(kit: Kit, name: str) -> None:
    schedule = GROUPED if draws_in_sequence(kit, name, GROUPED) else SEQUENTIAL
    weights, _ = pipelined(kit_name(kit), name, schedule, None, 2)
    for one, other in zip(weights, unsplit(kit_name(kit), name, 2), strict=True):
        np.testing.assert_array_equal(one, other)
