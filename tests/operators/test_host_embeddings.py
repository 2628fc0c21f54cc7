"""Host embeddings against the same table in NumPy: look-ups, updates of rows in place, memory of every kind."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import HostFunctionError, UnsupportedOperation
from engine.profile.streams import host_bytes
from ipu._internal.compiler.program import TracedProgram, use_definitions
from ipu._internal.compiler.trace import trace_step
from ipu.ipu_strategy import IPUStrategy
from tests.strategy.helpers import replicas

ops = ipu.embedding_ops
RANDOM = np.random.default_rng(5)
ROWS, WIDTH = 50, 7
TABLE = RANDOM.normal(size=(ROWS, WIDTH)).astype(np.float32)
IDS = RANDOM.integers(0, ROWS, (6, 2, 4)).astype(np.int32)
IDS[:, 0, 0] = IDS[:, 1, 1]  # twice in each batch
RATE = np.float32(0.125)


def embedding(table: Any = TABLE, spec: Any = None, name: str = "table") -> Any:
    initial = tf.constant_initializer(np.asarray(table))
    return ops.create_host_embedding(name, table.shape, table.dtype, optimizer_spec=spec, initializer=initial)


def training(looked_up: Any) -> Any:
    """A step that returns the loss, half of the sum of squares, whose gradients are the rows themselves."""

    @tf.function(jit_compile=True)
    def step(ids: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            rows = looked_up.lookup(ids)
            loss = tf.reduce_sum(tf.cast(rows, tf.float32) ** 2) / 2
        tape.gradient(loss, [rows])
        return loss

    return step


def updated(table: np.ndarray, batches: np.ndarray, together: int = 1) -> np.ndarray:
    """The table after an update for each `together` of these batches."""
    table = table.copy()
    for first in range(0, len(batches) - together + 1, together):
        ids = batches[first : first + together].reshape(-1)
        np.subtract.at(table, ids, (RATE * table[ids]).astype(table.dtype))
    return table


def run(step: Any, *batches: np.ndarray) -> list[Any]:
    return [IPUStrategy().run(step, (tf.constant(ids),)) for ids in batches]


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_rows_are_updated_in_place(dtype: Any) -> None:
    table = TABLE.astype(dtype)
    made = embedding(table, ops.HostEmbeddingOptimizerSpec(RATE))
    variable, step = made.get_embedding_tensor(), training(made)
    before = variable.read_value()
    with made.register():
        losses = run(step, *IDS)
    tolerance = 1e-6 if dtype != np.float16 else 4e-3
    np.testing.assert_allclose(variable.numpy(), updated(table, IDS), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(losses[0], (table[IDS[0]].astype("f") ** 2).sum() / 2, rtol=1e-3)
    np.testing.assert_array_equal(before, table)
    variable.assign(table)  # another value, in other memory
    with made.register():
        run(step, IDS[0])
    np.testing.assert_allclose(variable.numpy(), updated(table, IDS[:1]), rtol=tolerance, atol=tolerance)


def test_gradients_are_accumulated_on_all_replicas() -> None:
    replicas(2)
    made = embedding(spec=ops.HostEmbeddingSGDGAOptimizerSpec(RATE, 3))
    assert made._spec.get_accumulation_factor() == 3
    step = training(made)
    with made.register():
        run(step, *IDS)
        np.testing.assert_allclose(made.get_embedding_tensor(), updated(TABLE, np.repeat(IDS, 2, 0), 6), rtol=1e-6)
        run(step, IDS[0])
    with made.register():  # forgets the incomplete update
        run(step, *IDS[:2])
    np.testing.assert_allclose(made.get_embedding_tensor(), updated(TABLE, np.repeat(IDS, 2, 0), 6), rtol=1e-6)


def test_definitions_do_the_same() -> None:
    made = embedding(spec=ops.HostEmbeddingSGDGAOptimizerSpec(RATE, 3))
    step = training(made)
    with use_definitions(), made.register():
        run(step, *IDS)
    np.testing.assert_allclose(made.get_embedding_tensor(), updated(TABLE, IDS, 3), rtol=1e-6)


def test_a_file_is_a_table(tmp_path: Path) -> None:
    table = np.memmap(tmp_path / "table", np.float32, "w+", shape=(ROWS, WIDTH))
    table[:] = TABLE
    made = ops.HostEmbedding("file", table, "ENCODING", ops.HostEmbeddingOptimizerSpec(RATE))
    assert made.get_embedding_tensor() is table
    with made.register():
        run(training(made), *IDS)
    np.testing.assert_allclose(
        np.fromfile(tmp_path / "table", np.float32).reshape(table.shape), updated(TABLE, IDS), rtol=1e-6
    )
    read_only = np.memmap(tmp_path / "table", np.float32, "r", shape=(ROWS, WIDTH))
    with pytest.raises(ValueError, match="writable"):
        ops.HostEmbedding("file", read_only, optimizer_spec=ops.HostEmbeddingOptimizerSpec(RATE))
    made = ops.HostEmbedding("file", read_only)
    with made.register():
        (rows,) = run(tf.function(made.lookup, jit_compile=True), IDS[0].astype(np.int64))
    np.testing.assert_array_equal(rows, read_only[IDS[0]])


def test_the_cost_report_counts_rows_and_gradients_as_transfers() -> None:
    made = embedding(spec=ops.HostEmbeddingOptimizerSpec(RATE))
    traced = trace_step(training(made), [tf.TensorSpec(IDS[0].shape, tf.int32)])
    program = TracedProgram(traced).engine_program
    indices, rows = IDS[0].nbytes, IDS[0].size * WIDTH * 4
    assert host_bytes(program) == (
        indices + rows,
        2 * indices + rows + 4,
    )  # the ids, the rows that are looked up, both for two calls, and the loss


def test_indices_are_clipped_or_checked() -> None:
    made = embedding()
    clipped = tf.function(made.lookup, jit_compile=True)
    checked = tf.function(lambda ids: made.lookup(ids, clip_indices=False), jit_compile=True)
    with made.register():
        (rows,) = run(clipped, np.int32([-3, ROWS, 7]))
        np.testing.assert_array_equal(rows, TABLE[[0, ROWS - 1, 7]])
        (rows,) = run(clipped, np.uint8([255, 7]))
        np.testing.assert_array_equal(rows, TABLE[[ROWS - 1, 7]])
        for wrong in (-1, ROWS):
            with pytest.raises(HostFunctionError, match=rf"Received: {wrong} at position 1"):
                run(checked, np.int32([3, wrong]))
        np.testing.assert_array_equal(run(checked, np.int32([3, 0]))[0], TABLE[[3, 0]])


@pytest.mark.parametrize("in_scope", [True, False])
def test_a_program_with_look_ups_must_not_use_the_variable(in_scope: bool) -> None:
    with IPUStrategy().scope() if in_scope else contextlib.nullcontext():
        variable, other = tf.Variable(TABLE), tf.Variable(TABLE)
    made = ops.HostEmbedding("table", variable, optimizer_spec=ops.HostEmbeddingOptimizerSpec(RATE))
    step = training(made).python_function

    def program(used: tf.Variable, assigns: bool) -> Any:
        def both(ids: tf.Tensor) -> tf.Tensor:
            if assigns:
                used.assign_sub(tf.ones_like(used))
            return step(ids) + tf.reduce_sum(used)

        return tf.function(both, jit_compile=True)

    with made.register():
        for assigns in (False, True):
            with pytest.raises(ValueError, match="'table' to leave its variable alone.*embedding_lookup"):
                run(program(variable, assigns), IDS[0])
            run(program(other, assigns), IDS[int(assigns)])
        np.testing.assert_allclose(run(tf.function(lambda ids: variable + 0, jit_compile=True), IDS[0])[0], variable)
    np.testing.assert_allclose(variable, updated(TABLE, IDS[:2]), rtol=1e-6)


def test_wrong_uses_are_errors() -> None:
    made = embedding(spec=ops.HostEmbeddingOptimizerSpec(RATE))
    step = training(made)
    for _ in range(2):
        with pytest.raises(tf.errors.FailedPreconditionError, match="'table' to be registered"):
            run(step, IDS[0])
    with pytest.raises(NotImplementedError, match="register"):
        made(3)
    with pytest.raises(RuntimeError, match="inside a tf.function"):
        made.lookup(IDS[0])
    with pytest.raises(TypeError, match="integers"):
        made.lookup([0.5])
    with pytest.raises(ValueError, match="TOKEN, ENCODING"):
        ops.HostEmbedding("table", TABLE, "ROWS")
    with pytest.raises(ValueError, match=r"\[tokens, encoding\]"):
        ops.HostEmbedding("table", TABLE[0])
    with pytest.raises(ValueError, match="Nearest: float32"):
        ops.HostEmbedding("table", IDS[0], optimizer_spec=ops.HostEmbeddingOptimizerSpec(RATE))
    with pytest.raises(ValueError, match="np.memmap"):
        ops.HostEmbedding("table", tf.constant(TABLE))
    with pytest.raises(ValueError, match="one of SGD"):
        ops.HostEmbeddingOptimizerSpec(RATE, "Adam")
    with pytest.raises(ValueError, match="accumulation_factor"):
        ops.HostEmbeddingSGDGAOptimizerSpec(RATE, 0)


def test_a_spec_registers_a_table_by_itself() -> None:
    spec, table = ops.HostEmbeddingOptimizerSpec(RATE), tf.Variable(TABLE)
    spec.create_register_instruction(table, [], "own")
    step = tf.function(lambda ids: spec.create_lookup_instruction(table, ids, [], "TOKEN", "own"), jit_compile=True)
    np.testing.assert_array_equal(run(step, IDS[0])[0], TABLE[IDS[0]])
    spec.create_deregister_instruction(table, [], "own")
    with pytest.raises(ValueError, match="'own' to be registered"):
        spec.create_deregister_instruction(table, [], "own")


@pytest.mark.parametrize("place", ["loop", "branch"])
def test_gradients_of_loops_are_taken_inside(place: str) -> None:
    made = embedding(spec=ops.HostEmbeddingOptimizerSpec(RATE))

    def loss(ids: tf.Tensor, inside: bool) -> tf.Tensor:
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(made.lookup(ids))
        if inside:
            tape.gradient(total, tape.watched_variables())
        return total

    def repeated(ids: tf.Tensor, inside: bool) -> tf.Tensor:
        if place == "branch":
            return tf.cond(ids[0, 0] >= 0, lambda: loss(ids, inside), lambda: 0.0)
        return tf.while_loop(
            lambda k, _: k < 2, lambda k, total: (k + 1, total + loss(ids, inside)), (0, 0.0), maximum_iterations=2
        )[1]

    def outside(ids: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            total = repeated(ids, False)
        tape.gradient(total, tape.watched_variables())
        return total

    with made.register():
        with pytest.raises(UnsupportedOperation, match="Take the gradient inside the body"):
            run(tf.function(outside, jit_compile=True), IDS[0])
        run(tf.function(lambda ids: repeated(ids, True), jit_compile=True), IDS[0])
    expected = TABLE.copy()
    np.subtract.at(expected, IDS[0].reshape(-1), RATE * (1 if place == "branch" else 2))
    np.testing.assert_allclose(made.get_embedding_tensor().numpy(), expected, rtol=1e-6)
