"""IPUEstimator: training, evaluation, prediction, export and checkpoints, to the numbers of NumPy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import InvalidFile
from tests.estimators import training
from tests.estimators.models import (
    BATCH,
    BATCHES,
    RATE,
    ModeKeys,
    X,
    Y,
    dataset,
    regressed,
    regressor,
    repeated,
    run_config,
    v1,
)

IPUEstimator = ipu.ipu_estimator.IPUEstimator
IPUEstimatorSpec = ipu.ipu_estimator.IPUEstimatorSpec


def features() -> tf.data.Dataset:
    return dataset().map(lambda x, y: x)


def receiver() -> Any:
    fed = v1.placeholder(tf.float32, [None, 3])
    return v1.estimator.export.TensorServingInputReceiver(fed, {"x": fed})


def check_evaluated(metrics: dict[str, Any], w: np.ndarray) -> None:
    np.testing.assert_allclose(metrics["loss"], np.mean((X @ w - Y) ** 2), rtol=1e-4)
    np.testing.assert_allclose(metrics["mae"], np.abs(X @ w - Y).mean(), rtol=1e-4)


def test_a_regressor_from_training_to_export(tmp_path: Path) -> None:
    config = run_config(4, save_summary_steps=4, log_step_count_steps=4)
    estimator = IPUEstimator(regressor(), tmp_path / "model", config)
    assert estimator.train(repeated, steps=8) is estimator
    estimator = IPUEstimator(regressor(), tmp_path / "model", config)  # goes on from the checkpoint
    estimator.train(repeated, max_steps=16)
    estimator.train(repeated, max_steps=16)  # nothing is left to train
    w = estimator.get_variable_value("w")
    np.testing.assert_allclose(w, regressed(16), rtol=1e-5)
    assert estimator.get_variable_names() == ["global_step", "w"]
    assert estimator.get_variable_value("global_step") == 16

    for steps in (None, 8):
        metrics = estimator.evaluate(repeated if steps else dataset, steps)
        assert metrics["global_step"] == 16
        check_evaluated(metrics, w)
    predicted = np.stack([each["y"] for each in estimator.predict(features)])
    np.testing.assert_allclose(predicted, X @ w, rtol=1e-5, atol=1e-6)
    batches = list(estimator.predict(features, predict_keys=["y"], yield_single_examples=False))
    assert [batch["y"].shape for batch in batches] == [(BATCH, 1)] * BATCHES
    assert len(list(estimator.predict(lambda: features().repeat(), num_predictions=11))) == 11

    loaded = tf.saved_model.load(os.fsdecode(estimator.export_saved_model(str(tmp_path / "exported"), receiver)))
    served = loaded.signatures["serving_default"](tf.constant(X))["y"]
    np.testing.assert_allclose(served, X @ w, rtol=1e-5, atol=1e-6)

    assert "TensorSlice" not in (tmp_path / "model" / "graph.pbtxt").read_text()  # the data is in a graph of its own
    written = summaries(estimator.model_dir)
    assert len(written["loss"]) == 4 and written["loss"][-1] < written["loss"][0]
    assert min(written["global_step/sec"]) > 0
    np.testing.assert_allclose(summaries(estimator.eval_dir())["loss"], [metrics["loss"]] * 2, rtol=1e-6)


def summaries(folder: str | Path) -> dict[str, list[float]]:
    """The scalars in the event files of a folder, by tag."""
    found: dict[str, list[float]] = {}
    for path in sorted(Path(folder).glob("events*")):
        for record in tf.data.TFRecordDataset(str(path)):
            for value in v1.Event.FromString(record.numpy()).summary.value:
                found.setdefault(value.tag, []).append(value.simple_value)
    return found


@pytest.mark.parametrize("on_host", [False, True])
def test_replicas_share_a_global_batch(tmp_path: Path, on_host: bool) -> None:
    def adapted(params: dict[str, Any]) -> tf.data.Dataset:
        assert params["batch_size"] == BATCH // 2
        return dataset(params["batch_size"])

    def metrics(predictions: Any, labels: Any) -> dict[str, Any]:
        return {"mae": v1.metrics.mean_absolute_error(labels, predictions)}

    fields: dict[str, Any] = {}
    if on_host:
        fields["eval_metrics"] = lambda loss, predictions, labels: (metrics, [predictions, labels])
    else:
        fields["eval_metric_ops"] = lambda loss, predictions, labels: metrics(predictions, labels)
    optimizers = ipu.optimizers
    model_fn = regressor(lambda: optimizers.CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(RATE)), **fields)
    sizes = {f"{mode}_batch_size": BATCH for mode in ("train", "eval", "predict")}
    estimator = IPUEstimator(_with_params(model_fn), tmp_path, run_config(4, replicas=2), **sizes)
    estimator.train(lambda params: adapted(params).repeat(), steps=8)
    w = estimator.get_variable_value("w")
    np.testing.assert_allclose(w, regressed(8), rtol=1e-5)
    check_evaluated(estimator.evaluate(adapted), w)
    predicted = np.stack([each["y"] for each in estimator.predict(adapted)])
    np.testing.assert_allclose(predicted, X @ w, rtol=1e-5, atol=1e-6)


def _with_params(model_fn: Any) -> Any:
    def taking_params(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        return model_fn(features, labels, mode)

    return taking_params


def test_the_end_of_the_data(tmp_path: Path) -> None:
    estimator = IPUEstimator(regressor(), tmp_path, run_config(3))
    assert estimator.train(dataset).get_variable_value("global_step") == BATCHES // 3 * 3
    assert estimator.evaluate(dataset, steps=3)["global_step"] == 6  # steps end before the data set does
    with pytest.raises(ValueError, match="2 batches at the end"):
        estimator.evaluate(dataset)
    with pytest.raises(ValueError, match="2 batches at the end"):
        list(estimator.predict(lambda: dataset().filter(lambda x, y: True)))  # of unknown cardinality


def test_large_arrays_are_those_of_the_call(tmp_path: Path) -> None:
    def input_fn() -> tf.data.Dataset:
        x, y = np.tile(X, (2048, 1)), np.tile(Y, (2048, 1))
        made = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True)
        x[:] = y[:] = 0
        return made

    trained = IPUEstimator(regressor(), tmp_path, run_config(4)).train(input_fn, steps=16)
    np.testing.assert_allclose(trained.get_variable_value("w"), regressed(16), rtol=1e-5)


def test_a_host_call_without_arguments_is_called_after_each_step(tmp_path: Path) -> None:
    def count() -> tf.Operation:
        return v1.assign_add(v1.get_variable("calls", [], use_resource=True, initializer=v1.zeros_initializer()), 1.0)

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", [3, 1], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(features @ w - labels))
        step = v1.train.GradientDescentOptimizer(RATE).minimize(loss)
        return IPUEstimatorSpec(mode, loss=loss, train_op=step, host_call=(count, []))

    trained = IPUEstimator(model_fn, tmp_path, run_config(1)).train(repeated, steps=3)
    assert trained.get_variable_value("calls") == 3
    np.testing.assert_allclose(trained.get_variable_value("w"), regressed(3), rtol=1e-5)


@pytest.mark.parametrize("is_on_host", [False, True])
def test_a_metric_does_not_replace_the_mean_loss(tmp_path: Path, is_on_host: bool) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", [3, 1], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(features @ w - labels))
        if is_on_host:
            metrics = (lambda labels: {"loss": v1.metrics.mean(labels)}, [labels])
            return IPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)
        return IPUEstimatorSpec(mode, loss=loss, eval_metric_ops={"loss": v1.metrics.mean(labels)})

    with pytest.raises(ValueError, match="metrics of other names than 'loss'"):
        IPUEstimator(model_fn, tmp_path, run_config(1)).evaluate(repeated, steps=2)


def test_host_call_updates_on_the_host(tmp_path: Path) -> None:
    step: dict[str, Any] = {}

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", [3, 1], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(features @ w - labels))
        optimizer = v1.train.GradientDescentOptimizer(RATE)
        gradients = [gradient for gradient, _ in optimizer.compute_gradients(loss, [w])]
        call = lambda *on_host: optimizer.apply_gradients(zip(on_host, [w], strict=True), **step)  # noqa: E731
        return IPUEstimatorSpec(mode, loss=loss, train_op=tf.identity(loss), host_call=(call, gradients))

    trained = IPUEstimator(model_fn, tmp_path, run_config(1)).train(repeated, steps=3)
    np.testing.assert_allclose(trained.get_variable_value("w"), regressed(3), rtol=1e-5)
    with pytest.raises(ValueError, match="host_call"):
        IPUEstimator(model_fn, None, run_config(2)).train(repeated, steps=2)

    def model_fn_that_counts(features: Any, labels: Any, mode: str) -> Any:
        step["global_step"] = v1.train.get_global_step()
        return model_fn(features, labels, mode)

    with pytest.raises(ValueError, match="Expected host_call to leave the global step"):  # half the steps in silence
        IPUEstimator(model_fn_that_counts, None, run_config(1)).train(repeated, steps=4)


def test_lookup_tables_of_the_data() -> None:
    """A table of a session finds the rows, in each pass."""

    def looked_up() -> tf.data.Dataset:
        keys = tf.strings.as_string(tf.range(len(X)))
        table = v1.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.range(len(X))), -1)
        rows = tf.data.Dataset.range(len(X)).map(lambda row: table.lookup(tf.strings.as_string(row)))
        return rows.map(lambda row: (tf.gather(X, row), tf.gather(Y, row))).batch(BATCH, drop_remainder=True)

    estimator = IPUEstimator(regressor(), None, run_config(4))
    for _ in range(2):
        estimator.train(lambda: looked_up().repeat(), steps=BATCHES)
    np.testing.assert_allclose(estimator.get_variable_value("w"), regressed(2 * BATCHES), rtol=1e-5)
    check_evaluated(estimator.evaluate(looked_up), estimator.get_variable_value("w"))
    with pytest.raises(ValueError, match="2 batches at the end"):
        estimator.evaluate(lambda: looked_up().take(6).filter(lambda *_: True))


def test_a_warm_start(tmp_path: Path) -> None:
    first = IPUEstimator(regressor(), tmp_path / "first", run_config(4)).train(repeated, steps=8)
    exported = os.fsdecode(first.export_saved_model(str(tmp_path / "exported"), receiver))
    settings = v1.estimator.WarmStartSettings(first.model_dir, var_name_to_prev_var_name={"w": "w"})
    for source in (first.model_dir, exported, settings):
        second = IPUEstimator(regressor(), None, run_config(4), warm_start_from=source)
        second.train(repeated, steps=8)
        assert second.get_variable_value("global_step") == 8
        np.testing.assert_allclose(second.get_variable_value("w"), regressed(16), rtol=1e-5)


class Named(v1.estimator.Exporter):
    """Notes the checkpoints that it is given."""

    name = "named"

    def export(self, estimator: Any, export_path: str, checkpoint_path: str, result: Any, is_final: bool) -> Any:
        assert export_path == os.path.join(estimator.model_dir, "export", "named")
        return checkpoint_path.rpartition("-")[2], int(result["global_step"]), is_final


def test_train_and_evaluate(tmp_path: Path) -> None:
    estimator = IPUEstimator(regressor(), tmp_path, run_config(4, save_checkpoints_steps=4))
    exports, train = v1.estimator, v1.estimator.TrainSpec(repeated, max_steps=8)
    patterns = None, "eval/*.tfevents.*"
    best = [exports.BestExporter("best", receiver, pattern, exports_to_keep=1) for pattern in patterns]
    exporters = [Named(), exports.FinalExporter("final", receiver), best[0]]
    evaluation = v1.estimator.EvalSpec(dataset, steps=8, exporters=exporters, throttle_secs=0)
    metrics, exported = v1.estimator.train_and_evaluate(estimator, train, evaluation)
    assert metrics["global_step"] == 8 and exported[0] == ("8", 8, True)
    check_evaluated(metrics, regressed(8))
    made = [os.listdir(tmp_path / "export" / name) for name in ("final", "best")]
    assert made == [[os.path.basename(os.fsdecode(path))] for path in exported[1:]]
    for exporter in best:  # the second one reads from event files that the evaluation of step 4 was better than this
        worse = {**metrics, "loss": 1e3, "global_step": 12}
        assert exporter.export(estimator, str(tmp_path), estimator.latest_checkpoint(), worse, True) is None
    with pytest.raises(ValueError, match="serving_input_receiver_fn"):
        exports.BestExporter()
    with pytest.raises(ValueError, match="exports_to_keep"):
        exports.LatestExporter("latest", receiver, exports_to_keep=0)
    with pytest.raises(TypeError, match="train_spec"):
        v1.estimator.train_and_evaluate(estimator, evaluation, evaluation)


def test_shards_on_the_second_device(tmp_path: Path) -> None:
    def sharded(features: Any, labels: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            predictions = features @ v1.get_variable("w", [3, 1], initializer=v1.zeros_initializer())
        with ipu.scopes.ipu_shard(1):
            loss = tf.reduce_mean(tf.square(predictions - labels))
        assert features.device == predictions.device == loss.device == "/device:IPU:1"
        optimizer = ipu.optimizers.ShardedOptimizer(v1.train.GradientDescentOptimizer(RATE))
        return v1.estimator.EstimatorSpec(ModeKeys.TRAIN, loss=loss, train_op=optimizer.minimize(loss))

    options = ipu.config.IPUConfig()
    options.auto_select_ipus = [1, 2]
    config = ipu.ipu_run_config.IPURunConfig(4, options, compile_summary=True, num_shards=2, ordinal=1)
    trained = IPUEstimator(sharded, tmp_path, ipu.ipu_run_config.RunConfig(config)).train(repeated, steps=4)
    np.testing.assert_allclose(trained.get_variable_value("w"), regressed(4), rtol=1e-5)
    assert summaries(tmp_path).keys() == {"compile_summary", "loss"}


def test_the_spec_of_tensorflow_with_hooks() -> None:
    class Counting(v1.train.SessionRunHook):
        runs = 0

        def after_run(self, *_: Any) -> None:
            self.runs += 1

    def estimator(**fields: Any) -> Any:
        def model_fn(features: Any, labels: Any, mode: str) -> Any:
            spec = regressor()(features, labels, mode)
            outputs = spec.predictions, spec.loss, spec.train_op, spec.eval_metric_ops
            return v1.estimator.EstimatorSpec(mode, *outputs, **fields)

        return IPUEstimator(model_fn, None, run_config(4))

    hook, stop = Counting(), v1.train.StopAtStepHook(num_steps=8)
    kinds = ("training_chief_hooks", "training_hooks", "evaluation_hooks", "prediction_hooks")
    trained = estimator(**{kind: [hook] for kind in kinds}).train(repeated, [stop])
    assert hook.runs == 4 and trained.get_variable_value("global_step") == 8
    trained.evaluate(dataset)
    assert hook.runs == 6
    assert len(list(trained.predict(features))) == len(X) and hook.runs == 8
    with pytest.raises(ValueError, match="Received: 6 steps"):
        trained.train(repeated, [v1.train.StopAtStepHook(last_step=14)])
    with pytest.raises(ValueError, match="without scaffold"):
        estimator(scaffold=v1.train.Scaffold()).train(repeated, steps=4)


def test_what_is_refused(tmp_path: Path) -> None:
    def refused(match: str, model_fn: Any = None, config: Any = None, input_fn: Any = repeated, steps: int = 4) -> None:
        estimator = IPUEstimator(model_fn or regressor(), None, config or run_config(4))
        with pytest.raises(ValueError, match=match):
            estimator.train(input_fn, steps=steps)

    def counting() -> Any:
        optimizer = v1.train.GradientDescentOptimizer(RATE)
        minimize = optimizer.minimize
        optimizer.minimize = lambda loss: minimize(loss, global_step=v1.train.get_global_step())
        return optimizer

    def initialised(features: Any, labels: Any, mode: str) -> Any:
        spec = regressor()(features, labels, mode)
        v1.train.init_from_checkpoint(trained.model_dir, {"w": "w"})
        return spec

    trained = IPUEstimator(regressor(), tmp_path / "trained", run_config(4)).train(repeated, steps=4)
    refused("Received: 'w:0', initialised .*Use warm_start_from", initialised)

    refused("multiple of iterations_per_loop, 4.*Received: 6.*Nearest: 8", steps=6)
    refused("steps to be 1 or more", steps=0)
    refused("tf.data.Dataset", input_fn=lambda: (X, Y))
    refused("CrossReplicaOptimizer", config=run_config(4, replicas=2))
    refused("global step", regressor(counting))
    refused("train_op", regressor(train_op=lambda *_: None))
    refused("IPUEstimatorSpec", lambda features, labels: None)
    with pytest.raises(tf.errors.InvalidArgumentError, match="2 shards, for 1 replicas"):
        IPUEstimator(regressor(), None, run_config(4, shards=2)).train(repeated, steps=4)
    estimator = IPUEstimator(regressor(), tmp_path, run_config(4))
    with pytest.raises(ValueError, match="Train the model first"):
        estimator.get_variable_names()
    with pytest.raises(ValueError, match="one of steps and max_steps"):
        estimator.train(repeated, steps=4, max_steps=4)
    with pytest.raises(ValueError, match="predict_keys among"):
        next(estimator.predict(features, predict_keys=["y", "z"]))
    with pytest.raises(ValueError, match=r"predict_keys among \['y'\]. Received: \['xyz'\]"):
        next(estimator.predict(features, predict_keys="xyz"))
    with pytest.raises(ValueError, match="'train', 'eval', 'infer'. Received: .*'bogus'"):
        trained.export_saved_model(str(tmp_path / "exported"), receiver, experimental_mode="bogus")
    with pytest.raises(ValueError, match="multiple of the number of replicas"):
        IPUEstimator(regressor(), None, run_config(4, replicas=2), train_batch_size=5)
    with pytest.raises(ValueError, match="eval_metric_ops or eval_metrics"):
        IPUEstimator(regressor(eval_metric_ops=lambda *_: None), None, run_config(4)).evaluate(dataset)
    with pytest.raises(ValueError, match="one of eval_metric_ops and eval_metrics"):
        IPUEstimatorSpec(ModeKeys.EVAL, eval_metric_ops={}, eval_metrics=(len, []))
    with pytest.raises(ValueError, match="host_call to be a tuple"):
        IPUEstimatorSpec(ModeKeys.TRAIN, host_call=len)


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Training resumes to the numbers of a training from that one; where none is whole it is an error."""
    whole, folder = str(tmp_path / "whole"), tmp_path / "damaged"
    expected = training.train(whole, 24)
    training.train(str(folder), 16)
    for data in folder.glob("model.ckpt-16.data*"):  # a shard for each device that has variables
        data.write_bytes(data.read_bytes()[:-4])
    resumed = training.train(str(folder), 24)
    assert "model.ckpt-16 is damaged" in caplog.text and "model.ckpt-8 is restored" in caplog.text
    for name in expected.get_variable_names():
        np.testing.assert_array_equal(resumed.get_variable_value(name), expected.get_variable_value(name), name)
    for each in folder.glob("*.index"):
        each.write_bytes(b"torn")
    with pytest.raises(InvalidFile, match="whole checkpoint in .*model.ckpt-24, which is damaged"):
        training.train(str(folder), 32)
