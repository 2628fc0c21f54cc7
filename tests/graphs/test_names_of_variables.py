"""Programs have the same names and sets of variables in loops, pipelines and splits into stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python import ipu

v1 = tf.compat.v1
SUM = ipu.gradient_accumulation.GradientAccumulationReductionMethod.SUM


def first(x: tf.Tensor) -> tf.Tensor:
    with v1.variable_scope("stage1", use_resource=True):
        return tf_keras.layers.Dense(3, name="wide")(x)


def second(x: tf.Tensor) -> tf.Tensor:
    with v1.variable_scope("stage1", use_resource=True):
        x = tf_keras.layers.Dense(3, name="wide")(x)
    with v1.variable_scope("stage2", use_resource=True):
        x = tf_keras.layers.Dense(3, name="narrow")(x)
        with tf.name_scope("scaled"):
            scale = tf.Variable(2.0, name="scale")
        return tf.reduce_sum(x * v1.get_variable("factor", [3]) * scale)


SPLITS = {"loop": None, "two": [first, second], "three": [first, tf.identity, second]}


def variables(split: str, optimizer: Any, outer: str) -> tuple[list[str], Any, Any]:
    """The names of the graph's variables, their values after training, and the losses."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = {"loop": 1, "two": 2, "three": 4}[split]
    config.configure_ipu_system()
    stages, mapping = SPLITS[split], list(range(len(SPLITS[split] or [])))
    with tf.Graph().as_default():
        tf_keras.backend.reset_uids()
        v1.set_random_seed(1)
        data = tf.data.Dataset.from_tensors(np.ones((2, 4), np.float32)).repeat()
        infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data), ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def pipe() -> Any:
            with v1.variable_scope(outer, use_resource=True):
                return ipu.pipelining_ops.pipeline(
                    stages,
                    12,
                    repeat_count=2,
                    infeed_queue=infeed,
                    outfeed_queue=outfeed,
                    optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(optimizer(), loss),
                    device_mapping=mapping,
                    reduction_method=SUM,
                )

        def body(x: tf.Tensor) -> Any:
            loss = second(first(x))
            accumulating = ipu.optimizers.GradientAccumulationOptimizerV2(optimizer(), 12)
            return [outfeed.enqueue(loss), accumulating.minimize(loss)]

        def loop() -> Any:
            with v1.variable_scope(outer, use_resource=True):
                return ipu.loops.repeat(24, body, [], infeed)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(pipe if stages else loop)
        rows = outfeed.dequeue()
        found = v1.global_variables()
        saver = v1.train.Saver()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for variable in found:  # initial values depend on names of operations
                variable.load(np.full(variable.shape.as_list(), 0.5), session)
            session.run(infeed.initializer)
            session.run(run)
            assert sorted(v.op.name for v in saver._var_list) == sorted(v.op.name for v in found)
            order = sorted(found, key=lambda variable: variable.name)
            return [v.name for v in order], session.run(order), np.ravel(session.run(rows))


OPTIMIZERS = {
    "Momentum": lambda: v1.train.MomentumOptimizer(0.001, 0.9),
    "Adam": lambda: v1.train.AdamOptimizer(0.001),
}
STATES = {"Momentum": (["Momentum"], []), "Adam": (["Adam", "Adam_1"], ["beta1_power", "beta2_power"])}


@pytest.mark.parametrize("outer", ["a/b"])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_names_are_those_without_stages(outer: str, kind: str) -> None:
    """A scope that is entered again has a number, as in a graph without stages."""
    optimizer = OPTIMIZERS[kind]
    layers = ["stage1/wide", "stage1_1/wide", "stage2/narrow"]
    parts = [f"{layer}/{part}" for layer in layers for part in ("kernel", "bias")]
    expected = [f"{outer}/{part}" for part in (*parts, "stage2/factor", "stage2/scaled/scale")]
    of_each, of_all = STATES[kind]
    expected += [f"{outer}/{name}/{state}" for name in expected for state in of_each]
    expected += [f"{outer}/{state}" for state in of_all]
    names, values, rows = variables("loop", optimizer, outer)
    assert names == sorted(f"{name}:0" for name in expected)
    for split in ("two", "three"):
        others, after, results = variables(split, optimizer, outer)
        assert others == names
        for value, other in zip((*values, rows), (*after, results), strict=True):
            np.testing.assert_allclose(value, other, rtol=1e-5)
