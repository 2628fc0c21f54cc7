"""The configuration of an estimator's runs: `RunConfig` of tf.estimator."""

from __future__ import annotations

import copy
import json
import os
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu.distributed.popdist_strategy import PopDistStrategy
from ipu.ipu_multi_worker_strategy import IPUMultiWorkerStrategyV1

DEFAULT_SECONDS = 600
FIELDS = {
    "model_dir": None,
    "tf_random_seed": 1,
    "save_summary_steps": 100,
    "save_checkpoints_steps": None,
    "save_checkpoints_secs": None,
    "session_config": None,
    "keep_checkpoint_max": 5,
    "keep_checkpoint_every_n_hours": 10000,
    "log_step_count_steps": 100,
    "train_distribute": None,
    "device_fn": None,
    "protocol": None,
    "eval_distribute": None,
    "experimental_distribute": None,
    "experimental_max_worker_delay_secs": None,
    "session_creation_timeout_secs": 7200,
}
TRAINING = "train_distribute"
STRATEGIES = (IPUMultiWorkerStrategyV1, PopDistStrategy)
DISTRIBUTED = (TRAINING, "eval_distribute", "experimental_distribute")
OF_CLUSTERS = ("protocol", "experimental_max_worker_delay_secs")
LEAST = {
    "save_summary_steps": 0,
    "save_checkpoints_steps": 0,
    "save_checkpoints_secs": 0,
    "keep_checkpoint_max": 0,
    "log_step_count_steps": 1,
    "session_creation_timeout_secs": 1,
}
"""The least numbers; 0 means None."""


class RunConfig:
    """Configuration of an estimator's runs.

    Its arguments, which are attributes too, are those of tf.estimator.RunConfig; the cluster is that of the
    environment variable TF_CONFIG. `train_distribute` may be an IPUMultiWorkerStrategy or a PopDistStrategy; others are
    refused.

    Raises:
        ValueError: an unknown argument, both save_checkpoints_steps and save_checkpoints_secs, too small a number, a
            TF_CONFIG that contradicts itself, a strategy, or an argument for the servers of a cluster.
        TypeError: session_config is no ConfigProto, or device_fn no function.
    """

    model_dir: Any
    save_summary_steps: int | None
    save_checkpoints_steps: int | None
    save_checkpoints_secs: float | None
    keep_checkpoint_max: int | None
    keep_checkpoint_every_n_hours: float
    log_step_count_steps: int | None
    session_creation_timeout_secs: int
    train_distribute: IPUMultiWorkerStrategyV1 | PopDistStrategy | None

    def __init__(self, **kwargs: Any) -> None:
        unknown = sorted(kwargs.keys() - FIELDS.keys())
        if unknown:
            raise ConfigurationError(f"Expected arguments of RunConfig: {', '.join(FIELDS)}. Received: {unknown}.")
        values = {**FIELDS, **kwargs}
        _check(values)
        if not {"save_checkpoints_steps", "save_checkpoints_secs"} & kwargs.keys():
            values["save_checkpoints_secs"] = DEFAULT_SECONDS
        if values["model_dir"] is not None:
            values["model_dir"] = os.fspath(values["model_dir"])
        self.__dict__.update(values)
        self._set_cluster(json.loads(os.environ.get("TF_CONFIG") or "{}"))

    def _set_cluster(self, environment: dict[str, Any]) -> None:
        cluster, task = environment.get("cluster", {}), environment.get("task", {})
        self.cluster_spec = tf.train.ClusterSpec(cluster)
        self.task_type, self.task_id = task.get("type", "worker"), int(task.get("index", 0))
        self.service = environment.get("service")
        self.evaluator_master = ""
        chiefs = 1 if self.train_distribute is None else len(cluster.get("chief", []))
        if cluster and (len(cluster.get("chief", [])) != chiefs or not {"type", "index"} <= task.keys()):
            raise ConfigurationError(
                f"Expected TF_CONFIG with one chief, and the type and index of the task. Received: {environment}."
            )
        if not cluster and self.task_type not in ("worker", "evaluator") or not cluster and self.task_id:
            raise ConfigurationError(f"Expected the cluster of the task in TF_CONFIG. Received: {environment}.")
        if self.task_type == "evaluator":
            self.cluster_spec = tf.train.ClusterSpec({})
            self.master, self.is_chief = "", False
            self.num_ps_replicas = self.num_worker_replicas = 0
            return
        if cluster and not 0 <= self.task_id < len(cluster.get(self.task_type, [])):
            raise ConfigurationError(f"Expected a task of the cluster in TF_CONFIG. Received: {environment}.")
        self.master = self.cluster_spec.task_address(self.task_type, self.task_id) if cluster else ""
        self.is_chief = self.writes_files if self.train_distribute else not cluster or self.task_type == "chief"
        self.num_ps_replicas = len(cluster.get("ps", []))
        self.num_worker_replicas = len(cluster.get("worker", [])) + len(cluster.get("chief", [])) if cluster else 1

    @property
    def workers(self) -> int:
        """The number of workers that train."""
        transport = None if self.train_distribute is None else self.train_distribute.transport
        return 1 if transport is None else transport.size

    @property
    def writes_files(self) -> bool:
        """Whether this process writes checkpoints and summaries of a training."""
        return self.train_distribute is None or bool(self.train_distribute.extended.should_checkpoint)

    def replace(self, **kwargs: Any) -> RunConfig:
        """A copy with other values of the given arguments. Raises as the constructor."""
        config = copy.copy(self)
        checked = RunConfig(**kwargs)
        config.__dict__.update({name: getattr(checked, name) for name in kwargs})
        for name, other in (
            ("save_checkpoints_steps", "save_checkpoints_secs"),
            ("save_checkpoints_secs", "save_checkpoints_steps"),
        ):
            if kwargs.get(name) is not None:
                config.__dict__[other] = None
        return config


def _check(values: dict[str, Any]) -> None:
    if values["save_checkpoints_steps"] is not None and values["save_checkpoints_secs"] is not None:
        raise ConfigurationError(
            "Expected one of save_checkpoints_steps and save_checkpoints_secs. Received: both. Leave one out."
        )
    for name, least in LEAST.items():
        if values[name] is not None and values[name] < least:
            raise ConfigurationError(f"Expected {name} to be {least} or more, or None. Received: {values[name]}.")
    if values["device_fn"] is not None and not callable(values["device_fn"]):
        raise TypeError(f"Expected device_fn to be a function of an operation. Received: {values['device_fn']!r}.")
    if not isinstance(values["session_config"], tf.compat.v1.ConfigProto | None):
        raise TypeError(f"Expected session_config to be a ConfigProto. Received: {values['session_config']!r}.")
    for name in DISTRIBUTED:
        if values[name] is not None and not (name == TRAINING and isinstance(values[name], STRATEGIES)):
            strategies = ", an IPUMultiWorkerStrategy or a PopDistStrategy" if name == TRAINING else ""
            raise ConfigurationError(
                f"Expected {name} to be None{strategies}. Received: {values[name]!r}. Replicate with "
                f"IPURunConfig(num_replicas=...)."
            )
    for name in OF_CLUSTERS:
        if values[name] is not None:
            raise ConfigurationError(
                f"Expected {name} to be None: training is in this process. Received: {values[name]!r}. Leave it out."
            )
