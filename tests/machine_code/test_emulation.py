"""Kernels, loops, programs, exported models and the server on an emulated ARM processor."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest

from tests import exploring
from tests.interrupting import HANGS_SECONDS, PATIENCE_SECONDS, wait_for
from tests.machine_code import emulation

TOLERANCE = 1e-6
BATCH = 4
FILES = (
    *(f"codelets/test_{name}.py" for name in ("contract", "contract_half", "contract_plain")),
    *(f"codelets/test_{name}.py" for name in ("narrow_products", "cook_toom", "gather", "scatter")),
    *(f"codelets/test_{name}.py" for name in ("pool_gradient", "overlapping_pool_gradient")),
    *(f"emit/test_{name}.py" for name in ("elementwise", "reductions", "contraction", "half_conversions", "accuracy")),
    *(f"lower/test_{name}.py" for name in ("convolution", "depthwise", "few_features", "windows", "sort", "random")),
    *(f"lower/test_{name}.py" for name in ("factorizations", "fourier", "indexing")),
    *(f"program/test_{name}.py" for name in ("winograd", "winograd_wide")),
    *(f"runtime/test_{name}.py" for name in ("executor", "native_threads", "waiting", "rings")),
)
MODELS = """
import sys
from pathlib import Path
import numpy as np
import engine
from engine.machine_code import processor
assert processor.ARM
for folder in sys.argv[2:]:
    program = next((Path(folder) / "assets").glob("*.popef"))
    loaded = engine.load(program, objects=f"{folder}.objects" if sys.argv[1] == "bare" else None)
    x, y = (np.load(f"{folder}.{name}.npy") for name in "xy")
    for _ in range(2):
        np.testing.assert_allclose(loaded.run([x])[0], y, rtol=TOLERANCE, atol=TOLERANCE)
assert processor.registers() == 32
if sys.argv[1] == "bare":
    assert not {"numba", "llvmlite"} & sys.modules.keys()
""".replace("TOLERANCE", str(TOLERANCE))
pytestmark = [
    pytest.mark.explore,
    pytest.mark.slow,
    pytest.mark.skipif(bool(emulation.missing()), reason=f"no ARM processor is emulated: {emulation.missing()}"),
]


@pytest.fixture(scope="session")
def folder() -> Path:
    """A prepared emulation, kept for later runs."""
    made = Path(tempfile.gettempdir()) / "software-ipu-arm"
    emulation.prepare(made)
    return made


def emulated(folder: Path, *arguments: str, workers: int = 2, packages: str = "site") -> str:
    """Runs Python in the emulation; returns what it printed."""
    with tempfile.NamedTemporaryFile("r") as log:
        with emulation.run(folder, arguments, workers, packages, Path(log.name)) as process:
            try:
                process.wait(4 * HANGS_SECONDS)
            finally:
                process.kill()
        printed = log.read()
    assert process.returncode == 0, printed[-6000:]
    return printed


@pytest.mark.parametrize("file", FILES)
def test_files(folder: Path, file: str) -> None:
    printed = emulated(folder, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/{file}")
    assert re.search(r"[1-9]\d* passed", printed), printed


@pytest.mark.parametrize("workers", [1, 2])
def test_random_programs(folder: Path, workers: int) -> None:
    seed = 48_000 if exploring.seed() is None else exploring.seed()
    emulated(folder, "-m", "tests.fuzz.mutants", "--seed", f"{seed}", "--count", "60", workers=workers)


def test_objects_of_wheels_are_used(folder: Path) -> None:
    code = "from engine.machine_code import installed_objects as i; print(len(i._archive().namelist()))"
    assert int(emulated(folder, "-c", code)) > 40


def stacks(layers: Any) -> dict[str, Callable[[], list[Any]]]:
    """Functions that make the layers of an MLP, a CNN and an LSTM."""
    return {
        "mlp": lambda: [
            *(layers.Input((20,)), layers.Dense(48, "relu"), layers.Dense(32, "gelu")),
            layers.Dense(10, "softmax"),
        ],
        "cnn": lambda: [
            *(layers.Input((16, 16, 3)), layers.Conv2D(8, 3, padding="same"), layers.BatchNormalization()),
            *(layers.ReLU(), layers.MaxPooling2D(), layers.DepthwiseConv2D(3, padding="same")),
            *(layers.Conv2D(16, 3, padding="same"), layers.GlobalAveragePooling2D(), layers.Dense(5, "softmax")),
        ],
        "lstm": lambda: [
            *(layers.Input((7, 6)), layers.LSTM(12, return_sequences=True), layers.LSTM(9)),
            layers.Dense(4),
        ],
    }


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Models exported here; beside each its objects for ARM, a batch, and what plain Keras predicts for that."""
    import keras

    from ipu.ipu_strategy import IPUStrategy

    rng, place, found = np.random.default_rng(0), tmp_path_factory.mktemp("exported"), []
    for name, stack in stacks(keras.layers).items():
        folder = place / name
        with IPUStrategy().scope():
            model = keras.Sequential(stack())
            model.compile()
        model.export_for_ipu_serving(str(folder), batch_size=BATCH)
        plain = keras.Sequential(stack())
        plain.set_weights(model.get_weights())
        x = rng.normal(size=(BATCH, *model.input_shape[1:])).astype(np.float32)
        np.save(f"{folder}.x.npy", x)
        np.save(f"{folder}.y.npy", plain.predict(x, verbose=0))
        environment = {**os.environ, **emulation.CROSS, "PYTHONPATH": os.pathsep.join(sys.path)}
        ahead = [sys.executable, "-m", "engine.aot", str(folder), "--output", f"{folder}.objects"]
        subprocess.run(ahead, env=environment, check=True, timeout=HANGS_SECONDS)
        found.append(folder)
    return found


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("packages", ["site", "bare"])
def test_exported_models(folder: Path, exported: list[Path], packages: str, workers: int) -> None:
    """Compiled there, and with objects that were compiled here, without a compiler there."""
    emulated(folder, "-c", MODELS, packages, *map(str, exported), workers=workers, packages=packages)


def test_the_server(folder: Path, exported: list[Path]) -> None:
    model = exported[0]
    serving = re.compile(r"Serving (http://127\.0\.0\.1:\d+/v1/models/mlp), version")
    log = model.parent / "log"
    with emulation.run(folder, ["-m", "engine.serving", str(model), "--port", "0"], log=log) as process:
        try:
            wait_for(lambda: serving.search(log.read_text()) is not None or process.poll() is not None)
            found = serving.search(log.read_text())
            assert found is not None, log.read_text()
            body = json.dumps({"instances": np.load(f"{model}.x.npy").tolist()}).encode()
            with urlopen(f"{found[1]}:predict", body, timeout=PATIENCE_SECONDS) as answer:
                predictions = json.load(answer)["predictions"]
            np.testing.assert_allclose(predictions, np.load(f"{model}.y.npy"), rtol=TOLERANCE, atol=TOLERANCE)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()
