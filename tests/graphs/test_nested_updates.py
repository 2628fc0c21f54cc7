"""Checks that see plain updates also see those in branches, loops and called functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from ipu._internal.compiler.graph_structure import nested_operations

v1 = tf.compat.v1


def plainly(update: Callable[[], Any]) -> Any:
    return update()


def in_branch(update: Callable[[], Any]) -> Any:
    def taken() -> tf.Tensor:
        with tf.control_dependencies([update()]):
            return tf.constant(True)

    return tf.cond(tf.random.uniform([]) >= 0, taken, lambda: tf.constant(False))


def in_cases(update: Callable[[], Any]) -> Any:
    def taken() -> tf.Tensor:
        with tf.control_dependencies([update()]):
            return tf.constant(1)

    return tf.switch_case(tf.cast(tf.random.uniform([]), tf.int32), [taken, lambda: tf.constant(2)])


def in_loop(update: Callable[[], Any]) -> Any:
    def body(k: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([update()]):
            return k + 1

    return tf.while_loop(lambda k: k < 1, lambda k: (body(k),), [tf.constant(0)], maximum_iterations=1)


def in_function(update: Callable[[], Any]) -> Any:
    @tf.function(autograph=False)
    def called() -> tf.Tensor:
        with tf.control_dependencies([update()]):
            return tf.constant(0)

    return called()


def in_branch_of_loop(update: Callable[[], Any]) -> Any:
    return in_loop(lambda: in_branch(update).op)


PLACES = [plainly, in_branch, in_cases, in_loop, in_function, in_branch_of_loop]


@pytest.mark.parametrize("place", PLACES)
def test_an_update_on_which_nothing_depends_is_refused_anywhere(place: Callable[..., Any]) -> None:
    with tf.Graph().as_default():
        with v1.variable_scope("", use_resource=True):
            w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        apply = v1.train.GradientDescentOptimizer(1.0).apply_gradients

        def lost() -> Any:
            place(lambda: apply([(tf.constant(1.0), w)]))
            return tf.constant(1.0)

        with pytest.raises(ValueError, match="return the training operations"):
            ipu.ipu_compiler.compile(lost)
        with pytest.raises(ValueError, match="return the training operations"):
            ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(2, lambda: [lost()], []))


@pytest.mark.parametrize("place", PLACES)
def test_other_assignments_on_which_nothing_depends_run_anywhere(place: Callable[..., Any]) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer(), use_resource=True)

        def idle() -> Any:
            place(lambda: w.assign_add(1.0))
            return tf.constant(1.0)

        ipu_compile = ipu.ipu_compiler.compile
        programs = [ipu_compile(idle), ipu_compile(lambda: ipu.loops.repeat(2, lambda: [idle()][:0], []))]
        session.run(v1.global_variables_initializer())
        for program, expected in zip(programs, (1.0, 3.0), strict=True):
            session.run(program)
            assert session.run(w) == expected


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("changes", [False, True])
def test_a_global_step_is_counted_by_estimators_alone(place: Callable[..., Any], changes: bool, tmp_path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        with v1.variable_scope("", use_resource=True):
            w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        loss = w * tf.reduce_mean(features)
        step = v1.train.get_global_step()

        def update() -> Any:
            train = v1.train.GradientDescentOptimizer(tf.where(step >= 0, 1.0, 0.0))  # a branch may read it
            return train.minimize(loss, global_step=step if changes else None)

        made = place(update)
        return v1.estimator.EstimatorSpec(mode, loss=loss, train_op=tf.group(*tf.nest.flatten(made)))

    options = ipu.config.IPUConfig()
    options.auto_select_ipus = 1
    run = ipu.ipu_run_config.IPURunConfig(iterations_per_loop=2, ipu_options=options)
    config = ipu.ipu_run_config.RunConfig(run, model_dir=str(tmp_path))
    estimator = ipu.ipu_estimator.IPUEstimator(model_fn, config=config)
    x = np.ones((4, 2), np.float32)

    def train() -> None:
        estimator.train(lambda: tf.data.Dataset.from_tensors((x, x)).repeat(), steps=4)

    if changes:
        with pytest.raises(ValueError, match="Expected model_fn to leave the global step"):
            train()
    else:
        train()
        assert estimator.get_variable_value("global_step") == 4
        assert estimator.get_variable_value("w") == -4


def test_inputs_of_nested_operations_are_those_of_the_calls() -> None:
    with tf.Graph().as_default() as graph:
        with v1.variable_scope("", use_resource=True):
            w, v = (v1.get_variable(name, [], initializer=v1.zeros_initializer()) for name in "wv")

        @tf.function(autograph=False)
        def called(x: tf.Tensor) -> tf.Tensor:
            w.assign_add(x)
            return tf.cond(x > 0, lambda: v.assign_sub(x), lambda: v.read_value())

        called(tf.constant(1.0))
        written = {
            inputs[0].op.name
            for operation, inputs in nested_operations(graph.get_operations())
            if operation.type.startswith("Assign") and operation.type != "AssignVariableOp"
        }
        assert written == {"w", "v"}
