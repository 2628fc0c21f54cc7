"""Proposals of out-of-memory errors, carried out as printed: the programs that then compile fit the chip."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest

import engine.profile.fit
import engine.profile.program_estimate
import engine.target
import ipu
from engine.errors import OutOfTileMemory
from ipu._internal.compiler import pipelining, program
from ipu.config import IPUConfig
from ipu.ipu_strategy import IPUStrategy

layers = keras.layers
ROWS = 16


class Peak(Exception):
    """Ends a `fit` before its program runs. `bytes` are those of the program's fullest tile."""

    def __init__(self, bytes_: int) -> None:
        super().__init__(bytes_)
        self.bytes = bytes_


def dense(width: int = 256, depth: int = 4, optimizer: str = "adam") -> Any:
    hidden = [layers.Dense(width, "relu") for _ in range(depth)]
    return compiled([layers.Input((width,)), *hidden, layers.Dense(3, "softmax")], optimizer)


def convolutional() -> Any:
    blocks = [
        layer
        for width in (16, 32, 48)
        for layer in (layers.Conv2D(width, 3, padding="same", activation="relu"), layers.BatchNormalization())
    ]
    ends = [layers.GlobalAveragePooling2D(), layers.Dense(3, "softmax")]
    return compiled([layers.Input((32, 32, 3)), *blocks, *ends], "sgd")


def recurrent() -> Any:
    stack = [layers.LSTM(64, return_sequences=True), layers.LSTM(64)]
    return compiled([layers.Input((20, 32)), *stack, layers.Dense(3, "softmax")], "adam")


def compiled(stack: list[Any], optimizer: str) -> Any:
    model = keras.Sequential(stack)
    model.compile(optimizer, "sparse_categorical_crossentropy")
    return model


def transformer() -> Any:
    x = inputs = layers.Input((32, 64))
    for _ in range(2):
        x = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(4, 16)(x, x)]))
        x = layers.LayerNormalization()(layers.Add()([x, layers.Dense(64)(layers.Dense(256, "gelu")(x))]))
    model = keras.Model(inputs, layers.Dense(3, "softmax")(layers.GlobalAveragePooling1D()(x)))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


MODELS: dict[str, tuple[Callable[[], Any], int]] = {
    "dense": (dense, 1024),
    "deep": (lambda: dense(128, 12, "sgd"), 2048),
    "shallow": (lambda: dense(512, 1, "sgd"), 2048),
    "wide": (lambda: dense(1024, 2), 256),
    "convolutional": (convolutional, 64),
    "recurrent": (recurrent, 256),
    "transformer": (transformer, 128),
}


@pytest.fixture
def peak_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], int]:
    """A function that calls another one, up to its first program, and returns the bytes of the fullest tile."""

    def check(checked: Any, target: Any, assumptions: Any, **_: object) -> None:
        raise Peak(engine.profile.program_estimate.measured(checked, target, assumptions).memory.memory.peak_fullest)

    def check_pipeline(estimate: Any, _: object) -> None:
        raise Peak(estimate.memory.peak_fullest)

    def peak(call: Callable[[], object]) -> int:
        with monkeypatch.context() as patch:
            patch.setattr(engine.profile.fit, "check_fit", check)
            patch.setattr(pipelining, "check_estimate", check_pipeline)
            for module in (program, pipelining):
                patch.setattr(module, "certainly_fits", lambda *_: False)
            with pytest.raises(Peak) as raised:
                call()
        return raised.value.bytes

    return peak


def configure(tiles: int) -> None:
    config = IPUConfig()
    config.ipu_model.tiles_per_ipu = tiles
    config.configure_ipu_system()


def made(name: str) -> Any:
    with IPUStrategy().scope():
        return MODELS[name][0]()


def refused(fit: Callable[[], Any], tiles: int) -> tuple[OutOfTileMemory, int]:
    """The error of a chip of at most `tiles` tiles that is too small, and the number of its tiles."""
    configure(tiles)
    try:
        fit()
    except OutOfTileMemory as error:
        return error, tiles
    return refused(fit, tiles - -(-tiles // 10))


@pytest.mark.sample(3)
@pytest.mark.parametrize("share", [0.85, 0.7, 0.55, 0.4])
@pytest.mark.parametrize("name", MODELS)
def test_each_proposal_suffices(
    name: str, share: float, peak_of: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chip has that share of the tiles that the model needs, or fewer if it needs less on that chip."""
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    batch = MODELS[name][1]
    configure(64)
    model = made(name)
    x, y = np.zeros((ROWS * batch, *model.input_shape[1:]), np.float32), np.zeros(ROWS * batch, np.int64)
    needed = peak_of(lambda: model.fit(x, y, batch_size=batch, verbose=0))
    tiles = int(share * needed * 64 / engine.target.target("ipu2").bytes_per_tile)
    error, tiles = refused(lambda: made(name).fit(x, y, batch_size=batch, verbose=0), tiles)
    names: dict[str, Any] = {"keras": keras, "ipu": ipu, "x": x, "y": y}
    try:
        for lever in (each for each in error.levers if each.fits):
            configure(tiles)
            before = [line for line in lever.how if not line.startswith("model")]
            of_chip = f"IPUConfig(); config.ipu_model.tiles_per_ipu = {tiles}"  # "or your program's own"
            exec("\n".join(before).replace("IPUConfig()", of_chip), names)
            names["model"] = made(name)
            lines = "\n".join([*lever.how[len(before) :], fit_of(lever.how, batch)])
            found = peak_of(partial(exec, lines, names))
            assert found <= error.estimate.target.bytes_per_tile, lever.what
    finally:
        keras.mixed_precision.set_global_policy("float32")


def test_a_pipeline_has_no_more_stages_than_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimizers and losses read counters and metrics in the forward pass, but are no layers."""
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    configure(4)
    with pytest.raises(OutOfTileMemory) as raised:
        made("shallow").fit(np.zeros((64, 512), np.float32), np.zeros(64), verbose=0)
    assert not [each.what for each in raised.value.levers if "over 4 IPUs" in each.what]


def fit_of(how: tuple[str, ...], batch: int) -> str:
    """The user's own line, if the proposal has none that fits the model."""
    return "" if any("fit(" in line for line in how) else f"model.fit(x, y, batch_size={batch}, verbose=0)"
