"""The oracle of the programs: the same variables and losses after training by TensorFlow on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

v1 = tf.compat.v1
Batch = Sequence[np.ndarray]
Values = dict[str, np.ndarray]


def trained_on_host(
    net: Callable[..., tf.Tensor], optimizer: Callable[[], Any], batches: Sequence[Batch]
) -> tuple[Values, np.ndarray]:
    """The variables by name, and the losses, after TensorFlow has made one update for each batch.

    `net(*batch)` is the loss to minimise; its UPDATE_OPS are executed before.
    """
    with tf.Graph().as_default() as graph:
        fed = [v1.placeholder(array.dtype, array.shape) for array in batches[0]]
        loss = net(*fed)
        with tf.control_dependencies(graph.get_collection(v1.GraphKeys.UPDATE_OPS)):
            train = optimizer().minimize(loss, global_step=v1.train.get_or_create_global_step())
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            losses = [session.run([loss, train], dict(zip(fed, batch, strict=True)))[0] for batch in batches]
            return variables_of(session), np.array(losses)


def variables_of(session: Any) -> Values:
    """The values of all global variables in the session's graph, by name."""
    with session.graph.as_default():
        return session.run({variable.op.name: variable for variable in v1.global_variables()})


def check(ours: Values, theirs: Values, tolerance: float = 1e-4) -> None:
    """Fails where a variable of `theirs` is missing in `ours`, or differs by more than the relative tolerance."""
    assert theirs.keys() <= ours.keys()
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=tolerance, atol=tolerance / 100, err_msg=name)


def weights(name: str, shape: Sequence[int], seed: int = 0) -> Any:
    """A variable with the same initial value in every graph."""
    initializer = v1.glorot_uniform_initializer(seed=seed)
    return v1.get_variable(name, shape, initializer=initializer, use_resource=True)


def zeros(name: str, shape: Sequence[int]) -> Any:
    """A variable that is initially zero."""
    return v1.get_variable(name, shape, initializer=v1.zeros_initializer(), use_resource=True)


def dense(x: tf.Tensor, units: int, name: str, seed: int = 0) -> tf.Tensor:
    """A fully connected layer, [samples, units]."""
    with v1.variable_scope(name):
        return x @ weights("kernel", [x.shape[-1], units], seed) + zeros("bias", [units])


def dataset(batches: Sequence[Batch]) -> tf.data.Dataset:
    """The batches as a data set that repeats."""
    columns = tuple(np.stack(column) for column in zip(*batches, strict=True))
    return tf.data.Dataset.from_tensor_slices(columns).repeat()


def configure(ipus: int, **attributes: Any) -> None:
    """Configures that number of IPUs, with attributes of an IPUConfig."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    for name, value in attributes.items():
        setattr(config, name, value)
    config.configure_ipu_system()
