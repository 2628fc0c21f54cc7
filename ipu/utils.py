"""General utilities: the public names of `tensorflow.python.ipu.utils`."""

from __future__ import annotations

import operator
import re
from typing import SupportsIndex

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
from ipu._device import Device, current_system, on_ipu_model
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
    "reset_ipu_seed",
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
    return _device_named(ipu_device).ipus


def reset_ipu_seed(
    seed: SupportsIndex,
    device: str = "/device:IPU:0",
    cpu_device: str = "cpu",
    experimental_identical_replicas: bool = False,
) -> None:
    """Reset the seed used to generate stateful random numbers, also in programs that are compiled already.

    Without a call each process starts from a seed of its own. `tf.random.uniform`, `tf.nn.dropout` and the like draw
    from this generator; what has a seed argument in Keras 3 does not. All devices of a process share it.

    Args:
        seed: the new seed; of an integer of more than 64 bits the lowest 64 count.
        device: the device to which the seed will be applied.
        cpu_device: the CPU device which is on the same hardware as the IPU device.
        experimental_identical_replicas: accepted; programs have one replica, so it changes nothing.

    Raises:
        TypeError: `seed` is no integer.
        ValueError: `device` names no IPU device, or one that is not configured.
    """
    from engine.ops.random import seed as seed_hidden_generator  # not at the top: configuring needs no NumPy

    _device_named(device)
    try:
        value = operator.index(seed)
    except TypeError:
        raise TypeError(f"Expected seed to be an integer. Received: {seed!r} of type {type(seed).__name__}.") from None
    seed_hidden_generator(value)


def _device_named(name: str) -> Device:
    match = re.search(r"IPU:(\d+)$", name, re.IGNORECASE)
    if match is None:
        raise ConfigurationError(f"Expected the name of an IPU device, as '/device:IPU:0'. Received: {name!r}.")
    return current_system().device(int(match[1]))


def running_on_ipu_model() -> bool:
    """Check if programs are to run on the IPU model, which TF_POPLAR_FLAGS=--use_ipu_model asks for."""
    return on_ipu_model()
