"""Arrays of dynamic size beside TensorFlow's kernels: XLA's lists do not grow, and would lose elements in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import UnsupportedOperation
from ipu import functional_ops, pipelining_ops
from ipu.ipu_compiler import compile as compile_program
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategy
from ipu.serving import export_single_step

v1 = tf.compat.v1
ROWS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
BEYOND = r"Expected an index below the size of a tf.TensorArray.* Received: index size \+ 0\."


def run(function: Callable[..., object]) -> list[np.ndarray]:
    with IPUStrategy().scope() as strategy:
        found = strategy.run(tf.function(function, jit_compile=True), [tf.constant(ROWS)])
    return [np.asarray(each) for each in tf.nest.flatten(found)]


def plain(function: Callable[..., object]) -> list[np.ndarray]:
    return [np.asarray(each) for each in tf.nest.flatten(tf.function(function)(tf.constant(ROWS)))]


def with_gradient(function: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], object]:
    def both(rows: tf.Tensor) -> object:
        with tf.GradientTape() as tape:
            tape.watch(rows)
            made = function(rows)
            loss = tf.reduce_sum(made * made * tf.reshape(tf.range(1.0, tf.size(made) + 1), tf.shape(made)))
        return made, tape.gradient(loss, rows)

    return both


def in_loop(rows: tf.Tensor, size: int) -> tf.Tensor:
    array = tf.TensorArray(tf.float32, size, dynamic_size=True, element_shape=[3])
    loop = tf.while_loop(
        lambda k, _: k < 5, lambda k, a: (k + 1, a.write(k, rows[k] * 2)), (0, array), maximum_iterations=5
    )
    return tf.ensure_shape(loop[1].stack(), [size, 3])


@pytest.mark.parametrize("seed", range(6))
def test_arrays_grow_where_index_and_size_are_known(seed: int) -> None:
    generator = np.random.default_rng(seed)
    size, first = int(generator.integers(0, 4)), int(generator.integers(0, 3))
    places = [int(each) for each in generator.integers(0, 7, size=4)]

    def written(rows: tf.Tensor) -> tf.Tensor:
        array = tf.TensorArray(tf.float32, size, dynamic_size=True, clear_after_read=False, element_shape=[3])
        array = array.unstack(rows[:first]) if first else array
        for number, place in enumerate(places):
            array = array.write(place, rows[number] * (number + 1))
        assert array.size() is not None
        return array.stack()

    for a, b in zip(run(with_gradient(written)), plain(with_gradient(written)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_list_grows_after_a_loop_that_fills_it() -> None:
    def written(rows: tf.Tensor) -> tf.Tensor:
        array = tf.TensorArray(tf.float32, 2, dynamic_size=True, element_shape=[3])
        array = tf.while_loop(
            lambda k, _: k < 2, lambda k, a: (k + 1, a.write(k, rows[k])), (0, array), maximum_iterations=2
        )[1]
        return array.write(3, rows[4]).stack()

    for a, b in zip(run(with_gradient(written)), plain(with_gradient(written)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_arrays_in_loops_keep_their_size() -> None:
    for a, b in zip(*(way(with_gradient(lambda x: in_loop(x, 5))) for way in (run, plain)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("size", [0, 1, 4])
def test_arrays_that_grow_in_loops_raise(size: int) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=BEYOND):
        run(lambda rows: in_loop(rows, size))
    if size:  # XLA refuses to read an element of an empty list, as the gradient does
        with pytest.raises(tf.errors.InvalidArgumentError, match=BEYOND):
            run(with_gradient(lambda rows: in_loop(rows, size)))


def test_programs_of_version_1_raise() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        program = compile_program(lambda: in_loop(tf.constant(ROWS), 4))
        with pytest.raises(tf.errors.InvalidArgumentError, match=BEYOND):
            session.run(program)


def test_outlined_functions_check_arrays() -> None:
    np.testing.assert_array_equal(run(functional_ops.outlined_function(lambda rows: in_loop(rows, 5)))[0], ROWS * 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=BEYOND):
        run(functional_ops.outlined_function(lambda rows: in_loop(rows, 4)))


def test_pipelines_and_exports_refuse_arrays_that_may_grow(tmp_path: Path) -> None:
    infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors(ROWS).repeat())
    stages = [lambda rows: in_loop(rows, 5), lambda rows: rows]
    with pytest.raises(UnsupportedOperation, match="dynamic_size=False in a loop of a pipeline"):
        run(lambda _: pipelining_ops.pipeline(stages, 4, infeed_queue=infeed, outfeed_queue=IPUOutfeedQueue()) or 0)
    step = tf.function(lambda rows: in_loop(rows, 5))
    with pytest.raises(UnsupportedOperation, match="dynamic_size=False in a loop of an exported program"):
        export_single_step(step, str(tmp_path / "model"), 2, [tf.TensorSpec([5, 3])])
