"""Run with 4 replicas in 1, 2 or 4 processes: trains models and calls collectives; process 0 writes the results."""

from __future__ import annotations

import sys

import numpy as np
import popdist
import popdist.tensorflow
import tensorflow as tf

from ipu.config import IPUConfig
from ipu.distributed.popdist_strategy import PopDistStrategy
from ipu.ops import all_to_all_op, cross_replica_ops, reduce_scatter_op, replication_ops

REPLICAS, STEPS, BATCH = 4, 4, 8
popdist.init()
strategy = PopDistStrategy()
config = IPUConfig()
popdist.tensorflow.set_ipu_config(config)
config.configure_ipu_system()
index, count, local = popdist.getInstanceIndex(), popdist.getNumInstances(), popdist.getNumLocalReplicas()
assert strategy.num_replicas_in_sync == popdist.getNumTotalReplicas() == count * local == REPLICAS
distribution = config.experimental.multi_replica_distribution
assert (distribution.process_count, distribution.process_index) == ((count, index) if count > 1 else (0, 0))
results: dict[str, np.ndarray] = {}


def mine(array: np.ndarray) -> np.ndarray:
    """The batches of this process: in each step those of its replicas."""
    batches = array.reshape(-1, count, local, BATCH, *array.shape[1:])
    return batches[:, index].reshape(-1, *array.shape[1:])


random = np.random.default_rng(1)
x = random.normal(size=(REPLICAS * STEPS * BATCH, 6)).astype(np.float32)
y = random.integers(0, 3, len(x))


def train(name: str, keras: object, accumulation: int, group: int, stages: int = 1) -> None:
    """Trains a model of one Keras with batch normalisation, in pipeline stages if there are several."""
    popdist.tensorflow.set_ipu_config(config, ipus_per_replica=stages)
    config.norms.experimental.distributed_batch_norm_replica_group_size = group
    config.configure_ipu_system()
    keras.utils.set_random_seed(7 + index)  # process 0's initial values replace those of other processes
    layers, model_of = keras.layers, keras.Sequential
    with strategy.scope():
        hidden = [layers.Dense(16, activation="relu"), layers.BatchNormalization(), layers.Dense(3)]
        model = model_of([keras.Input((6,)), *hidden])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        if stages > 1:
            assignment = model.get_pipeline_stage_assignment()
            for number, layer in enumerate(assignment):
                layer.pipeline_stage = min(number, stages - 1)
            model.set_pipeline_stage_assignment(assignment)
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=accumulation)
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        model.compile(optimizer, loss, metrics=["accuracy"], steps_per_execution=max(STEPS // 2, accumulation))
        if accumulation > 1 and stages == 1:
            model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=accumulation)
        history = model.fit(mine(x), mine(y), batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
        evaluated = model.evaluate(mine(x), mine(y), batch_size=BATCH, verbose=0)
        predicted = model.predict(mine(x), batch_size=BATCH, verbose=0)
    results[f"{name}.loss"] = np.array(history.history["loss"])
    results[f"{name}.accuracy"] = np.array(history.history["accuracy"])
    results[f"{name}.evaluated"] = np.array(evaluated)
    every = strategy.transport.all_gather(predicted).reshape(count, -1, local, BATCH, 3)
    results[f"{name}.predicted"] = every.swapaxes(0, 1).reshape(-1, REPLICAS, BATCH, 3)
    for number, weight in enumerate(model.get_weights()):
        results[f"{name}.weight{number}"] = np.asarray(weight)


def count_in_function(name: str, keras: object) -> None:
    """Updates a metric in a function with the numbers of the replicas, twice."""
    with strategy.scope():
        mean = keras.metrics.Mean()

        @tf.function(jit_compile=True)
        def counted() -> None:
            mean.update_state(tf.cast(replication_ops.replication_index(), tf.float32))

        for _ in range(2):
            strategy.run(counted)
        assert (float(mean.result()), float(np.asarray(mean.count))) == (1.5, 2 * REPLICAS)
    results[f"{name}.mean"] = np.asarray(mean.result())


@tf.function(jit_compile=True)
def collectives(values: tf.Tensor) -> dict[str, tf.Tensor]:
    """Collectives of all replicas and of groups, on values that differ by replica; results of all, in order."""
    number = tf.cast(replication_ops.replication_index(), tf.float32)
    own = values * (number + 1)

    def every(value: tf.Tensor) -> tf.Tensor:
        return all_to_all_op.all_gather(value, REPLICAS)

    def doubled(_: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return _ + 1, cross_replica_ops.cross_replica_mean(total * (number + 1))

    return {
        "index": every(number),
        "sum": every(cross_replica_ops.cross_replica_sum(own)),
        "mean": every(cross_replica_ops.cross_replica_mean(own)),
        "pairs": every(cross_replica_ops.cross_replica_sum(own, replica_group_size=2)),
        "scattered": every(reduce_scatter_op.reduce_scatter(own, REPLICAS)),
        "exchanged": every(all_to_all_op.all_to_all(own, 0, 0, REPLICAS)),
        "first": every(cross_replica_ops.assume_equal_across_replicas(own)),
        "loop": every(tf.while_loop(lambda k, _: k < 3, doubled, [0, own])[1]),
        "random": every(tf.random.stateless_uniform([3], [1, 2]) + 0 * number),
    }


with strategy.scope():
    generator = tf.random.Generator.from_seed(3)

    @tf.function(jit_compile=True)
    def drawn() -> tf.Tensor:
        """Random numbers of all replicas."""
        return all_to_all_op.all_gather(generator.uniform([3]), REPLICAS)

    results["drawn"] = np.asarray(strategy.run(drawn))
    found = strategy.run(collectives, args=(tf.range(8, dtype=tf.float32),))
    results |= {f"collectives.{name}": np.asarray(value) for name, value in found.items()}
    variable = tf.Variable([float(index)])
    on_read = {"synchronization": tf.VariableSynchronization.ON_READ, "aggregation": tf.VariableAggregation.SUM}
    try:
        tf.Variable([0.0], name="total", **on_read)
        assert count == 1
    except ValueError as error:
        assert count > 1 and "variable 'total' with synchronization=ON_READ" in str(error), error
    results["variable"] = variable.numpy()
for framework in sys.argv[2:]:
    name, *numbers = framework.split(":")
    if name == "keras":
        import keras as framework_module
    else:
        import tf_keras as framework_module
    count_in_function(framework, framework_module)
    train(framework, framework_module, *map(int, numbers))
if index == 0:
    np.savez(sys.argv[1], **results)
