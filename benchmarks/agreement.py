"""A check that all ways train alike: losses of some steps on one batch from equal weights, without dropout and noise.

python -m benchmarks.agreement [--steps N] [--ways WAY ...] [WORKLOAD ...]

The check fails if a loss differs from that of Keras on TensorFlow by more than 0.2 % of the first loss. Only
programs that compute the same can be compared.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
WAYS = ("keras", "ipu", "jax", "torch")
MODULES = {"ipu": "engine"}
MOST = 0.002


def losses(name: str, way: str, steps: int) -> list[float]:
    """The losses before each step. The process must have imported Keras with the way's backend."""
    import keras

    from benchmarks import models
    from benchmarks.workloads import EVERY

    keras.random.normal = lambda shape, **_: keras.ops.zeros(shape)
    workload = EVERY[name]
    inputs, labels = workload.data(np.random.default_rng(0), workload.batch)
    if way in ("keras", "ipu"):
        from benchmarks.rivals.keras_fit import loss_of, scope_of

        with scope_of(way):
            model = prepared(getattr(models, workload.model)(*workload.arguments))
            model.compile(workload.optimizer, loss_of(workload), jit_compile=False)
        return model.fit(inputs, labels, workload.batch, epochs=steps, shuffle=False, verbose=0).history["loss"]
    model = prepared(getattr(models, workload.model)(*workload.arguments))
    if way == "jax":
        import jax

        from benchmarks.rivals.jax_steps import stepping as jax_stepping

        step, state = jax_stepping(workload, model)
        step, found = jax.jit(step), []
        for _ in range(steps):
            state, value = step(state, inputs, labels)
            found.append(float(value))
        return found
    import torch

    from benchmarks.rivals.torch_steps import stepping as torch_stepping

    torch.randn_like = torch.zeros_like
    trained = torch_stepping(workload, model, False)
    return [float(trained(inputs, labels).detach()) for _ in range(steps)]


def prepared(model: Any) -> Any:
    """The model with weights that are the same on any backend, and without dropout."""
    generator = np.random.default_rng(1)
    for variable in model.trainable_variables:
        if len(variable.shape) > 1:
            scale = np.prod(variable.shape[:-1]) ** -0.5
            variable.assign(generator.normal(0, scale, variable.shape).astype(np.float32))
    for layer in model.layers:
        if hasattr(layer, "rate"):
            layer.rate = 0.0
    return model


def main() -> None:
    """Read the command line, train each way in a process of its own, print; exit with 1 if losses differ."""
    from benchmarks.workloads import WORKLOADS

    names = [each.name for each in WORKLOADS.values() if each.kind == "fit" and each.policy == "float32"]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agreement", description="Equal losses of all ways.")
    parser.add_argument("workloads", nargs="*", default=names, metavar="WORKLOAD", help=", ".join(names))
    ways = [way for way in WAYS if importlib.util.find_spec(MODULES.get(way, way))]
    parser.add_argument("--ways", nargs="*", default=ways, help="compared with the first (default: all installed)")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps({name: losses(name, options.ways[0], options.steps) for name in options.workloads}))
        return
    found: dict[str, dict[str, list[float]]] = {}
    for way in options.ways:
        backend = way if way in ("jax", "torch") else "tensorflow"
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.agreement", "--here", "--ways", way]
        command += ["--steps", str(options.steps), "--", *options.workloads]
        env = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        ran = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True)
        found[way] = json.loads(ran.stdout.splitlines()[-1])
        print(f"{way} trained", file=sys.stderr, flush=True)
    reference, *others = options.ways
    failed = False
    for name in options.workloads:
        expected = np.array(found[reference][name])
        print(f"{name:20} {reference} " + " ".join(f"{loss:.5f}" for loss in expected))
        for way in others:
            difference = float(np.abs(np.array(found[way][name]) - expected).max() / expected[0])
            failed |= not difference <= MOST  # NaN is no agreement
            print(f"{'':20} {way} differs by {100 * difference:.4f} %")
    sys.exit(failed)


if __name__ == "__main__":
    main()
