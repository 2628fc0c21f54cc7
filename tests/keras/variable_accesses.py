"""Ways to write and read a TensorFlow variable of shape [rows, columns]; each is made once and used again."""

from __future__ import annotations

import gc
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import tensorflow as tf

from tests.keras.helpers import Kit

Write = Callable[[np.ndarray], object]
Read = Callable[[], Any]
WRITERS: dict[str, Callable[[Any], Write]] = {}
READERS: dict[str, Callable[[Any], Read]] = {}
_functions = itertools.count()


def writer(make: Callable[[Any], Write]) -> Callable[[Any], Write]:
    """Registers a function that makes a writer of a variable's value."""
    WRITERS[make.__name__] = make
    return make


def reader(make: Callable[[Any], Read]) -> Callable[[Any], Read]:
    """Registers a function that makes a reader of a variable's value."""
    READERS[make.__name__] = make
    return make


def _rows(variable: Any) -> Any:
    return tf.range(variable.shape[0])


def _spec(variable: Any) -> tf.TensorSpec:
    return tf.TensorSpec(variable.shape, variable.dtype)


def _one_by_one(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The data set, which then computes no elements in advance."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


@writer
def assign_array(variable: Any) -> Write:
    return lambda value: variable.assign(value)


@writer
def assign_tensor(variable: Any) -> Write:
    return lambda value: variable.assign(tf.constant(value))


@writer
def assign_add_and_sub(variable: Any) -> Write:
    def write(value: np.ndarray) -> None:
        variable.assign_sub(variable)
        variable.assign_add(value)

    return write


@writer
def scatter_update(variable: Any) -> Write:
    return lambda value: variable.scatter_update(tf.IndexedSlices(value, _rows(variable)))


@writer
def scatter_nd_update_then_its_result(variable: Any) -> Write:
    kept: list[Any] = []

    def write(value: np.ndarray) -> None:
        if kept:
            kept[0].assign(value)
        else:
            kept.append(variable.scatter_nd_update(_rows(variable)[:, None], value))

    return write


@writer
def slice_assign(variable: Any) -> Write:
    def write(value: np.ndarray) -> None:
        variable[:2].assign(value[:2])
        variable[2:].assign(value[2:])

    return write


@writer
def raw_assign(variable: Any) -> Write:
    handle = variable.handle
    return lambda value: tf.raw_ops.AssignVariableOp(resource=handle, value=value)


@writer
def raw_scatter(variable: Any) -> Write:
    handle = variable.handle

    def write(value: np.ndarray) -> None:
        old = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        tf.raw_ops.ResourceScatterAdd(resource=handle, indices=_rows(variable), updates=value - old)

    return write


@writer
def raw_training_operation(variable: Any) -> Write:
    handle = variable.handle

    def write(value: np.ndarray) -> None:
        tf.raw_ops.ResourceApplyGradientDescent(var=handle, alpha=1.0, delta=variable.read_value() - value)

    return write


@writer
def optimizer_of_version_1(variable: Any) -> Write:
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.5)
    return lambda value: optimizer.apply_gradients([(2.0 * (variable - value), variable)])


@writer
def function(variable: Any) -> Write:
    return tf.function(lambda value: variable.assign(value))


@writer
def compiled_function(variable: Any) -> Write:
    return tf.function(lambda value: variable.assign(value), jit_compile=True)


@writer
def function_that_is_gone(variable: Any) -> Write:
    def write(value: np.ndarray) -> None:
        tf.function(lambda: variable.assign(value))()
        gc.collect()

    return write


@writer
def function_in_a_function(variable: Any) -> Write:
    inner = tf.function(lambda value: variable.assign(value))
    return tf.function(lambda value: inner(value))


@writer
def branch_of_a_function(variable: Any) -> Write:
    def write(value: Any) -> Any:
        return tf.cond(tf.reduce_sum(value) < 1e9, lambda: variable.assign(value) + 0.0, lambda: value)

    return tf.function(write)


@writer
def loop_of_a_function(variable: Any) -> Write:
    @tf.function
    def write(value: Any) -> None:
        for row in tf.range(variable.shape[0]):
            variable.scatter_nd_update([[row]], value[row][None])

    return write


@writer
def function_named_as_a_graph_of_keras(variable: Any) -> Write:
    @tf.function
    def my_scratch_graph(value: Any) -> None:
        variable.assign(value)

    return my_scratch_graph


@writer
def argument_of_a_function(variable: Any) -> Write:
    write = tf.function(lambda given, value: given.assign(value))
    return lambda value: write(variable, value)


@writer
def handle_as_argument(variable: Any) -> Write:
    handle = variable.handle

    @tf.function
    def write(given: Any, value: Any) -> None:
        tf.raw_ops.AssignVariableOp(resource=given, value=value)

    return lambda value: write(handle, value)


