"""Serving an MLP: latency of one sample against tf.saved_model, then 50 clients of the REST server for a minute.

python -m benchmarks.serving [--clients N] [--seconds S] [--rounds N]

In the first part both ways alternate in one process; medians count. The benchmark fails for a wrong answer or an error,
and if the engine's latency is not at least 5 times lower.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PROMISE = 5.0
SIZES = (784, 256, 128, 10)
SERVED_BATCH = 32
PERCENTILES = (50, 90, 99, 99.9, 100)


def export(directory: Path) -> Any:
    """Export an MLP for one sample and for a server's batches; return it."""
    import keras

    from ipu.ipu_strategy import IPUStrategy

    with IPUStrategy().scope():
        hidden = [keras.layers.Dense(size, "relu") for size in SIZES[1:-1]]
        model = keras.Sequential(
            [keras.layers.Input(SIZES[:1], name="x"), *hidden, keras.layers.Dense(SIZES[-1], "softmax")]
        )
    model.export_for_ipu_serving(str(directory / "one" / "1"), batch_size=1)
    model.export_for_ipu_serving(str(directory / "mlp" / "1"), batch_size=SERVED_BATCH)
    return model


def latencies(directory: Path, rounds: int) -> float:
    """Print the latency of one sample both ways; return the ratio of TensorFlow's to the engine's.

    Raises AssertionError if the two results differ.
    """
    import tensorflow as tf

    from engine import load

    [program] = (directory / "assets").glob("*.popef")
    loaded = load(program)
    signature = tf.saved_model.load(str(directory)).signatures["serving_default"]
    sample = np.random.default_rng(0).normal(size=(1, SIZES[0])).astype(np.float32)
    ways: dict[str, Callable[[], Any]] = {
        "engine.load(path).run": lambda: loaded.run([sample])[0],
        "tf.saved_model": lambda: signature(x=tf.constant(sample))["output_0"].numpy(),
    }
    np.testing.assert_allclose(*(way() for way in ways.values()), rtol=1e-4, atol=1e-5)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            for _ in range(20):
                begin = time.perf_counter()
                way()
                times[name].append(1e6 * (time.perf_counter() - begin))
    for name, taken in times.items():
        print(f"{name:24} us: " + ", ".join(f"p{p:g} {np.percentile(taken, p):.1f}" for p in PERCENTILES))
    ours, theirs = (float(np.median(taken)) for taken in times.values())
    print(f"latency of one sample: {theirs / ours:.1f} times lower than tf.saved_model's")
    return theirs / ours


def serve(directory: Path, model: Any, clients: int, seconds: float) -> bool:
    """Print the clients' view of a server in a separate process; return whether all answers were right.

    Raises SystemExit if the server does not start.
    """
    log = directory / "log"
    command = [sys.executable, "-m", "ipu.serving", str(directory / "mlp"), "--port", "0"]
    with log.open("w") as errors, subprocess.Popen(command, stderr=errors, env=os.environ) as process:
        try:
            while not (found := re.search(r"127\.0\.0\.1:(\d+)", log.read_text())):
                if process.poll() is not None:
                    raise SystemExit(log.read_text())
                time.sleep(0.05)
            return _clients(int(found[1]), model, clients, seconds)
        finally:
            process.terminate()
            process.wait()


def _clients(port: int, model: Any, clients: int, seconds: float) -> bool:
    samples = np.random.default_rng(1).normal(size=(clients, SIZES[0])).astype(np.float32)
    expected = model.predict(samples, verbose=0)
    times: list[list[float]] = [[] for _ in range(clients)]
    failures: list[Any] = []
    end = time.perf_counter() + seconds

    def work(number: int) -> None:
        body = json.dumps({"instances": [samples[number].tolist()]})
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            while time.perf_counter() < end and len(failures) < 10:
                begin = time.perf_counter()
                connection.request("POST", "/v1/models/mlp:predict", body)
                response = connection.getresponse()
                answer = json.loads(response.read())
                times[number].append(1e3 * (time.perf_counter() - begin))
                right = response.status == 200 and np.allclose(answer["predictions"], expected[number], 1e-4, 1e-5)
                failures.extend([] if right else [answer])
        except (OSError, ValueError, http.client.HTTPException) as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = np.concatenate(times)
    print(
        f"{clients} clients, {seconds:g} s: {len(taken)} answers, {len(taken) / seconds:.0f} a second, "
        f"{len(failures)} errors; ms: " + ", ".join(f"p{p:g} {np.percentile(taken, p):.2f}" for p in PERCENTILES)
    )
    print(*failures[:3], sep="\n")
    return not failures


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description="Latency and load of serving.")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        model = export(directory)
        ratio = latencies(directory / "one" / "1", options.rounds)
        right = serve(directory, model, options.clients, options.seconds)
    sys.exit(not (right and ratio >= PROMISE))


if __name__ == "__main__":
    main()
