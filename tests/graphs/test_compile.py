"""`ipu_compiler.compile` in a tf.Graph: its results, its variables, and its refusals (section 18.2)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python import ipu
from tensorflow.python.client.session import BaseSession
from tensorflow.python.framework import function

from engine.errors import ConfigurationError
from ipu._internal.graphs.sessions import programs_of

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as graph:
        yield graph


def test_returns_what_the_documentation_says() -> None:
    x = v1.placeholder(tf.float32, [2])
    variable = v1.get_variable("v", [2], use_resource=True, initializer=v1.zeros_initializer())
    single = ipu.ipu_compiler.compile(lambda y: y + 1.0, [x])
    several = ipu.ipu_compiler.compile(lambda y: (y, {"twice": y * 2.0}, variable.assign_add(y).op), [x])
    nested = ipu.ipu_compiler.compile(lambda pair, k: pair["a"] + k, [{"a": x}, 3.0])
    nothing = ipu.ipu_compiler.compile(lambda: None)
    operation = ipu.ipu_compiler.compile(lambda: variable.assign_add([1.0, 1.0]).op)
    assert isinstance(nothing, tf.Operation)
    assert isinstance(operation, tf.Operation)
    assert single[0].shape == [2]
    with v1.Session() as session:
        session.run(variable.initializer)
        feeds = {x: [1.0, 2.0]}
        np.testing.assert_array_equal(session.run(single, feeds), [[2, 3]])
        first, second = session.run(several, feeds)
        np.testing.assert_array_equal([first, second["twice"]], [[1, 2], [2, 4]])
        np.testing.assert_array_equal(session.run(nested, feeds), [[4, 5]])
        assert session.run(nothing) is None
        session.run(operation)
        np.testing.assert_array_equal(session.run(variable), [2, 3])


def test_functions_of_version_1_run_in_loops() -> None:
    """TensorFlow makes loops of CTC from functions of version 1, which it defines in the graph alone."""

    @function.Defun(tf.float32)
    def squared(x: tf.Tensor) -> tf.Tensor:
        return x * x

    (result,) = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(2, lambda x: tf.reshape(squared(x) + 1.0, []), [2.0]))
    with v1.Session() as session:
        assert session.run(result) == 26.0


def test_functions_of_version_1_of_one_name_are_refused() -> None:
    """TensorFlow finds functions by their names: it would run the first one's body for the second."""

    def made(body: Callable[[tf.Tensor], tf.Tensor]) -> Any:
        with tf.Graph().as_default():
            named = function.Defun(tf.float32, func_name="named_twice")(body)
            (result,) = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(2, lambda x: tf.reshape(named(x), []), [2.0]))
            with v1.Session() as session:
                return session.run(result)

    assert made(lambda x: x * 3.0) == 18.0
    assert made(lambda x: x * 3.0) == 18.0
    with pytest.raises(ConfigurationError, match="two of the name 'named_twice'"):
        made(lambda x: x * 5.0)


def test_inputs_and_captured_tensors_may_have_any_shape_that_is_fed() -> None:
    x, factor = v1.placeholder(tf.float32, [None, 2]), v1.placeholder(tf.float32, [])
    (total,) = ipu.ipu_compiler.compile(lambda y: tf.reduce_sum(y * factor, axis=0), [x])
    with v1.Session() as session:
        for rows in (2, 3, 2):
            np.testing.assert_array_equal(session.run(total, {x: np.ones([rows, 2]), factor: 2.0}), [2 * rows] * 2)


def test_returns_sparse_and_ragged_tensors() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)

    def computation(x: tf.Tensor) -> Any:
        sparse = tf.SparseTensor([[0, 0], [2, 1]], x[:2, 1], [3, 2])
        return {"ragged": tf.RaggedTensor.from_row_splits(x, [0, 1, 3]), "pair": (sparse, x)}, sparse

    results = ipu.ipu_compiler.compile(computation, [tf.constant(rows)])
    assert isinstance(results[1], tf.SparseTensor)
    flat = [tf.nest.flatten(each, expand_composites=True) for each in (results, list(computation(tf.constant(rows))))]
    with v1.Session() as session:
        for ours, plain in zip(*session.run(flat), strict=True):
            np.testing.assert_array_equal(ours, plain)


