"""General utilities: the public names of `tensorflow.python.ipu.utils`."""

from __future__ import annotations

import re

from engine.errors import ConfigurationError
from ipu._config.legacy_functions import (
    auto_select_ipus,
    create_ipu_config,
    select_ipus,
    set_compilation_options,
    set_convolution_options,
    set_experimental_multi_replica_distribution_options,
    set_floating_point_behaviour_options,
    set_gcl_options,
    set_io_tile_options,
    set_ipu_connection_type,
    set_ipu_model_options,
    set_matmul_options,
    set_norm_options,
    set_optimization_options,
    set_pooling_options,
    set_recomputation_options,
    set_report_options,
    set_serialization_options,
    set_transfer_options,
    set_verification_options,
)
from ipu._device import current_system, on_ipu_model
from ipu.config import (
    DeviceConnectionType,
    ExecutionProfileType,
    KeyId,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    VerificationOptions,
    configure_ipu_system,
    get_ipu_config,
    reset_ipu_configuration,
)

__all__ = [
    "DeviceConnectionType",
    "ExecutionProfileType",
    "KeyId",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "VerificationOptions",
    "auto_select_ipus",
    "configure_ipu_system",
    "create_ipu_config",
    "get_ipu_config",
    "get_num_of_ipus_in_device",
    "reset_ipu_configuration",
    "running_on_ipu_model",
    "select_ipus",
    "set_compilation_options",
    "set_convolution_options",
    "set_experimental_multi_replica_distribution_options",
    "set_floating_point_behaviour_options",
    "set_gcl_options",
    "set_io_tile_options",
    "set_ipu_connection_type",
    "set_ipu_model_options",
    "set_matmul_options",
    "set_norm_options",
    "set_optimization_options",
    "set_pooling_options",
    "set_recomputation_options",
    "set_report_options",
    "set_serialization_options",
    "set_transfer_options",
    "set_verification_options",
]


def get_num_of_ipus_in_device(ipu_device: str, device: str = "cpu") -> int:
    """Get the number of physical IPUs, those of all replicas together.

    Args:
        ipu_device: the IPU device, such as "/device:IPU:0".
        device: the CPU device which is local to the IPU hardware.

    Raises:
        ValueError: `ipu_device` names no IPU device, or one that is not configured.
    """
    match = re.search(r"IPU:(\d+)$", ipu_device, re.IGNORECASE)
    if match is None:
        raise ConfigurationError(f"Expected the name of an IPU device, as '/device:IPU:0'. Received: {ipu_device!r}.")
    return current_system().device(int(match[1])).ipus


def running_on_ipu_model() -> bool:
    """Check if programs are to run on the IPU model, which TF_POPLAR_FLAGS=--use_ipu_model asks for."""
    return on_ipu_model()
