"""The session of a training, with the hooks that the run's configuration asks for."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.estimators.hooks import SummariesOfLoops, for_loops
from ipu._internal.estimators.run_config import RunConfig
from ipu._internal.estimators.specs import EstimatorSpec

v1 = tf.compat.v1
LOGGER = logging.getLogger("ipu.estimators")


def train(
    spec: EstimatorSpec, hooks: list[Any], listeners: Any, config: RunConfig, session_config: Any, iterations: int
) -> None:
    """Runs the training operation of `spec` in the default graph until a hook stops it.

    Each run increases the global step by `iterations`. Raises ConfigurationError for listeners without checkpoints.
    """
    global_step = v1.train.get_global_step()
    scaffold = spec.scaffold or v1.train.Scaffold()
    if not scaffold.saver and not v1.get_collection(v1.GraphKeys.SAVERS):
        saver = v1.train.Saver(
            sharded=True,
            max_to_keep=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
            defer_build=True,
            save_relative_paths=True,
        )
        v1.add_to_collection(v1.GraphKeys.SAVERS, saver)
    v1.summary.scalar("loss", spec.loss)
    with tf.control_dependencies([spec.train_op]):
        step = global_step.read_value()
    hooks = [v1.train.NanTensorHook(spec.loss), *(for_loops(hook, iterations) for hook in hooks)]
    if config.log_step_count_steps:
        runs = max(config.log_step_count_steps // iterations, 1)
        hooks.append(v1.train.LoggingTensorHook({"loss": spec.loss, "step": step}, every_n_iter=runs))
        folder = config.model_dir if config.writes_files else None
        counter = v1.train.StepCounterHook(config.log_step_count_steps, output_dir=folder)
        hooks.append(for_loops(counter, iterations))
    chief_hooks = _chief_hooks(spec, hooks, listeners, config, scaffold, iterations) if config.writes_files else []
    session = v1.train.MonitoredTrainingSession(
        checkpoint_dir=config.model_dir,
        scaffold=scaffold,
        hooks=hooks,
        chief_only_hooks=chief_hooks,
        save_checkpoint_secs=0,
        save_summaries_steps=None,
        save_summaries_secs=None,
        config=session_config,
        log_step_count_steps=0,
        max_wait_secs=config.session_creation_timeout_secs,
    )
    loss = None
    with session:
        while not session.should_stop():
            loss, _ = session.run([spec.loss, spec.train_op])
    LOGGER.info("Loss for final step: %s.", loss)


def _chief_hooks(
    spec: EstimatorSpec, hooks: list[Any], listeners: Any, config: RunConfig, scaffold: Any, iterations: int
) -> list[Any]:
    """Hooks of the spec, and those that save summaries and, where no hook does so already, checkpoints."""
    chief_hooks = [for_loops(hook, iterations) for hook in spec.training_chief_hooks]
    if config.save_summary_steps:
        folder = config.model_dir
        chief_hooks.append(
            SummariesOfLoops(iterations, save_steps=config.save_summary_steps, scaffold=scaffold, output_dir=folder)
        )
    saving = [hook for hook in (*hooks, *chief_hooks) if isinstance(hook, v1.train.CheckpointSaverHook)]
    if not saving and (config.save_checkpoints_secs or config.save_checkpoints_steps):
        steps, seconds = config.save_checkpoints_steps, config.save_checkpoints_secs
        saving = [
            for_loops(v1.train.CheckpointSaverHook(config.model_dir, seconds, steps, scaffold=scaffold), iterations)
        ]
        chief_hooks += saving
    if listeners and not saving:
        raise ConfigurationError(
            "Expected checkpoints for saving_listeners. Received: save_checkpoints_secs and "
            "save_checkpoints_steps of None in the RunConfig."
        )
    for hook in saving[:1]:
        hook._listeners = (*hook._listeners, *(listeners or ()))
    return chief_hooks


def check_one_process(config: RunConfig) -> None:
    """Raises ConfigurationError if the process is one of a cluster, and has no strategy for its workers."""
    if config.train_distribute is not None:
        return
    if config.cluster_spec.as_dict() or config.task_type == "evaluator":
        raise ConfigurationError("Expected training in one process. Received: a cluster in TF_CONFIG. Unset it.")
