"""Arrays of dynamic size beside TensorFlow's kernels: XLA's lists do not grow, and would lose elements in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import UnsupportedOperation
from ipu import functional_ops, pipelining_ops
from ipu import loops as loops_of_ipu
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
    return loop[1].stack()


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


LIMITS = [(-2, 3), (1, 7), (1, 3), (0, 3), (0, 4)]


def loops(seed: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """A loop that writes one or two elements in each iteration, by counters that begin and end anywhere."""
    generator = np.random.default_rng(seed)
    first, most, scale, size, form = (int(generator.integers(*limits)) for limits in LIMITS)
    step = int(generator.choice([-2, -1, 1, 3]))
    last = first + step * (most - 1)
    offset = -scale * min(first, last)

    def going_on(k: tf.Tensor, *_: object) -> tf.Tensor:
        within = k * step < (last + step) * step
        among = (k - first) // step < most
        return [within, tf.not_equal(k, last + step), among, tf.logical_and(within, k < 99)][form]

    def body(k: tf.Tensor, array: tf.TensorArray, x: tf.Tensor) -> object:
        array = array.write(k * scale + offset, x)
        if seed % 3 == 0:
            array = tf.cond(x[0] > 0, lambda: array.write(1, x * 2), lambda: array.write(1, -x))
        elif seed % 3 == 1:
            array = array.write(tf.cast(scale * k, tf.int32) + offset + 1, x * 3)
        return k + step, array, x * 0.5

    def written(rows: tf.Tensor) -> tf.Tensor:
        array = tf.TensorArray(tf.float32, size, dynamic_size=True, element_shape=[3] if seed % 2 else None)
        start = (tf.constant(first), array, rows[0])
        grown = tf.while_loop(going_on, body, start, maximum_iterations=most + seed % 2)[1]
        return grown.write(scale * most + size + 3, rows[0]).stack()

    return written


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sample(5)
def test_arrays_grow_by_counters_of_loops(seed: int) -> None:
    for a, b in zip(run(with_gradient(loops(seed))), plain(with_gradient(loops(seed))), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def by_autograph(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    squares, sums = (tf.TensorArray(tf.float32, 0, dynamic_size=True) for _ in range(2))
    total = tf.zeros(3)
    for k in tf.range(5):
        squares = squares.write(k, rows[k] ** 2)
    for row in rows:
        total += row
        sums = sums.write(0, total)
    for k in tf.range(5, 11, 2):
        squares = squares.write(k, total)
    return squares.size(), squares.stack(), sums.stack()


def nested(rows: tf.Tensor) -> tf.Tensor:
    def outer(k: tf.Tensor, total: tf.Tensor) -> object:
        array = tf.TensorArray(tf.float32, 0, dynamic_size=True)
        array = tf.while_loop(lambda j, _: j < 4, lambda j, a: (j + 1, a.write(j, total * 0.5)), (0, array))[1]
        return k + 1, total + tf.cond(total[0] > 0, lambda: tf.reduce_sum(array.stack()), lambda: array.read(3)[0])

    return tf.while_loop(lambda k, _: k < 3, outer, (0, rows[0]))[1]


@pytest.mark.parametrize("function", [by_autograph, nested])
def test_arrays_grow_in_loops_of_any_kind(function: Callable[..., object]) -> None:
    for a, b in zip(run(function), plain(function), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sample(3)
def test_rows_are_scattered_and_gathered(seed: int) -> None:
    generator = np.random.default_rng(seed)
    size, computed, begun = int(generator.integers(6, 9)), bool(seed % 2), bool(seed % 3)
    places = generator.permutation(size if begun or computed else 5)[: int(generator.integers(1, 5)) if begun else 5]

    def moved(rows: tf.Tensor) -> tf.Tensor:
        given = tf.constant(places, tf.int32)
        given = given + tf.cast(tf.reduce_sum(rows * 0), tf.int32) if computed else given
        array = tf.TensorArray(
            tf.float32, size if computed else 0, dynamic_size=True, clear_after_read=False, element_shape=[3]
        )
        array = array.write(size - 1, rows[0]) if computed else array
        array = array.unstack(tf.concat([rows, rows, rows], 0)[:size]) if begun else array
        array = array.scatter(given, rows[: len(places)] * 2)
        return tf.concat([array.gather([places[0], places[0]]), array.gather(given), array.stack()], 0)

    for a, b in zip(run(with_gradient(moved)), plain(with_gradient(moved)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def by_values(rows: tf.Tensor, size: int) -> tf.Tensor:
    """Indices that are computed."""
    array = tf.TensorArray(tf.float32, size, dynamic_size=True, element_shape=[3])
    place = tf.cast(tf.reduce_sum(rows * 0), tf.int32)
    loop = tf.while_loop(
        lambda k, _: k < 5, lambda k, a: (k + 1, a.write(k + place, rows[k])), (0, array), maximum_iterations=5
    )
    return tf.ensure_shape(loop[1].stack(), [size, 3])


def ended(rows: tf.Tensor, least: float) -> tf.Tensor:
    """A loop that ends at a value."""
    array = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[3])
    loop = tf.while_loop(
        lambda k, _, x: tf.logical_and(k < 5, x[0] > least),
        lambda k, a, x: (k + 1, a.write(k, x), x * 0.5),
        (0, array, tf.abs(rows[0])),
        maximum_iterations=9,
    )
    return loop[1].stack()


def test_a_loop_with_an_array_that_grows_runs_to_its_end() -> None:
    both = with_gradient(lambda rows: ended(rows, 0))
    for a, b in zip(run(both), plain(both), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    least = float(abs(ROWS[0, 0])) * 0.2  # three iterations
    with pytest.raises(tf.errors.InvalidArgumentError, match="all 5 iterations .* Received: 3. .* the size 5"):
        run(lambda rows: ended(rows, least))


@pytest.mark.parametrize("size", [0, 1, 4])
def test_arrays_that_grow_by_values_raise(size: int) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=BEYOND):
        run(lambda rows: by_values(rows, size))
    if size:  # XLA refuses to read an element of an empty list, as the gradient does
        with pytest.raises(tf.errors.InvalidArgumentError, match=BEYOND):
            run(with_gradient(lambda rows: by_values(rows, size)))


def test_programs_of_version_1_grow_or_raise() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        program = compile_program(lambda: [in_loop(tf.constant(ROWS), 0), in_repeat(tf.constant(ROWS))])
        for found in session.run(program):
            np.testing.assert_array_equal(found, ROWS * 2)
        program = compile_program(lambda: by_values(tf.constant(ROWS), 4))
        with pytest.raises(tf.errors.InvalidArgumentError, match=BEYOND):
            session.run(program)


def in_repeat(rows: tf.Tensor) -> tf.Tensor:
    array = tf.TensorArray(tf.float32, 0, dynamic_size=True)
    return loops_of_ipu.repeat(5, lambda k, a: (k + 1, a.write(k, rows[k] * 2)), [tf.constant(0), array])[1].stack()


def test_outlined_functions_grow_or_check_arrays() -> None:
    np.testing.assert_array_equal(run(functional_ops.outlined_function(lambda rows: in_loop(rows, 2)))[0], ROWS * 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=BEYOND):
        run(functional_ops.outlined_function(lambda rows: by_values(rows, 4)))


def test_pipelines_and_exports_refuse_arrays_that_may_grow(tmp_path: Path) -> None:
    infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors(ROWS).repeat())
    stages = [lambda rows: in_loop(rows, 5), lambda rows: rows]
    with pytest.raises(UnsupportedOperation, match="dynamic_size=False in a loop of a pipeline"):
        run(lambda _: pipelining_ops.pipeline(stages, 4, infeed_queue=infeed, outfeed_queue=IPUOutfeedQueue()) or 0)
    step = tf.function(lambda rows: in_loop(rows, 5))
    with pytest.raises(UnsupportedOperation, match="dynamic_size=False in a loop of an exported program"):
        export_single_step(step, str(tmp_path / "model"), 2, [tf.TensorSpec([5, 3])])


class Cell:
    """A cell of raw_rnn."""

    state_size = output_size = 3

    def zero_state(self, batch: int, dtype: tf.DType) -> tf.Tensor:
        return tf.zeros([batch, 3], dtype)

    def __call__(self, inputs: tf.Tensor, state: tf.Tensor, scope: object = None) -> tuple[tf.Tensor, tf.Tensor]:
        state = tf.tanh(inputs + 0.5 * state)
        return state, state


@pytest.mark.parametrize("lengths", [[5, 5], [2, 4], [0, 3]])
def test_raw_rnn_of_constant_lengths(lengths: list[int]) -> None:
    """The array of outputs grows in a loop that ends when all sequences have ended."""
    cell = Cell()

    def function(rows: tf.Tensor) -> tf.Tensor:
        inputs = tf.TensorArray(tf.float32, 5).unstack(tf.stack([rows, rows * 2], 1))

        def step(time: tf.Tensor, output: Any, state: Any, loop_state: Any) -> Any:
            ends = time >= tf.constant(lengths)
            given = tf.cond(tf.reduce_all(ends), lambda: tf.zeros([2, 3]), lambda: inputs.read(time))
            return ends, given, cell.zero_state(2, tf.float32) if output is None else state, output, None

        outputs, state, _ = v1.nn.raw_rnn(cell, step)
        return tf.concat([outputs.stack(), state[None]], 0)

    for one, other in zip(run(with_gradient(function)), plain(with_gradient(function)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_gradients_of_loops_that_end_by_constants() -> None:
    def function(rows: tf.Tensor) -> tf.Tensor:
        def body(size: tf.Tensor, flags: tf.Tensor, value: tf.Tensor) -> list[tf.Tensor]:
            return [size * 2 + 1, flags | (size > tf.constant([3, 9])), tf.sin(value) * tf.cast(size, tf.float32)]

        first = [tf.constant(1), tf.constant([False, False]), rows]
        return tf.while_loop(lambda size, flags, value: ~tf.reduce_all(flags), body, first)[2]

    for one, other in zip(run(with_gradient(function)), plain(with_gradient(function)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_gradients_of_loops_that_end_by_values_are_refused() -> None:
    def function(rows: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(
            lambda value: tf.reduce_sum(value) < 100.0, lambda value: (value + tf.exp(value),), (rows,)
        )[0]

    with pytest.raises(UnsupportedOperation, match="maximum_iterations"):
        run(with_gradient(function))