def with_determinants(n: tf.Tensor, _: tf.Tensor, x: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Operations that are rewritten for XLA, in the function and in its loop."""
    v1.summary.scalar("n", n)
    _, looped = tf.while_loop(lambda k, _: k < 2, lambda k, y: (k + 1, y + tf.linalg.det(tf.eye(3) * y[0, 0])), (0, x))
    return tf.round(tf.linalg.det(tf.eye(3) * x[1, 1])), tf.round(looped), tf.range(n) + labels[0]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "body",
    [
        lambda n, shape, x, labels: (tf.reshape(x, shape), tf.tile(x, [n, 1]), tf.reduce_sum(labels)),
        lambda n, shape, x, labels: (x[:n], tf.gradients(tf.reduce_sum(x[:n] ** 2), x)[0], labels * shape[0]),
        with_determinants,
    ],
)
def test_shapes_may_depend_on_fed_integers(body: Callable[..., Any], graph: tf.Graph) -> None:
    """One program is compiled for each value of the integers, and all share the variables."""
    v = v1.get_variable("v", [], tf.int32, initializer=v1.zeros_initializer(), use_resource=True)
    n, shape, x = v1.placeholder(tf.int32, []), v1.placeholder(tf.int32, [2]), v1.placeholder(tf.float32, [3, 4])
    labels = v1.placeholder(tf.int32, [5])
    expected = body(n, shape, x, labels)
    results, count = ipu.ipu_compiler.compile(lambda *inputs: (body(*inputs), v.assign_add(1)), [n, shape, x, labels])
    with v1.Session() as session:
        session.run(v.initializer)
        for run, (number, dimensions) in enumerate([(2, [2, 6]), (3, [12, 1]), (2, [2, 6])]):
            feeds = {n: number, shape: dimensions, x: np.arange(12.0).reshape(3, 4), labels: np.arange(5) + run}
            *found, after = session.run([*results, count], feeds)
            assert after == run + 1
            for one, other in zip(found, session.run(expected, feeds), strict=True):
                np.testing.assert_array_equal(one, other)
    (program,) = programs_of(graph).made.values()
    assert len(program._programs) == 2


def regression(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
    weights = v1.get_variable("weights", [3, 1], initializer=v1.zeros_initializer())
    bias = tf.Variable(tf.fill([1], 0.5), name="bias")
    loss = tf.reduce_mean((x @ weights + bias - y) ** 2)
    optimizer = v1.train.AdamOptimizer(0.1)
    return loss, optimizer.minimize(loss, global_step=v1.train.get_or_create_global_step())


def trained(compiled: bool, restart: str) -> list[np.ndarray]:
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        x, y = v1.placeholder(tf.float32, [4, 3]), v1.placeholder(tf.float32, [4, 1])
        with v1.variable_scope("", use_resource=True):
            build: Callable[..., tuple[tf.Tensor, ...]] = regression
            loss, *train = ipu.ipu_compiler.compile(build, [x, y]) if compiled else build(x, y)
        saver = v1.train.Saver()
        random = np.random.default_rng(3)
        losses = []
        for count in (5, 4):  # the second session goes on from the checkpoint of the first
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                if count == 4:
                    saver.restore(session, restart)
                for _ in range(count):
                    batch = random.normal(size=(4, 3))
                    feeds = {x: batch, y: batch.sum(1, keepdims=True)}
                    losses.append(session.run([loss, *train], feeds)[0])
                saver.save(session, restart, write_meta_graph=False)
                variables = session.run({v.op.name: v for v in v1.global_variables()})
    assert variables["global_step"] == 9
    return [np.array(losses), *(value for _, value in sorted(variables.items()))]


def test_training_equals_tensorflow_with_checkpoints(tmp_path) -> None:
    ours, theirs = (trained(compiled, str(tmp_path / str(compiled))) for compiled in (True, False))
    for mine, its in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, its, rtol=2e-5, atol=1e-6)


def test_programs_share_variables_in_the_order_of_control_dependencies() -> None:
    variable = v1.get_variable("v", [], use_resource=True, initializer=v1.ones_initializer())
    doubled = ipu.ipu_compiler.compile(lambda: variable.assign(variable * 2.0).op)
    with tf.control_dependencies([doubled]):
        (increased,) = ipu.ipu_compiler.compile(lambda: variable.assign_add(1.0).read_value())
    with tf.control_dependencies([increased]):
        on_host = variable.assign_add(0.5, read_value=False)
    unordered = [increased, variable.assign(0.0, read_value=False)]
    with tf.control_dependencies([on_host]):
        after = variable.read_value()
    with v1.Session() as session:
        session.run(variable.initializer)
        assert session.run(increased) == 3
        assert session.run(after) == 7.5
        assert session.run(variable) == 7.5
        with pytest.raises(ValueError, match="control dependency between"):
            session.run(unordered)


ASSIGNMENTS: list[Callable[[Any], Any]] = [
    lambda v: v1.assign(v, v * 2.0),
    lambda v: v.assign_add(v),
    lambda v: v1.assign_sub(v, v * 0.5),
    lambda v: v1.scatter_update(v, [1], [tf.reduce_sum(v)]),
    lambda v: tf.cond(tf.reduce_sum(v) < 9.0, lambda: v.assign(v * 2.0), lambda: v.assign(v - 1.0)),
]


@pytest.mark.parametrize("number", range(len(ASSIGNMENTS)))
def test_a_returned_assignment_has_the_value_after_it(number: int) -> None:
    found = []
    for compiles in (False, True):
        with tf.Graph().as_default(), v1.Session() as session:
            made = v1.get_variable("v", initializer=np.float32([1, 2, 3]), use_resource=True)
            assigned = functools.partial(ASSIGNMENTS[number], made)
            results = ipu.ipu_compiler.compile(assigned)[0] if compiles else assigned()
            session.run(made.initializer)
            found.append([session.run(results) for _ in range(3)] + [session.run(made)])
    np.testing.assert_array_equal(*found)


def test_each_session_has_its_variables() -> None:
    (count,) = ipu.ipu_compiler.compile(
        lambda: v1.get_variable("v", [], initializer=v1.zeros_initializer()).assign_add(1.0)
    )
    with v1.Session() as one, v1.Session() as two:
        for session in (one, two):
            session.run(v1.global_variables_initializer())
        assert [session.run(count) for session in (one, two, one, one, two)] == [1, 1, 2, 3, 2]


def test_all_users_of_a_variable_see_the_newest_value() -> None:
    variable = v1.get_variable("v", [2], use_resource=True, initializer=v1.zeros_initializer())
    step = ipu.ipu_compiler.compile(lambda: variable.assign_add([1.0, 2.0]).op)
    later = v1.assign_sub(variable, [0.5, 0.5])
    with v1.Session() as session:
        run, read = session.make_callable(step), session.make_callable(variable.read_value())
        options = session._make_callable_from_options  # as Keras does
        session.run(variable.initializer)
        session.run(step)
        kept = session.run(variable)
        run()
        np.testing.assert_array_equal(read(), [2, 4])
        session.run(later)
        session.run(step)
        np.testing.assert_array_equal(variable.eval(session), [2.5, 5.5])
        by_name = options(config_pb2.CallableOptions(fetch=[variable.read_value().name]))
        session.run(step)
        np.testing.assert_array_equal(by_name()[0], [3.5, 7.5])
        np.testing.assert_array_equal(kept, [1, 2])


def test_an_uninitialized_variable_is_an_error() -> None:
    variable = v1.get_variable("v", [2], use_resource=True)
    (read,) = ipu.ipu_compiler.compile(lambda: variable * 2.0)
    with v1.Session() as session:
        with pytest.raises(tf.errors.FailedPreconditionError, match="v"):
            session.run(read)
        session.run(variable.initializer)
        assert session.run(read).shape == (2,)


def test_reference_variables_are_read_only() -> None:
    variable = v1.get_variable("v", [2], use_resource=False, initializer=v1.ones_initializer())
    (read,) = ipu.ipu_compiler.compile(lambda: variable * 2.0)
    with v1.Session() as session:
        session.run(variable.initializer)
        np.testing.assert_array_equal(session.run(read), [2, 2])
    for update in (
        lambda: v1.assign_add(variable, [1.0, 1.0]),
        lambda: v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(variable)),
    ):
        with pytest.raises(ValueError, match="use_resource=True"):
            ipu.ipu_compiler.compile(update)


def test_gradients_outside_of_the_function_are_refused() -> None:
    x = v1.placeholder(tf.float32, [2])
    variable = v1.get_variable("v", [2], use_resource=True)
    (loss,) = ipu.ipu_compiler.compile(lambda y: tf.reduce_sum(y * variable), [x])
    for target in (x, variable):
        with pytest.raises(LookupError, match="inside the function given to ipu_compiler.compile"):
            tf.gradients(loss, target)


@pytest.mark.skipif(not tf.executing_eagerly(), reason="branches without version 2's behavior are operations")
def test_a_program_in_a_branch_of_the_graph_is_refused(graph: tf.Graph) -> None:
    with pytest.raises(
        RuntimeError, match="in a function, branch or loop of a tf.Graph. Call it outside, with tf.cond"
    ):
        tf.cond(v1.placeholder(tf.bool, []), lambda: ipu.ipu_compiler.compile(lambda: 1.0)[0], lambda: 2.0)


def test_misuse_is_refused_and_the_graph_usable_afterwards() -> None:
    with tf.Graph().as_default():
        foreign = v1.get_variable("foreign", [2], use_resource=True)
    with pytest.raises(ValueError, match="of another graph"):
        ipu.ipu_compiler.compile(lambda: foreign * 2.0)
    with pytest.raises(ValueError, match="outside of a computation that is being compiled"):
        ipu.ipu_compiler.compile(lambda: ipu.ipu_compiler.compile(lambda: tf.constant(1.0)))
    with pytest.raises(TypeError, match="list, a tuple or None"):
        ipu.ipu_compiler.compile(lambda y: y, tf.constant(1.0))
    with pytest.raises(ValueError, match="tensors before operations"):
        ipu.ipu_compiler.compile(lambda: (tf.no_op(), tf.constant(1.0)))
    (refused,) = ipu.ipu_compiler.compile(lambda: tf.strings.to_number(tf.strings.as_string(tf.random.normal([2]))))
    (result,) = ipu.ipu_compiler.compile(lambda: tf.constant(1.0) + 1.0)
    with v1.Session() as session:
        with pytest.raises(NotImplementedError, match="XLA"):
            session.run(refused)
        assert session.run(result) == 2


@pytest.mark.parametrize("is_early", [False, True], ids=["configured", "before the first program"])
def test_places_operations_without_soft_placement(is_early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_early:  # TensorFlow's own session, before its class is extended
        monkeypatch.setattr(BaseSession, "__init__", BaseSession.__init__.__wrapped__)
    with tf.device("/device:IPU:0"):
        variable = v1.get_variable("v", [2], use_resource=True, initializer=v1.ones_initializer())
        (result,) = ipu.ipu_compiler.compile(lambda: variable + 1.0)
        outside = result + tf.constant(1.0)
    with v1.Session(config=v1.ConfigProto(allow_soft_placement=False)) as session:
        session.run(variable.initializer)
        np.testing.assert_array_equal(session.run(outside), [3, 3])


def loss_of_network() -> tf.Tensor:
    with v1.variable_scope("net", use_resource=True):
        return tf.reduce_mean((tf.ones([4, 3]) @ v1.get_variable("w", [3, 1])) ** 2)


def updated(*_: tf.Tensor) -> tf.Tensor:
    loss = loss_of_network()
    with tf.control_dependencies([v1.train.AdamOptimizer().minimize(loss)]):
        return tf.identity(loss)


def pipelined() -> Any:
    ops = ipu.pipelining_ops
    return ops.pipeline(
        [lambda: None, loss_of_network],
        gradient_accumulation_count=4,
        optimizer_function=lambda loss: ops.OptimizerFunctionOutput(v1.train.AdamOptimizer(), loss),
        outfeed_queue=ipu.ipu_outfeed_queue.IPUOutfeedQueue(),
        reduction_method="mean",
    )


@pytest.mark.parametrize("computation", [updated, lambda: ipu.loops.repeat(2, updated, [0.0]), pipelined])
def test_variables_are_named_as_in_a_graph_without_programs(computation: Callable[[], Any]) -> None:
    """Checkpoints use these names; those of Adam's powers begin with the scope around the program."""
    with tf.Graph().as_default(), v1.variable_scope("outer"):
        updated()
        expected = {each.name for each in v1.global_variables()}
    assert "outer/beta1_power:0" in expected
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    with v1.variable_scope("outer"):
        ipu.ipu_compiler.compile(computation)
    assert {each.name for each in v1.global_variables()} == expected
