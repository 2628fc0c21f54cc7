"""What importing the project does not import: each module loads when something needs it."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.interrupting import HANGS_SECONDS

PREFIXES = ("numba", "llvmlite", "engine", "keras_ext", "ipu")
SOURCE = """
import sys
import tensorflow, keras
before = set(sys.modules)

def new():
    return " ".join(sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in {prefixes}))

from tensorflow.python import ipu
print(new())
ipu.config.IPUConfig()
ipu.utils
print(new())
with ipu.ipu_strategy.IPUStrategy().scope():
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
print(new())
"""


def loaded() -> list[set[str]]:
    """Modules after importing `ipu`, after configuring, and after making a model."""
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", SOURCE.replace("{prefixes}", repr(PREFIXES))],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": path},
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [set(line.split()) for line in done.stdout.splitlines()]


def roots(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_modules_load_when_they_are_needed() -> None:
    imported, configured, made = loaded()
    global_step = ("ipu._internal", "ipu._internal.graphs", "ipu._internal.graphs.global_step")
    assert imported == {"ipu", *global_step}
    assert roots(configured) <= {"ipu", "engine"} and not any(
        name.startswith("ipu._internal.compiler") for name in configured
    )
    assert not any(name.startswith(("engine.lower", "engine.passes", "engine.runtime")) for name in configured)
    assert not roots(made) & {"numba", "llvmlite"}
    heavy = {"engine.compile", "engine.evaluate", "engine.lower", "engine.emit", "engine.runtime.executable"}
    assert not made & heavy
