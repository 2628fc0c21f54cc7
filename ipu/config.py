"""Configuration utilities: the public names of `tensorflow.python.ipu.config`."""

from ipu._internal.config.enumerations import (
    DeviceConnectionType,
    ExecutionProfileType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
)
from ipu._internal.config.ipu_config import IPUConfig
from ipu._internal.config.legacy import IpuOptions, KeyId, VerificationOptions
from ipu._internal.config.metadata import AttributeMetadata
from ipu._internal.config.system import configure_ipu_system, get_ipu_config, reset_ipu_configuration
from ipu._internal.names.namespace import public_names

__all__ = [
    "AttributeMetadata",
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "IpuOptions",
    "KeyId",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "StochasticRoundingBehaviour",
    "VerificationOptions",
    "configure_ipu_system",
    "get_ipu_config",
    "reset_ipu_configuration",
]
__getattr__, __dir__ = public_names(__name__, __all__)
