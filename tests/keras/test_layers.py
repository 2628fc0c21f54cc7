"""The layers of `keras.ipu.layers` and `tf_keras.ipu.layers`: their common behaviour."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from keras_ext.layers import DEFINITIONS
from tests.interrupting import HANGS_SECONDS
from tests.keras.helpers import CLASSES, FEATURES, Kit, both_frameworks, data

PAGE = Path(__file__).parents[2] / "docs" / "layers.md"


def model_of_all(kit: Kit) -> Any:
    """Builds a model [N, 5] -> [N, 3] with each layer that takes the result of a Dense."""
    keras, layers = kit.keras, kit.keras.ipu.layers
    inputs = keras.Input((FEATURES,))
    x = keras.layers.Dense(8)(inputs)
    x = layers.LayerNormalization(dtype=tf.float32, beta_initializer="ones")(x)
    x = layers.Dropout(0.5, noise_shape=(None, 8), seed=(3, -4), seed_modifier=9)(x)
    x = layers.Dropout(0.25)(x)
    x = layers.AssumeEqualAcrossReplicas(inplace=True)(x)
    x = layers.CaptureUpstreamGradients("normalised")(layers.RecomputationCheckpoint()(x))
    x = layers.GroupNormalization(groups=4, gamma_initializer="uniform")(x)
    x = layers.InstanceNormalization(center=False, epsilon=0.1)(layers.SerialDense(6, 3, "kernel_rows", "tanh")(x))
    x = layers.PopnnLSTM(5, dropout=0.1, return_sequences=True, seed=1)(keras.layers.Reshape((2, 3))(x))
    x = layers.CaptureActivationGradients(layers.GRU(6, activation="softmax", dropout=0.1, dropout_seed=(1, 2)))(x)
    rows = layers.Embedding(4, 3, serialization_factor=2)(inputs)  # zeros for indices out of range
    x = keras.layers.Concatenate()([x, keras.layers.Flatten()(rows)])
    return keras.Model(inputs, keras.layers.Dense(CLASSES, "softmax")(x))


@both_frameworks
def test_classes(kit: Kit) -> None:
    layers = kit.keras.ipu.layers
    assert set(dir(layers)) == set(DEFINITIONS)
    for name in DEFINITIONS:
        kind = getattr(layers, name)
        assert issubclass(kind, kit.keras.layers.Layer) and kind.__doc__
        assert kind.__module__ == f"{kit.keras.__name__}.ipu.layers"
        assert kit.keras.saving.get_registered_name(kind) == f"ipu>{kind.__name__}"


def test_page(kit: Kit) -> None:
    """docs/layers.md has a row for every layer, loss and optimizer, and for nothing else."""
    rows = re.findall(r"^\| `(\w+\.\w+)` \|", PAGE.read_text(), re.MULTILINE)
    modules = ("layers", "losses", "optimizers")
    assert rows == [f"{module}.{name}" for module in modules for name in dir(getattr(kit.keras.ipu, module))]


@both_frameworks
def test_configurations(kit: Kit) -> None:
    for layer in model_of_all(kit).layers:
        config = layer.get_config()
        assert type(layer).from_config(config).get_config() == config


FRESH = """
import sys
import numpy as np
import {framework} as keras
from ipu.ipu_strategy import IPUStrategy
with IPUStrategy().scope():
    for path in sys.argv[2:]:
        model = keras.models.load_model(path, compile=False)
        assert {{type(layer).__module__ for layer in model.layers}} & {{"{framework}.ipu.layers"}}
        arrays = np.load(sys.argv[1])
        np.testing.assert_allclose(model.predict(arrays["x"], verbose=0), arrays["expected"], rtol=2e-5, atol=2e-5)
"""


@pytest.mark.explore
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_files_are_read_by_a_process_that_imports_the_strategy_only(kit: Kit, tmp_path: Path) -> None:
    x, _ = data()
    with IPUStrategy().scope():
        model = kit.compiled(model_of_all(kit))
        np.savez(tmp_path / "arrays.npz", x=x, expected=model.predict(x, verbose=0))
    paths = [str(tmp_path / name) for name in ("model.keras", "model.h5", *([] if kit.is_keras3 else ["folder"]))]
    for path in paths:
        model.save(path)
    source = FRESH.format(framework=kit.keras.__name__)
    command = [sys.executable, "-c", source, str(tmp_path / "arrays.npz"), *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_SECONDS, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_training_in_float16(kit: Kit) -> None:
    """Layers without a dtype of their own compute in the policy's; normalisation in float32."""
    x, y = data()
    kit.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        with IPUStrategy().scope():
            model = kit.compiled(model_of_all(kit))
            losses = model.fit(x, y, batch_size=8, epochs=12, verbose=0).history["loss"]
        assert [layer.compute_dtype for layer in model.layers][1:4] == ["float16", "float32", "float16"]
    finally:
        kit.keras.mixed_precision.set_global_policy("float32")
    assert losses[-1] < losses[0]
