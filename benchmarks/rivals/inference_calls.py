"""A separate process that answers batches in one way.

Run it as `python -m benchmarks.rivals.inference_calls WORKLOAD WAY BATCH FOLDER`. As with `benchmarks.contender`, each
line on standard input requests a round. The first answer is kept in FOLDER.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contender import peak_memory, say
from benchmarks.workloads import WORKLOADS, Workload
from engine.runtime.threads import usable_cores

SECONDS, LEAST_CALLS = 0.3, 5
"""Least length of a round, in seconds and in calls."""

Call = Callable[[], Any]


def model_of(workload: Workload) -> Any:
    """The model, with the same weights in each process."""
    from benchmarks import models
    from benchmarks.agreement import prepared

    return prepared(getattr(models, workload.model)(*workload.arguments))


def ipu(workload: Workload, x: np.ndarray, folder: Path) -> Call:
    """A program exported for serving, run by the engine."""
    from engine import load
    from ipu.ipu_strategy import IPUStrategy

    with IPUStrategy().scope():
        model = model_of(workload)
    model.export_for_ipu_serving(str(folder / "ours"), batch_size=len(x))
    [program] = (folder / "ours" / "assets").glob("*.popef")
    loaded = load(program)
    return lambda: loaded.run([x])[0]


def tensorflow(workload: Workload, x: np.ndarray, folder: Path, jit: bool = False) -> Call:
    """A tf.function of the model, without Keras' own loop around it."""
    import tensorflow as tf

    model = model_of(workload)
    called = tf.function(lambda rows: model(rows, training=False), jit_compile=jit)
    return lambda: called(tf.constant(x)).numpy()


def onnxruntime(workload: Workload, x: np.ndarray, folder: Path) -> Call:
    """A session with all optimizations and as many threads as cores."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = usable_cores(), 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = ort.InferenceSession(exported(workload, x, folder), options, providers=["CPUExecutionProvider"])
    [name] = [each.name for each in session.get_inputs()]
    return lambda: session.run(None, {name: x})[0]


def openvino(workload: Workload, x: np.ndarray, folder: Path) -> Call:
    """A model compiled for latency, in float32, with as many threads as cores."""
    import openvino as ov

    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": usable_cores()}
    request = ov.Core().compile_model(exported(workload, x, folder), "CPU", hints).create_infer_request()
    return lambda: request.infer([x])[0].copy()


def exported(workload: Workload, x: np.ndarray, folder: Path) -> Path:
    """The model as an ONNX file for batches of this size, written by PyTorch in a process of its own."""
    path = folder / f"{len(x)}.onnx"
    if not path.exists():
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.rivals.inference_calls"]
        command += [workload.name, "export", str(len(x)), str(path)]
        environment = {**os.environ, "KERAS_BACKEND": "torch"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"Expected PyTorch to write {path}. It said: {done.stderr[-1000:]}")
    return path


def export(workload: Workload, x: np.ndarray, path: Path) -> None:
    """Writes the ONNX file."""
    import torch

    from benchmarks.rivals.torch_model import torch_model

    class Output(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = torch_model(model_of(workload))

        def forward(self, rows: Any) -> Any:
            return self.model(rows)[0]

    with torch.no_grad():
        torch.onnx.export(Output().eval(), (torch.from_numpy(x),), str(path), dynamo=False, opset_version=17)


WAYS: dict[str, Callable[..., Call]] = {
    "ipu": ipu,
    "tensorflow": tensorflow,
    "tensorflow,jit": lambda *given: tensorflow(*given, jit=True),
    "onnxruntime": onnxruntime,
    "openvino": openvino,
}


def main(name: str, way: str, batch: int, folder: Path) -> None:
    """Sets up, reports the first answer, then runs rounds until standard input ends."""
    workload = WORKLOADS[name]
    x, _ = workload.data(np.random.default_rng(0), batch)
    if way == "export":
        return export(workload, x, folder)
    before, start = peak_memory(), time.perf_counter()
    call = WAYS[way](workload, x, folder)
    np.save(folder / f"{way}.npy", call())
    say(first_step=time.perf_counter() - start, peak_memory=peak_memory() - before)
    for _ in sys.stdin:
        taken, began = [], time.process_time()
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end or len(taken) < LEAST_CALLS:
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
        processor = (time.process_time() - began) / len(taken)
        say(whole=float(np.median(taken)), steady=float(np.percentile(taken, 99)), processor=processor)
    return None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
