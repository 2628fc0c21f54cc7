"""Run configurations and IPULoggingTensorHook."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.estimators.models import BATCH, X, Y, regressed, regressor, repeated, run_config, v1

IPURunConfig, RunConfig = ipu.ipu_run_config.IPURunConfig, ipu.ipu_run_config.RunConfig
Hook = ipu.ipu_session_run_hooks.IPULoggingTensorHook
CLUSTER = {"chief": ["host0:2222"], "ps": ["host1:2222", "host2:2222"], "worker": ["host3:2222", "host4:2222"]}


def options(ipus: Any) -> Any:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    return config


def test_ipus_of_a_run_config() -> None:
    assert IPURunConfig() == (1, None, False, 1, 1, 0, None)
    IPURunConfig(ipu_options=options([1, 4]), num_replicas=2, num_shards=2, ordinal=1)
    with pytest.raises(ValueError, match="Expected ipu_options"):
        IPURunConfig(num_replicas=2)
    with pytest.raises(ValueError, match="number of devices"):
        IPURunConfig(ipu_options=options(1), ordinal=1)
    with pytest.raises(ValueError, match=r"device:IPU:0, 4\. Received: 2"):
        IPURunConfig(ipu_options=options(4), num_replicas=2)
    with pytest.raises(TypeError, match="IPUConfig"):
        IPURunConfig(ipu_options="two")
    with pytest.raises(TypeError, match="IPURunConfig"):
        RunConfig(ipu_run_config=options(1))


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (("worker", 1), ("host4:2222", 1, 2, 3, False)),
        (("chief", 0), ("host0:2222", 0, 2, 3, True)),
        (("evaluator", 0), ("", 0, 0, 0, False)),
        (None, ("", 0, 0, 1, True)),
    ],
)
def test_the_cluster_of_a_run_config(monkeypatch: pytest.MonkeyPatch, task: Any, expected: Any) -> None:
    if task is not None:
        named = {"type": task[0], "index": task[1]}
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": CLUSTER, "task": named}))
    config = RunConfig(save_checkpoints_steps=5)
    assert expected == (
        *(config.master, config.task_id, config.num_ps_replicas, config.num_worker_replicas),
        config.is_chief,
    )
    assert config.save_checkpoints_secs is None and RunConfig().save_checkpoints_secs == 600
    if task is not None:
        with pytest.raises(ValueError, match="a cluster in TF_CONFIG"):
            ipu.ipu_estimator.IPUEstimator(regressor(), config=config).train(repeated, steps=1)


def test_what_a_run_config_refuses() -> None:
    with pytest.raises(ValueError, match="Received: both"):
        RunConfig(save_checkpoints_steps=5, save_checkpoints_secs=5)
    for name in ("train_distribute", "protocol", "experimental_max_worker_delay_secs"):
        with pytest.raises(ValueError, match=f"{name} to be None"):
            RunConfig(**{name: 5})
    for name in ("master", "steps"):
        with pytest.raises(ValueError, match=name):
            RunConfig(**{name: "grpc://host"})
    with pytest.raises(ValueError, match="log_step_count_steps to be 1 or more"):
        RunConfig(log_step_count_steps=0)
    for name in ("session_config", "device_fn"):
        with pytest.raises(TypeError, match=name):
            RunConfig(**{name: "/device:CPU:0"})


def test_a_hook_logs_tensors_of_the_program(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []
    mode = Hook.LoggingMode.ALL
    hook = Hook(every_n_iter=2, at_end=True, logging_mode=mode, formatter=lambda v: seen.append(v) or str(v))

    def model_fn(features: Any, labels: Any) -> Any:
        spec = regressor()(features, labels, "train")
        return spec._replace(train_op=tf.group(spec.train_op, hook.log({"loss": spec.loss})), training_hooks=[hook])

    with caplog.at_level(logging.INFO, logger="tensorflow"):
        ipu.ipu_estimator.IPUEstimator(model_fn, tmp_path, run_config(2)).train(repeated, steps=6)
    losses = np.concatenate([values["loss"] for values in seen])
    batches = zip(X.reshape(-1, BATCH, 3), Y.reshape(-1, BATCH, 1), range(6), strict=False)
    np.testing.assert_allclose(losses, [np.mean((x @ regressed(step) - y) ** 2) for x, y, step in batches], rtol=1e-4)
    assert "'loss'" in caplog.text


def test_what_the_hook_refuses() -> None:
    for arguments in ({}, {"every_n_iter": 1, "every_n_secs": 1}, {"every_n_iter": 0}):
        with pytest.raises(ValueError, match="every_n_iter"):
            Hook(**arguments)
    hook = Hook(at_end=True)
    with pytest.raises(TypeError, match="tensors to log"):
        hook.log([1])
    with pytest.raises(RuntimeError, match="log"), tf.Graph().as_default():
        v1.train.MonitoredSession(hooks=[hook])
