"""The system the process is configured for: the only owner of that state.

Readers take `current_system()`; caches of compiled programs drop those whose `version` is not the present one.
"""

from __future__ import annotations

import copy
import logging
import os
import re
import sys
import threading
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, cast

from engine.errors import ConfigurationError
from ipu._internal.config.enumerations import StochasticRoundingBehaviour
from ipu._internal.config.errors import NotConfigured
from ipu._internal.config.option_tree import OptionTree
from ipu._internal.config.validation import ipus_per_device, normalise_selection, validate

if TYPE_CHECKING:
    from engine.compiler_options import CompilerOptions
    from engine.ir.floating_point import FloatingPoint, StochasticRounding

LOGGER = logging.getLogger("ipu.config")
ROUNDING: dict[StochasticRoundingBehaviour, StochasticRounding] = {
    StochasticRoundingBehaviour.OFF: "off",
    StochasticRoundingBehaviour.ON: "on",
    StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY: "replica-identical",
}
MAXIMUM_IO_TILES = 192


@dataclass(frozen=True, slots=True)
class Device:
    """One TensorFlow device /device:IPU:<ordinal> and its number of IPUs."""

    ordinal: int
    ipus: int

    def replicas(self, ipus_per_replica: int = 1) -> int:
        """Number of replicas of a program; raises ConfigurationError when they do not divide the IPUs."""
        if ipus_per_replica < 1 or self.ipus % ipus_per_replica:
            nearest = -(-self.ipus // max(ipus_per_replica, 1)) * max(ipus_per_replica, 1)
            raise ConfigurationError(
                f"Expected the number of IPUs of /device:IPU:{self.ordinal} to be a multiple of the IPUs "
                f"that one replica takes. Received: {self.ipus} IPUs, {ipus_per_replica} for one replica. "
                f"Nearest: auto_select_ipus = {nearest}."
            )
        return self.ipus // ipus_per_replica


@dataclass(frozen=True)
class System:
    """The configured devices, and the values derived from several options."""

    config: OptionTree
    version: int
    configured: bool

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The TensorFlow devices, by ordinal."""
        return tuple(Device(*entry) for entry in enumerate(ipus_per_device(self.config)))

    def device(self, ordinal: int = 0) -> Device:
        """The device /device:IPU:<ordinal>; raises ConfigurationError when there are fewer."""
        if not 0 <= ordinal < len(self.devices):
            raise ConfigurationError(
                f"Expected the ordinal of an IPU device to be one of 0 to {len(self.devices) - 1}. "
                f"Received: {ordinal}. Set auto_select_ipus to a list with one number for each device."
            )
        return self.devices[ordinal]

    @property
    def stochastic_rounding(self) -> StochasticRoundingBehaviour:
        """The configured stochastic rounding."""
        behaviour = self.config.floating_point_behaviour
        if behaviour.set_all:
            return StochasticRoundingBehaviour.ON
        return StochasticRoundingBehaviour(int(behaviour.esr))

    @property
    def floating_point_exceptions(self) -> frozenset[str]:
        """Names, among 'inv', 'div0' and 'oflo', of the exceptions that are raised."""
        behaviour = self.config.floating_point_behaviour
        return frozenset(name for name in ("inv", "div0", "oflo") if behaviour.set_all or getattr(behaviour, name))

    @property
    def nan_on_overflow(self) -> bool:
        """Whether an overflow gives Not-a-Number."""
        return self.config.floating_point_behaviour.nanoo or self.config.floating_point_behaviour.set_all

    @property
    def floating_point(self) -> FloatingPoint:
        """The floating-point behaviour that programs are compiled for."""
        from engine.ir.floating_point import FloatingPoint  # not at the top: configuring needs no NumPy

        return FloatingPoint(ROUNDING[self.stochastic_rounding], self.nan_on_overflow, self.floating_point_exceptions)

    @property
    def compiler_options(self) -> CompilerOptions:
        """The scheduling of programs, whether their arithmetic may be reassociated, and whether they recompute."""
        from engine.compiler_options import (  # not at the top: configuring needs no NumPy
            CompilerOptions,
            SchedulingAlgorithm,
        )

        scheduling, math = self.config.scheduling, self.config.optimizations
        return CompilerOptions(
            cast(SchedulingAlgorithm, scheduling.algorithm.name),
            scheduling.maximum_scheduler_lookahead_depth,
            scheduling.maximum_scheduler_search_space_size,
            math.math.fast or math.enable_fast_math,
            self.config.allow_recompute,
        )

    @property
    def io_tiles(self) -> int:
        """Tiles of each IPU reserved for I/O: an even number, at most 192."""
        requested = self.config.io_tiles.num_io_tiles
        return min(requested + requested % 2, MAXIMUM_IO_TILES)


_lock = threading.Lock()
_system = System(OptionTree(), version=0, configured=False)


def current_system() -> System:
    """The configured system, or one device with one IPU as long as nothing is configured."""
    return _system


def on_ipu_model() -> bool:
    """Whether TF_POPLAR_FLAGS selects the IPU model."""
    return "--use_ipu_model" in _flags()


def synthetic_data_categories() -> frozenset[str] | None:
    """The categories with synthetic data by TF_POPLAR_FLAGS; None for all."""
    if "--use_synthetic_data" in _flags():
        return None
    named = _values("--synthetic_data_categories")
    return frozenset(name.strip() for names in named for name in names.split(",") if name.strip())


def synthetic_data_initializer() -> str:
    """The synthetic data of TF_POPLAR_FLAGS: random, uniform, normal or an integer; '0' by default."""
    return ["0", *_values("--synthetic_data_initializer")][-1]


def executable_cache_path() -> str:
    """The folder for executables in TF_POPLAR_FLAGS; '' for none."""
    return ["", *_values("--executable_cache_path")][-1]


def _flags() -> list[str]:
    return os.environ.get("TF_POPLAR_FLAGS", "").split()


def _values(flag: str) -> list[str]:
    """The values given for a flag, in order, without quotes."""
    given = (each.partition("=") for each in _flags())
    return [value.strip("'\"") for name, equals, value in given if name == flag and equals]


def ordinal_named(name: str) -> int:
    """The ordinal in a TensorFlow name such as /device:IPU:0. Raises ConfigurationError for other names."""
    match = re.search(r"IPU:(\d+)$", name, re.IGNORECASE) if isinstance(name, str) else None
    if match is None:
        raise ConfigurationError(f"Expected the name of an IPU device, as '/device:IPU:0'. Received: {name!r}.")
    return int(match[1])


def device_named(name: str) -> Device:
    """The device of a TensorFlow name. Raises as `ordinal_named`, and for devices that are not configured."""
    return current_system().device(ordinal_named(name))


def configure_ipu_system(config: OptionTree, device: str = "cpu", reset_configuration: bool = True) -> None:
    """Configure an IPU system with an IPUConfig or IpuOptions instance.

    The same configuration again changes nothing; another one drops the programs compiled so far.

    Args:
        config: the configuration; later changes to it have no effect before it is configured again.
        device: no effect: the host is the one CPU.
        reset_configuration: whether it may replace another configuration.

    Raises:
        TypeError: `config` is no configuration.
        ValueError: attributes of `config` contradict each other.
        tensorflow.errors.FailedPreconditionError: `reset_configuration` is False and there is another one.
    """
    if not isinstance(config, OptionTree):
        raise TypeError(f"Expected config to be an IPUConfig. Received: {config!r} of type {type(config).__name__}.")
    normalise_selection(config)
    validate(config, on_ipu_model())
    _notice_unusual_devices(config)
    if "tensorflow" in sys.modules:
        import_module("ipu._internal.graphs.session_operations")  # extends sessions for operations on IPUs
    with _lock:
        if _system.configured and _system.config.to_dict() == config.to_dict():
            return
        if _system.configured and not reset_configuration:
            raise already_configured()
        if _system.configured:
            LOGGER.warning("Resetting the existing IPU configuration; compiled programs are dropped.")
        _replace(copy.deepcopy(config), configured=True)


def _notice_unusual_devices(config: OptionTree) -> None:
    """Warns of numbers of IPUs that no device of a system has: 1, 2, 4, 8 and so on are wired together."""
    for number in ipus_per_device(config):
        if number & (number - 1):
            below = 1 << (number.bit_length() - 1)
            LOGGER.warning(
                "auto_select_ipus = %d: devices of a real system have 1, 2, 4, 8 ... IPUs, not of this number. It "
                "works here, with %d IPUs. Nearest: %d or %d.",
                number,
                number,
                below,
                2 * below,
            )


def reset_ipu_configuration() -> None:
    """Reset the IPU configuration in preparation for it to be reconfigured; fine without one."""
    with _lock:
        if _system.configured:
            _replace(OptionTree(), configured=False)


def get_ipu_config(session: object = None) -> list[OptionTree]:
    """Get the configuration of an IPU system: a list of copies, one for each IPU device.

    Args:
        session: accepted for programs with a TensorFlow session; the configuration is the process' own.

    Returns:
        A copy of the configuration for each TensorFlow device; later changes to one have no effect.

    Raises:
        RuntimeError: nothing is configured.
    """
    system = _system
    if not system.configured:
        raise NotConfigured("No IPU devices configured. Call IPUConfig().configure_ipu_system() first.")
    return [copy.deepcopy(system.config) for _ in system.devices]


def _replace(config: OptionTree, configured: bool) -> None:
    """Installs a system with the next version; the caller holds the lock."""
    global _system
    _system = System(config, _system.version + 1, configured)


def already_configured() -> Exception:
    """The error for a second configuration, of the class that TensorFlow programs catch."""
    from tensorflow.errors import FailedPreconditionError  # not at the top: configuring needs no TensorFlow

    return FailedPreconditionError(
        None,
        None,
        "Expected no other IPU configuration in force with reset_configuration=False. "
        "Received a different one. Call reset_ipu_configuration() first, or pass reset_configuration=True.",
    )
