"""Options of Keras models that act in the chip's cost report alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.profile.program_estimate import Estimate
from ipu.config import IPUConfig
from ipu.ops.pipelining_ops import PipelineStageOptions, RecomputationMode
from keras_ext.chip import chip_estimate
from tests.keras.helpers import Kit
from tests.keras.pipelines import set_stages

WIDTH = 256


def pipelined(kit: Kit, *, checkpoint: bool = False, recompute: bool = False, **options: Any) -> Estimate:
    """The estimate of an update of four layers in two stages; a checkpoint may follow the first layer."""
    config = IPUConfig()
    config.allow_recompute = recompute
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    layers = kit.keras.layers
    hidden = [layers.Dense(WIDTH, "tanh") for _ in range(4)]
    if checkpoint:
        hidden.insert(1, kit.keras.ipu.layers.RecomputationCheckpoint())
    model = kit.ipu_model(lambda: kit.keras.Sequential([layers.Input((WIDTH,)), *hidden]), steps_per_execution=4)
    model.compile(kit.keras.optimizers.SGD(0.01, momentum=0.9), "mse", steps_per_execution=4)
    set_stages(model, [0, 0, 0, 1, 1] if checkpoint else [0, 0, 1, 1])
    model.set_pipelining_options(4, **options)
    x = np.ones((4 * 32, WIDTH), np.float32)
    model.fit(x, x, batch_size=32, verbose=0)
    return chip_estimate(model)


def test_options_of_stages_reach_their_plans(kit: Kit) -> None:
    little = PipelineStageOptions(matmul_options={"availableMemoryProportion": 0.001})
    options = [PipelineStageOptions(), little]
    plain, other = pipelined(kit), pipelined(kit, backward_propagation_stages_poplar_options=options)
    assert plain.pipeline is not None and other.pipeline is not None
    pairs = zip(plain.pipeline.parts, other.pipeline.parts, strict=True)
    assert {(a.kind, a.stage) for a, b in pairs if a != b} == {("backward", 1)}
    assert other.cycles > plain.cycles


def test_checkpoints_of_a_model_are_stored(kit: Kit) -> None:
    options = {"recompute": True, "recomputation_mode": RecomputationMode.RecomputeAndBackpropagateInterleaved}
    plain, kept = pipelined(kit, **options), pipelined(kit, checkpoint=True, **options)
    assert plain.pipeline is not None and kept.pipeline is not None
    stashes = [each.stash_bytes for each in (plain.pipeline.ipus[0], kept.pipeline.ipus[0])]
    assert stashes[1] - stashes[0] == 4 * 32 * WIDTH * 4  # of four micro-batches


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"matmul_options": {"availableMemoryProprotion": 0.1}}, "Nearest: 'availableMemoryProportion'"),
        ({"convolution_options": {"partialsTypes": "half"}}, "Nearest: 'partialsType'"),
        ({"slice_options": {"usedForUpdates": "true"}}, "Nearest: 'usedForUpdate'"),
    ],
)
def test_flags_that_no_library_has(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="Expected the keys of") as raised:
        PipelineStageOptions(**arguments)
    assert said in str(raised.value) and next(iter(arguments)) in str(raised.value)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_recomputation_of_a_model_without_stages(kit: Kit, checkpoint: bool) -> None:
    """IPUConfig.allow_recompute: the same weights, fewer bytes, more cycles; layers after the last checkpoint stay."""
    found = []
    for allowed in (False, True):
        config = IPUConfig()
        config.allow_recompute = allowed
        config.configure_ipu_system()
        layers = kit.keras.layers
        kit.keras.utils.set_random_seed(3)
        hidden = [layers.Dense(64, "tanh", name=f"hidden_{number}") for number in range(8)]
        if checkpoint:
            hidden.insert(4, kit.keras.ipu.layers.RecomputationCheckpoint())
        chain = [layers.Input((64,)), *hidden]
        model = kit.ipu_model(lambda chain=chain: kit.keras.Sequential(chain))
        model.compile(kit.keras.optimizers.SGD(0.01), "mse")
        x = np.ones((1024, 64), np.float32)
        model.fit(x, x, batch_size=1024, verbose=0)
        found.append((chip_estimate(model), model.get_weights()))
    labels = {cost.label.split()[0] for cost in found[1][0].costs if "(recomputed)" in cost.label}
    expected = {f"hidden_{number}" for number in range(3)}
    assert labels == expected if checkpoint else 2 < len(labels) < 8, labels
    (kept, weights), (again, same) = found
    for one, other in zip(weights, same, strict=True):
        np.testing.assert_array_equal(one, other)
    assert max(again.memory.live_bytes) < max(kept.memory.live_bytes) and again.cycles > kept.cycles
