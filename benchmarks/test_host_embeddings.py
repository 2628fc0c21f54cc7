"""Milliseconds of a training step that looks up rows of 1 kB in a host embedding or a device's table, and memory.

For a table of 4 GiB in a sparse file, run
`SOFTWARE_IPU_TABLE=/path/of/a/new/file pytest benchmarks/test_host_embeddings.py`.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu import embedding_ops
from ipu.ipu_strategy import IPUStrategy

STEPS, BATCH, WIDTH = 20, 2048, 256
RATE = 0.01


def program(lookup: Any, update: Any) -> Any:
    """A program that runs STEPS steps, each on the numbers of BATCH rows."""

    def steps(ids: tf.Tensor) -> tf.Tensor:
        def step(k: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.reduce_sum(lookup(ids[k]), -1) - 1.0) ** 2)
            update(tape, loss)
            return k + 1, loss

        return tf.while_loop(lambda k, _: k < STEPS, step, (0, 0.0))[1]

    return tf.function(steps, jit_compile=True)


def on_the_host(table: Any) -> tuple[Any, Any]:
    made = embedding_ops.HostEmbedding("table", table, optimizer_spec=embedding_ops.HostEmbeddingOptimizerSpec(RATE))
    return made, program(made.lookup, lambda tape, loss: tape.gradient(loss, tape.watched_variables()))


@pytest.mark.parametrize("where", ["host", "device"])
def test_step(where: str, benchmark: Any) -> None:
    rows, strategy = 2**17, IPUStrategy()
    ids = np.random.default_rng(0).integers(0, rows, (STEPS, BATCH)).astype(np.int32)
    if where == "host":
        made, steps = on_the_host(np.zeros((rows, WIDTH), np.float32))
        made._spec.create_register_instruction(made.get_embedding_tensor(), [], "table")
    else:
        with strategy.scope():
            table = tf.Variable(tf.zeros([rows, WIDTH]))

        def update(tape: tf.GradientTape, loss: tf.Tensor) -> None:
            gradient = tape.gradient(loss, table)
            table.scatter_sub(tf.IndexedSlices(RATE * gradient.values, gradient.indices))

        steps = program(lambda ids: tf.gather(table, ids), update)
    fed = tf.constant(ids)
    strategy.run(steps, (fed,))
    taken: list[float] = []

    def timed() -> None:
        start = time.perf_counter()
        strategy.run(steps, (fed,))
        taken.append((time.perf_counter() - start) / STEPS * 1e3)

    benchmark.pedantic(timed, rounds=9)
    benchmark.extra_info["ms per step"] = round(float(np.min(taken)), 2)
    print(where, benchmark.extra_info)


@pytest.mark.skipif("SOFTWARE_IPU_TABLE" not in os.environ, reason="writes gigabytes to disk")
def test_memory_of_a_file_of_4_gib() -> None:
    path = Path(os.environ["SOFTWARE_IPU_TABLE"])
    table = np.memmap(path, np.float32, "w+", shape=(2**22, WIDTH))
    made, steps = on_the_host(table)
    random = np.random.default_rng(0)
    with made.register():
        for _ in range(4):
            ids = random.integers(0, len(table), (STEPS, BATCH)).astype(np.int32)
            IPUStrategy().run(steps, (tf.constant(ids),))
    resident = int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1])
    mappings = re.split(r"\n(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text())
    pages = sum(int(re.search(r"Rss:\s+(\d+)", each)[1]) for each in mappings if str(path) in each)
    print(
        f"{table.nbytes >> 20} MiB; its pages in memory: {pages >> 10} MiB, all others: {(resident - pages) >> 10} MiB"
    )
    assert resident - pages < 1 << 20  # kB
