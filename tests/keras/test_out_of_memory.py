"""Models that the configured chip cannot hold are refused before they run, and everything stays usable."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu
from engine.errors import ConfigurationError, OutOfTileMemory
from engine.profile.categories import OPTIMIZER_STATE
from engine.profile.options import OPTIMIZER_STATE_VARIABLES
from engine.profile.program_estimate import Estimate
from ipu.config import IPUConfig
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import FEATURES, Kit, data, keras3_only

WIDTH = 512
OPTION = "debug.allowOutOfMemory"


def configure(tiles: int = 2, **options: str) -> None:
    config = IPUConfig()
    config.ipu_model.tiles_per_ipu = tiles
    config.compilation_poplar_options = options
    config.configure_ipu_system()


@pytest.fixture(autouse=True)
def on_a_model_of_two_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    monkeypatch.delenv("POPLAR_ENGINE_OPTIONS", raising=False)
    configure()
    yield
    ipu.allow_out_of_memory(False)


def wide(kit: Kit) -> Any:
    """A model whose weights two tiles hold, while they cannot hold its activations for large batches."""
    layers = kit.keras.layers
    return kit.keras.Sequential(
        [
            layers.Input((FEATURES,)),
            layers.Dense(WIDTH, "relu", name="first_hidden"),
            layers.Dense(64, "relu", name="second_hidden"),
            layers.Dense(3, "softmax"),
        ]
    )


def test_it_is_told_before_the_program_runs_and_a_smaller_batch_is_fitted(kit: Kit) -> None:
    model = kit.ipu_model(lambda: wide(kit))
    before = [np.array(w) for w in model.get_weights()]
    x, y = data(2048)
    with pytest.raises(OutOfTileMemory) as raised:
        model.fit(x, y, batch_size=1024, verbose=0)
    message = str(raised.value)
    assert "on tile " in message and "bytes over" in message
    assert "first_hidden" in message.split("The layers with most bytes")[1].split("What to change")[0]
    assert "suffices alone    a smaller batch, " in message
    assert isinstance(raised.value.estimate, Estimate) and not raised.value.estimate.fits
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    history = model.fit(x, y, batch_size=32, epochs=1, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    assert not np.array_equal(model.get_weights()[0], before[0])
    assert model.predict(x[:32], batch_size=16, verbose=0).shape == (32, 3)


def test_large_activations_are_noticed_before_the_step_is_traced(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    """The notice comes once for each size of batch, by the bytes of tensors that layers with a kernel read and
    write.
    """
    model = kit.ipu_model(lambda: wide(kit))
    x, y = data(2048)
    model.fit(x, y, batch_size=32, verbose=0)
    for _ in range(2):
        with pytest.raises(OutOfTileMemory):
            model.fit(x, y, batch_size=2048, verbose=0)
    told = [record.getMessage() for record in caplog.records if "likely to be refused" in record.getMessage()]
    needed = 4 * 2048 * (FEATURES + WIDTH + 64 + 3)
    assert len(told) == 1 and f"{needed / 1e6:.2f} MB for a batch of 2048" in told[0]


def test_the_advice_is_followed(kit: Kit) -> None:
    """The batch size that the error proposes fits."""
    model = kit.ipu_model(lambda: wide(kit))
    x, y = data(2048)
    with pytest.raises(OutOfTileMemory) as raised:
        model.fit(x, y, batch_size=2048, verbose=0)
    found = re.search(r"a smaller batch, (\d+) in place of 2048", str(raised.value))
    assert found and 16 <= int(found[1]) < 1024
    history = model.fit(x, y, batch_size=int(found[1]), verbose=0)
    assert np.isfinite(history.history["loss"]).all()


@keras3_only
def test_the_last_line_of_the_error_trains_all_the_same(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    """The pasted line makes each program warn once, whatever is compiled afterwards."""
    x, y = data(1040)
    with pytest.raises(OutOfTileMemory) as raised:
        kit.ipu_model(lambda: wide(kit)).fit(x, y, batch_size=1040, verbose=0)
    exec(str(raised.value).splitlines()[-1].strip())
    configure()
    with caplog.at_level(logging.WARNING, "ipu"):
        for _ in range(2):
            kit.ipu_model(lambda: wide(kit)).fit(x, y, batch_size=1040, verbose=0)
    told = [record.getMessage() for record in caplog.records if OPTION in record.getMessage()]
    assert len(told) == 1 and "bytes over" in told[0] and "\n" not in told[0]
    ipu.allow_out_of_memory(False)
    with pytest.raises(OutOfTileMemory):
        kit.ipu_model(lambda: wide(kit)).fit(x, y, batch_size=1040, verbose=0)


def test_accumulation_takes_less_memory_than_its_batch(kit: Kit) -> None:
    x, y = data(1024)
    model = kit.ipu_model(lambda: wide(kit), steps_per_execution=16)
    with pytest.raises(OutOfTileMemory):
        model.fit(x, y, batch_size=1024, verbose=0)
    model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=16)
    model.fit(x, y, batch_size=64, verbose=0)
    from keras_ext.chip import chip_estimate

    found = {tensor.name: tensor for tensor in chip_estimate(model).liveness}
    assert found["input 0"].shape == f"f32[64,{FEATURES}]" and found["input 0"].category == "stream buffers"
    sums = [t for t in found.values() if t.name.startswith("sum of gradients of ") and t.layer.startswith("first")]
    assert sums and all(t.category == "optimizer state" and not t.always_live for t in sums)


@keras3_only
@pytest.mark.parametrize("where", ["configuration", "environment"])
def test_poplars_option_makes_it_a_warning(
    kit: Kit, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if where == "configuration":
        configure(**{OPTION: "true"})
    else:
        monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", f'{{"{OPTION}": "true"}}')
    batch = 1024 if where == "configuration" else 1088  # the same text is not logged again
    x, y = data(batch)
    with caplog.at_level(logging.WARNING, "ipu"):
        kit.ipu_model(lambda: wide(kit)).fit(x, y, batch_size=batch, verbose=0)
    assert any(OPTION in record.getMessage() and "bytes over" in record.getMessage() for record in caplog.records)


@keras3_only
def test_the_environment_is_stronger_than_the_configuration(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(**{OPTION: "true"})
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", f'{{"{OPTION}": "false"}}')
    x, y = data(1024)
    with pytest.raises(OutOfTileMemory):
        kit.ipu_model(lambda: wide(kit)).fit(x, y, batch_size=1024, verbose=0)


@keras3_only
@pytest.mark.parametrize("text", ["{", "[]", f'{{"{OPTION}": "perhaps"}}', '{"debug.allowOutOfMemry": "true"}'])
def test_options_that_are_none(kit: Kit, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", text)
    x, y = data(1024)
    with pytest.raises(ConfigurationError, match="Expected"):
        kit.ipu_model(lambda: wide(kit)).fit(x, y, batch_size=1024, verbose=0)


def test_offloaded_state_of_the_optimizer_is_in_the_estimate(kit: Kit) -> None:
    from keras_ext.chip import chip_estimate

    configure(0)
    x, y = data(64)

    def estimate(**arguments: Any) -> Estimate:
        model = kit.ipu_model(lambda: wide(kit), steps_per_execution=2)
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=2, **arguments)
        model.fit(x, y, batch_size=32, verbose=0)
        return chip_estimate(model)

    here, there = estimate(offload_weight_update_variables=False), estimate()
    slots = {t.name: t.bytes for t in here.liveness if t.category == OPTIMIZER_STATE and " slot of " in t.name}
    assert sum(slots.values()) == 4 * (FEATURES * WIDTH + WIDTH + WIDTH * 64 + 64 + 64 * 3 + 3)
    offloaded = {name: size for name, size in slots.items() if size >= 128}
    assert there.remote.bytes == {OPTIMIZER_STATE_VARIABLES: sum(offloaded.values())}
    # Those in remote memory come from the host without buffers on the tiles.
    assert not [t.name for t in there.liveness if " slot of " in t.name and t.category != OPTIMIZER_STATE]
    freed = here.memory.always_live["variables"] - there.memory.always_live["variables"]
    assert freed == sum(offloaded.values())
    assert there.exchange > here.exchange and there.cycles > here.cycles
    assert there.tiles.always_live_bytes.sum() < here.tiles.always_live_bytes.sum()


def deep(kit: Kit) -> Any:
    layers = kit.keras.layers
    hidden = [layers.Dense(256, "relu", name=f"hidden_{number}") for number in range(4)]
    return kit.keras.Sequential([layers.Input((256,)), *hidden, layers.Dense(3, "softmax")])


def pipelined(kit: Kit, ipus: int, batch: int) -> Any:
    config = IPUConfig()
    config.auto_select_ipus, config.ipu_model.tiles_per_ipu = ipus, 2
    config.configure_ipu_system()
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(8 * batch, 256)).astype(np.float32), generator.integers(0, 3, 8 * batch)
    model = kit.ipu_model(lambda: deep(kit), steps_per_execution=8)
    if ipus > 1:
        model.set_pipeline_stage_assignment([min(number, ipus - 1) for number in range(5)])
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=8)
    model.fit(x, y, batch_size=batch, verbose=0)
    return model


def test_a_pipeline_is_checked_on_each_of_its_ipus(kit: Kit) -> None:
    with pytest.raises(OutOfTileMemory) as raised:
        pipelined(kit, 1, 8)
    assert raised.value.estimate.pipeline is None
    from keras_ext.chip import chip_estimate

    found = chip_estimate(pipelined(kit, 4, 8))
    assert found.fits and found.pipeline is not None


@keras3_only
def test_a_pipeline_that_does_not_fit_says_so_too(kit: Kit) -> None:
    with pytest.raises(
        OutOfTileMemory, match=r"(?s)on tile \d of IPU \d \(stages .*bytes over.*plan_pipeline"
    ) as raised:
        pipelined(kit, 4, 512)
    assert raised.value.estimate.pipeline is not None


@keras3_only
def test_replicas_of_a_function_are_accounted_for_one_by_one(kit: Kit) -> None:
    """Four replicas of a program that nearly fills one chip fit on four chips."""
    import tensorflow as tf

    config = IPUConfig()
    config.auto_select_ipus = 4
    config.ipu_model.tiles_per_ipu = 2
    config.configure_ipu_system()
    strategy = IPUStrategy()

    @tf.function(jit_compile=True)
    def step(x: tf.Tensor) -> tf.Tensor:
        from ipu.cross_replica_ops import cross_replica_sum

        return cross_replica_sum(tf.reduce_sum(tf.tanh(x)))

    with strategy.scope():
        result = strategy.run(step, args=[np.ones((100, 1000), np.float32)])
    assert np.isfinite(float(result))


def test_shards_have_the_memory_of_their_chips() -> None:
    """Two products whose weights two tiles cannot hold, but four can."""
    config = IPUConfig()
    config.auto_select_ipus, config.ipu_model.tiles_per_ipu = 2, 2
    config.configure_ipu_system()
    with IPUStrategy().scope():
        weights = [tf.Variable(tf.zeros((420, 420))) for _ in range(2)]

    def run(shards: int) -> Any:
        def function(x: tf.Tensor) -> tf.Tensor:
            for number, weight in enumerate(weights):
                with ipu.scopes.ipu_shard(number % shards):
                    x = x @ weight
            return x

        return tf.distribute.get_strategy().run(tf.function(function, jit_compile=True), (tf.ones((1, 420)),))

    with IPUStrategy().scope():
        with pytest.raises(OutOfTileMemory):
            run(1)
        np.testing.assert_array_equal(run(2), np.zeros((1, 420)))
