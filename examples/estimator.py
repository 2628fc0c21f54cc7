"""Train and evaluate a perceptron with IPUEstimator, as programs with TensorFlow 1's estimators do.

python examples/estimator.py [--folder folder] [--steps 4000]

A second run with the same folder goes on from the last checkpoint. TensorBoard (tensorboard --logdir folder) shows
losses and steps per second.
"""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

BATCH, FEATURES, CLASSES, STEPS_PER_LOOP, REPLICAS = 32, 64, 10, 500, 2
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(32000, FEATURES)).astype(np.float32)
Y = (X @ GENERATOR.normal(size=(FEATURES, CLASSES))).argmax(-1).astype(np.int32)


def input_fn(mode: str) -> tf.data.Dataset:
    """Batches of features, float32 [32, 64], and labels, int32 [32]; an endless number for training."""
    dataset = tf.data.Dataset.from_tensor_slices((X, Y))
    if mode == tf.estimator.ModeKeys.TRAIN:
        dataset = dataset.shuffle(len(X), seed=0).repeat()
    return dataset.batch(BATCH, drop_remainder=True)


def dense(x: tf.Tensor, units: int, name: str) -> tf.Tensor:
    """A fully connected layer."""
    with tf.variable_scope(name, use_resource=True):
        kernel = tf.get_variable("kernel", [x.shape[-1], units])
        return tf.matmul(x, kernel) + tf.get_variable("bias", [units], initializer=tf.zeros_initializer())


def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str, params: dict) -> tf.estimator.EstimatorSpec:
    """One step of the mode, on one replica."""
    logits = dense(tf.nn.relu(dense(features, 64, "hidden")), CLASSES, "logits")
    classes = tf.argmax(logits, 1, output_type=tf.int32)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions=classes)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = {"accuracy": tf.metrics.accuracy(labels, classes)}
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    optimizer = ipu.optimizers.CrossReplicaOptimizer(tf.train.AdamOptimizer(params["learning_rate"]))
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss))


def main() -> None:
    """Read the command line, train, evaluate, predict, print."""
    parser = argparse.ArgumentParser(description="Trains a perceptron with IPUEstimator.")
    parser.add_argument("--folder", help="a folder for checkpoints and summaries")
    parser.add_argument("--steps", type=int, default=4000, help="the global step at the end")
    options = parser.parse_args()
    ipus = ipu.config.IPUConfig()
    ipus.auto_select_ipus = REPLICAS
    ipu_run_config = ipu.ipu_run_config.IPURunConfig(STEPS_PER_LOOP, ipus, num_replicas=REPLICAS)
    config = ipu.ipu_run_config.RunConfig(ipu_run_config, model_dir=options.folder, save_summary_steps=STEPS_PER_LOOP)
    estimator = ipu.ipu_estimator.IPUEstimator(model_fn, config=config, params={"learning_rate": 0.001})
    estimator.train(input_fn, max_steps=options.steps)
    metrics = estimator.evaluate(input_fn, steps=STEPS_PER_LOOP)
    print(f"step {metrics['global_step']}: loss {metrics['loss']:.4f}, accuracy {metrics['accuracy']:6.1%}")
    predicted = list(estimator.predict(input_fn, num_predictions=8))
    print("classes", *predicted, "of", *Y[:8])


if __name__ == "__main__":
    main()
