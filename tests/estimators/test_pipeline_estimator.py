"""IPUPipelineEstimator equals an IPUEstimator of the unsplit model, in each schedule and on replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.estimators.models import ModeKeys, X, dataset, repeated, run_config, v1, weights

ACCUMULATED = 4
Spec = ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec
PipelineEstimator = ipu.ipu_pipeline_estimator.IPUPipelineEstimator
Schedule = ipu.pipelining_ops.PipelineSchedule


def features() -> tf.data.Dataset:
    return dataset().map(lambda x, y: x)


def optimizer() -> Any:
    return v1.train.GradientDescentOptimizer(0.01)


def metrics(loss: Any, predictions: Any, labels: Any) -> dict[str, Any]:
    return {"loss": loss, "mae": v1.metrics.mean_absolute_error(labels, predictions)}


def split(schedule: Any, replicated: bool = False) -> Any:
    def model_fn(mode: str) -> Any:
        def stage1(x: Any, *labels: Any) -> Any:
            return tf.tanh(x @ weights("a", [3, 4])), *labels

        def stage2(hidden: Any, *labels: Any) -> Any:
            predictions = hidden @ weights("b", [4, 1])
            if mode == ModeKeys.PREDICT:
                return predictions
            return tf.reduce_mean(tf.square(predictions - labels[0])), predictions, labels[0]

        def optimizer_function(loss: Any, *_: Any) -> Any:
            used = ipu.optimizers.CrossReplicaOptimizer(optimizer()) if replicated else optimizer()
            return ipu.pipelining_ops.OptimizerFunctionOutput(used, loss)

        functions = {"eval_metrics_fn": metrics, "optimizer_function": optimizer_function}
        more: dict[str, Any] = {"device_mapping": [1, 0]} if schedule is Schedule.Sequential else {}
        if schedule is Schedule.Interleaved:
            more["forward_propagation_stages_poplar_options"] = [ipu.pipelining_ops.PipelineStageOptions()] * 2
        return Spec(mode, [stage1, stage2], ACCUMULATED, **functions, **more, pipeline_schedule=schedule)

    return model_fn


def unsplit(features: Any, labels: Any, mode: str) -> Any:
    predictions = tf.tanh(features @ weights("a", [3, 4])) @ weights("b", [4, 1])
    if mode == ModeKeys.PREDICT:
        return v1.estimator.EstimatorSpec(mode, predictions=predictions)
    loss = tf.reduce_mean(tf.square(predictions - labels))
    if mode == ModeKeys.EVAL:
        made = {"mae": v1.metrics.mean_absolute_error(labels, predictions)}
        return v1.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=made)
    accumulated = ipu.optimizers.GradientAccumulationOptimizerV2(optimizer(), ACCUMULATED)
    return v1.estimator.EstimatorSpec(mode, loss=loss, train_op=accumulated.minimize(loss))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    estimator = ipu.ipu_estimator.IPUEstimator(unsplit, tmp_path_factory.mktemp("unsplit"), run_config(8))
    return estimator.train(repeated, steps=16), estimator.evaluate(dataset)


@pytest.mark.sample(2)
@pytest.mark.parametrize("schedule", list(Schedule))
def test_a_pipeline_equals_the_unsplit_model(schedule: Any, tmp_path: Path, alone: Any) -> None:
    estimator = PipelineEstimator(split(schedule), tmp_path, run_config(8, shards=2))
    estimator.train(repeated, steps=16)
    for name in ("a", "b", "global_step"):
        np.testing.assert_allclose(estimator.get_variable_value(name), alone[0].get_variable_value(name), rtol=1e-5)
    if schedule is Schedule.Grouped:
        evaluated = estimator.evaluate(dataset)
        assert evaluated.keys() == alone[1].keys()
        for name, value in alone[1].items():
            np.testing.assert_allclose(evaluated[name], value, rtol=1e-5, err_msg=name)
        predicted, expected = (np.stack(list(each.predict(features))) for each in (estimator, alone[0]))
        assert predicted.shape == (len(X), 1)
        np.testing.assert_allclose(predicted, expected, rtol=1e-5, atol=1e-6)


def test_a_pipeline_on_replicas(tmp_path: Path) -> None:
    estimator = PipelineEstimator(split(Schedule.Grouped, True), tmp_path, run_config(4, replicas=2, shards=2))
    estimator.train(repeated, steps=4)
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        a, b = weights("a", [3, 4]), weights("b", [4, 1])
        fed = v1.placeholder(tf.float32, [None, 3]), v1.placeholder(tf.float32, [None, 1])
        loss = tf.reduce_mean(tf.square(tf.tanh(fed[0] @ a) @ b - fed[1]))
        train = v1.train.GradientDescentOptimizer(0.01 * ACCUMULATED).minimize(loss)
        session.run(v1.global_variables_initializer())
        session.run(train, {fed[0]: X, fed[1]: X @ np.array([[1.0], [2.0], [3.0]], np.float32)})
        expected = session.run([a, b])
    for name, value in zip("ab", expected, strict=True):
        np.testing.assert_allclose(estimator.get_variable_value(name), value, rtol=1e-4)


@pytest.mark.parametrize(("dtype", "is_finite"), [(None, False), (tf.float32, True)])
def test_losses_are_summed_in_their_dtype(tmp_path: Path, dtype: Any, is_finite: bool) -> None:
    """Four losses of 30,000 exceed the largest float16."""

    def model_fn(mode: str) -> Any:
        def loss(x: Any, y: Any) -> Any:
            return tf.cast(tf.reduce_mean(x @ v1.get_variable("w", [3, 1])) * 0 + 3e4, tf.float16)

        def train(loss: Any) -> Any:
            return ipu.pipelining_ops.OptimizerFunctionOutput(optimizer(), loss)

        functions = {"optimizer_function": train, "loss_accumulator_dtype": dtype}
        return Spec(mode, [lambda x, y: (x, y), loss], ACCUMULATED, **functions, device_mapping=[0, 1])

    PipelineEstimator(model_fn, tmp_path, run_config(4, shards=2, save_summary_steps=4)).train(repeated, steps=4)
    (path,) = tmp_path.glob("events*")
    values = [v for event in v1.train.summary_iterator(str(path)) for v in event.summary.value if v.tag == "loss"]
    assert [np.isfinite(v.simple_value) for v in values] == [is_finite]


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 1 IPUs.*Received: stages on 2"):
        PipelineEstimator(split(Schedule.Grouped), None, run_config(8)).train(repeated, steps=8)
    with pytest.raises(ValueError, match="multiple of gradient_accumulation_count, 4.*Nearest: 8"):
        PipelineEstimator(split(Schedule.Grouped), None, run_config(6, shards=2)).train(repeated, steps=6)
    with pytest.raises(ValueError, match="optimizer_function"):
        Spec(ModeKeys.TRAIN, [], 4)
    with pytest.raises(ValueError, match="eval_metrics_fn"):
        Spec(ModeKeys.EVAL, [], 4)
    with pytest.raises(ValueError, match="gradient_accumulation_count"):
        Spec(ModeKeys.PREDICT, [])
    for name in ("accumulate_outfeed", "repeat_count", "eval_hooks_fn"):
        with pytest.raises(ValueError, match=name):
            Spec(ModeKeys.PREDICT, [], 4, **{name: 1})
