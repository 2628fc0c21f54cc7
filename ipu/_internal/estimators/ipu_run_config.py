"""The part of a run's configuration that is of the IPU."""

from __future__ import annotations

import logging
from collections import namedtuple
from typing import Any

from engine.errors import ConfigurationError
from engine.integers import checked_integer
from ipu._internal.config.ipu_config import IPUConfig
from ipu._internal.config.legacy import IpuOptions
from ipu._internal.config.validation import normalise_selection
from ipu._internal.estimators import run_config

LOGGER = logging.getLogger("ipu.estimators")
IPURunConfigBase = namedtuple(
    "IPURunConfigBase", "iterations_per_loop ipu_options compile_summary num_replicas num_shards ordinal prefetch_depth"
)


class IPURunConfig(IPURunConfigBase):
    """IPU-related configuration of an IPUEstimator (Python API, 18.12.3).

    Args:
        iterations_per_loop: the number of mini-batches of each replica in one Session.run.
        ipu_options: an IPUConfig, or the IpuOptions of older programs, which each run configures; None leaves what the
            process has configured.
        compile_summary: whether a summary of the compilation is written.
        num_replicas: the number of replicas of the graph.
        num_shards: the number of IPUs that one replica is sharded on.
        ordinal: the ordinal of the IPU device.
        prefetch_depth: the prefetch_depth of the IPUInfeedQueue, or None.

    Raises:
        ValueError: a number is out of range, there are several IPUs and no options, or the device with that ordinal
            has another number of IPUs than num_replicas * num_shards.
        TypeError: `ipu_options` is no configuration.
    """

    __slots__ = ()

    def __new__(
        cls,
        iterations_per_loop: int = 1,
        ipu_options: IPUConfig | IpuOptions | None = None,
        compile_summary: bool = False,
        num_replicas: int = 1,
        num_shards: int = 1,
        ordinal: int = 0,
        prefetch_depth: int | None = None,
    ) -> IPURunConfig:
        for name, value in (
            ("iterations_per_loop", iterations_per_loop),
            ("num_replicas", num_replicas),
            ("num_shards", num_shards),
        ):
            checked_integer(name, value, 1)
        checked_integer("ordinal", ordinal, 0)
        ipus = num_replicas * num_shards
        if ipu_options is None:
            if ipus > 1:
                raise ConfigurationError(
                    f"Expected ipu_options with several replicas or shards. Received: None with {num_replicas} "
                    f"replicas of {num_shards} shards. Pass an IPUConfig with auto_select_ipus = {ipus}."
                )
        elif isinstance(ipu_options, IpuOptions):
            LOGGER.warning("Expected ipu_options to be an IPUConfig. Received: IpuOptions, which is deprecated.")
        elif not isinstance(ipu_options, IPUConfig):
            raise TypeError(f"Expected ipu_options to be an IPUConfig. Received: {ipu_options!r}.")
        if ipu_options is not None:
            _check_ipus(ipu_options, ordinal, ipus)
        return super().__new__(
            cls, iterations_per_loop, ipu_options, compile_summary, num_replicas, num_shards, ordinal, prefetch_depth
        )


def _check_ipus(options: Any, ordinal: int, ipus: int) -> None:
    normalise_selection(options)
    selected = list(options.auto_select_ipus) or list(options.select_ipus) or [1]
    if ordinal >= len(selected):
        raise ConfigurationError(
            f"Expected ordinal to be below the number of devices in ipu_options, {len(selected)}. Received: {ordinal}."
        )
    if not options.select_ipus and selected[ordinal] != ipus:
        raise ConfigurationError(
            f"Expected num_replicas * num_shards to be the number of IPUs of /device:IPU:{ordinal}, "
            f"{selected[ordinal]}. Received: {ipus}. Set auto_select_ipus = {ipus}."
        )


class RunConfig(run_config.RunConfig):
    """Configuration of an IPUEstimator's runs (Python API, 18.12.3).

    Args:
        ipu_run_config: an IPURunConfig; its defaults if None.
        master: accepted as "" or None: sessions are those of this process.
        **kwargs: as those of tf.estimator.RunConfig: model_dir; tf_random_seed (1), of initializers and of input
            functions, not of random numbers on the device, which `ipu.utils.reset_ipu_seed` seeds; device_fn;
            session_config; save_summary_steps (100); save_checkpoints_steps or save_checkpoints_secs (600 if neither
            is given); keep_checkpoint_max (5); keep_checkpoint_every_n_hours (10000); log_step_count_steps (100);
            session_creation_timeout_secs, without effect; train_distribute, an IPUMultiWorkerStrategy or a
            PopDistStrategy. eval_distribute, experimental_distribute, protocol and experimental_max_worker_delay_secs
            must be None.

    Raises:
        TypeError: `ipu_run_config` is no IPURunConfig.
        ValueError: as tf.estimator.RunConfig, or another master.
    """

    def __init__(self, ipu_run_config: IPURunConfig | None = None, master: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if ipu_run_config is not None and not isinstance(ipu_run_config, IPURunConfig):
            raise TypeError(f"Expected ipu_run_config to be an IPURunConfig. Received: {ipu_run_config!r}.")
        if master:
            raise ConfigurationError(f"Expected master to be None: sessions are of this process. Received: {master!r}.")
        self.ipu_run_config = IPURunConfig() if ipu_run_config is None else ipu_run_config
