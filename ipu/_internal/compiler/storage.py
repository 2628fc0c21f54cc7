"""Checks the offload and sharding arguments of pipelines and optimizers, and fills in their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from engine.errors import ConfigurationError
from engine.partition.storage import Storage
from ipu._internal.config.enumerations import DeviceConnectionType
from ipu._internal.config.system import current_system

STORAGE = tuple(field.name for field in fields(Storage))
"""The names of the options for the storage of data."""
OFFLOADS_STATE = "offload_weight_update_variables"
SHARDS_STATE = "replicated_optimizer_state_sharding"


def checked_storage(arguments: Mapping[str, Any]) -> Storage:
    """The offload and sharding arguments among `arguments`, by name, unchanged.

    Raises ConfigurationError for anything but True, False or None, and for state that is sharded but not offloaded.
    """
    for name in STORAGE:
        value = arguments.get(name)
        if not (value is None or isinstance(value, bool)):
            raise ConfigurationError(f"Expected {name} to be True, False or None. Received: {value!r}.")
    if arguments.get(SHARDS_STATE) and arguments.get(OFFLOADS_STATE) is False:
        raise ConfigurationError(
            f"Expected {SHARDS_STATE} only with {OFFLOADS_STATE}. Received: {OFFLOADS_STATE}=False. Leave one of the "
            f"two out."
        )
    return Storage(**{name: arguments.get(name, False if name == SHARDS_STATE else None) for name in STORAGE})


def placed(storage: Storage, *, accumulates: bool = True) -> Storage:
    """The storage in the present configuration, with the defaults for None filled in (training, section 6.7).

    Optimizer state is offloaded by default where gradients are accumulated, by a pipeline or by an optimizer, and
    is never offloaded elsewhere. Nothing is offloaded on a system without remote buffers.
    """
    if not has_remote_buffers():
        sharded = storage.replicated_weight_sharding
        return Storage(offload_weight_update_variables=False, replicated_weight_sharding=sharded)
    if not accumulates:
        return replace(storage, offload_weight_update_variables=False, replicated_optimizer_state_sharding=False)
    offloads = storage.offload_weight_update_variables is not False
    shards = storage.replicated_optimizer_state_sharding
    return replace(
        storage,
        offload_weight_update_variables=offloads,
        # None for sharding follows the value given for offloading, not its default.
        replicated_optimizer_state_sharding=bool(storage.offload_weight_update_variables) if shards is None else shards,
    )


def has_remote_buffers() -> bool:
    """Whether the configured system has Poplar remote buffers: an attached device has, others by the option."""
    connection = current_system().config.device_connection
    return connection.type is DeviceConnectionType.ALWAYS or connection.enable_remote_buffers