@writer
def concrete_function(variable: Any) -> Write:
    return tf.function(lambda value: variable.assign(value)).get_concrete_function(_spec(variable))


@writer
def wrapped_function(variable: Any) -> Write:
    return tf.compat.v1.wrap_function(lambda value: variable.assign(value), [_spec(variable)])


@writer
def python_function(variable: Any) -> Write:
    def assigned(value: Any) -> Any:
        return variable.assign(value) + 0.0

    return tf.function(lambda value: tf.py_function(assigned, [value], tf.float32))


@writer
def backward_function(variable: Any) -> Write:
    @tf.custom_gradient
    def same(x: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            return variable.assign(upstream) + 0.0

        return x + 0.0, gradient

    called = tf.function(lambda x: same(x))

    def write(value: np.ndarray) -> None:
        with tf.GradientTape() as tape:
            tape.watch(x := tf.constant(value))
            y = called(x)
        tape.gradient(y, x, value)

    return write


@writer
def thread(variable: Any) -> Write:
    write_there = tf.function(lambda value: variable.assign(value))

    def write(value: np.ndarray) -> None:
        started = Thread(target=write_there, args=(value,))
        started.start()
        started.join()

    return write


@writer
def dataset(variable: Any) -> Write:
    """Makes a writer from a data set: its iterator holds the handle, but no Python object."""
    values: list[np.ndarray] = []

    def generate() -> Any:
        while True:
            yield values.pop()

    def made() -> Any:
        elements = tf.data.Dataset.from_generator(generate, output_signature=_spec(variable))
        return iter(_one_by_one(elements.map(lambda value: variable.assign(value) + 0.0)))

    iterator = made()
    gc.collect()

    def write(value: np.ndarray) -> None:
        values.append(value)
        next(iterator)

    return write


@writer
def checkpoint(variable: Any) -> Write:
    def write(value: np.ndarray) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = tf.train.Checkpoint(v=tf.Variable(value)).save(f"{folder}/saved")
            tf.train.Checkpoint(v=variable).restore(path).assert_consumed()

    return write


@writer
def module(variable: Any) -> Write:
    class Module(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.variable = variable

        @tf.function
        def write(self, value: Any) -> None:
            self.variable.assign(value)

    made = Module()
    return lambda value: made.write(value)


@writer
def scope_of_another_strategy(variable: Any) -> Write:
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        return tf.function(lambda value: variable.assign(value))


@reader
def numpy(variable: Any) -> Read:
    return variable.numpy


@reader
def operation(variable: Any) -> Read:
    return lambda: tf.multiply(variable, 1.0)


@reader
def raw_read(variable: Any) -> Read:
    handle = variable.handle
    return lambda: tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)


@reader
def gathered(variable: Any) -> Read:
    return lambda: tf.gather(variable, _rows(variable))


@reader
def read_by_a_function(variable: Any) -> Read:
    return tf.function(lambda: variable.read_value())


@reader
def read_by_a_compiled_function(variable: Any) -> Read:
    return tf.function(lambda: variable + 0.0, jit_compile=True)


@reader
def read_by_an_iterator(variable: Any) -> Read:
    iterator = iter(_one_by_one(tf.data.Dataset.range(1000).map(lambda _: variable + 0.0)))
    return lambda: next(iterator)


@reader
def tensor_read_before(variable: Any) -> Read:
    """Makes a reader of a tensor, which keeps its value whatever is written afterwards."""
    read = tf.function(lambda: variable.read_value())
    before = read()
    expected = before.numpy()

    def again() -> Any:
        nonlocal before, expected
        np.testing.assert_array_equal(before, expected)
        before = read()
        expected = before.numpy()
        return before

    return again


@reader
def read_from_a_checkpoint(variable: Any) -> Read:
    def read() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = tf.train.Checkpoint(v=variable).save(f"{folder}/saved")
            return tf.train.load_variable(path, "v/.ATTRIBUTES/VARIABLE_VALUE")

    return read


@reader
def read_from_a_saved_model(variable: Any) -> Read:
    module = tf.Module()
    module.variable = variable
    module.read = tf.function(lambda: variable + 0.0, input_signature=[])

    def read() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            tf.saved_model.save(module, str(Path(folder) / "saved"))
            loaded = tf.saved_model.load(str(Path(folder) / "saved"))
            return loaded.read()

    return read


def model_of_kernels(kit: Kit, count: int) -> Any:
    """A model with `count` kernels [5, 5], one for each access."""
    layers = kit.keras.layers
    inputs = kit.keras.Input((5,))
    joined = layers.Add()([layers.Dense(5, name=f"kernel{k}")(inputs) for k in range(count)])
    return kit.keras.Model(inputs, layers.Dense(3, "softmax")(layers.Activation("tanh")(joined)))
