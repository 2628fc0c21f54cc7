"""Description of a chip: tiles, memory, clock and rates, read from a table with a source for each value."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from engine.errors import ConfigurationError

DATA = Path(__file__).parent / "data"
INPUTS_PER_PASS = {"f32": 8, "f16": 16}
"""Input channels that each unit of the matrix engine (AMP) consumes in one core loop."""
LOOP_CYCLES = {"f32": 8, "f16": 4}
"""Cycles of a core loop of the matrix engine (poplibs lib/poplin, the 1x1 vertex)."""
ALIASES = {"ipu21": "c600"}
"""Poplar's other names for a chip."""
UNMEASURED = (
    "interleaved_bytes",
    "streaming_memory_bytes_per_second",
    "gateway_link_latency_seconds",
)
"""Quantities without a published value: the table states the value used instead. Code and vertex state are further
ones (data/memory.toml)."""


@dataclass(frozen=True, slots=True)
class Target:
    """A chip, or several of the same kind; `title` is its product name.

    Rates are per tile and per tile clock cycle unless the name says otherwise.
    """

    name: str
    title: str
    tiles: int
    bytes_per_tile: int
    clock_hz: float
    workers_per_tile: int
    vector_bytes: int
    load_store_bytes_per_cycle: int
    amp_units_f32: int
    amp_units_f16_f32: int
    amp_units_f16_f16: int
    exchange_bytes_per_cycle: int
    exchange_start_cycles: int
    sync_cycles: int
    superstep_cycles: int
    external_sync_hop_seconds: float
    link_bytes_per_second: float
    neighbour_link_bytes_per_second: float
    global_exchange_start_seconds: float
    host_to_device_bytes_per_second: float
    device_to_host_bytes_per_second: float
    model_host_bytes_per_second: float
    interleaved_bytes: int
    streaming_memory_bytes_per_second: float
    streaming_memory_bytes: float
    gateway_link_bytes_per_second: float
    gateway_link_latency_seconds: float
    ipus_per_link_domain: int
    exchange_pair_factor: int
    ipus: int = 1

    def amp_units(self, element_type: str, partials_type: str = "f32") -> int:
        """Units of the matrix engine for inputs "f32" or "f16" and partial sums "f32" or "f16"."""
        if element_type == "f32":
            return self.amp_units_f32
        return self.amp_units_f16_f16 if partials_type == "f16" else self.amp_units_f16_f32

    def amp_flops_per_cycle(self, element_type: str, partials_type: str = "f32") -> int:
        """Floating-point operations of one tile's matrix engine per cycle, two for each multiply-add."""
        multiply_adds = self.amp_units(element_type, partials_type) * INPUTS_PER_PASS[element_type]
        return 2 * multiply_adds // LOOP_CYCLES[element_type]

    @property
    def superstep_sync(self) -> int:
        """Cycles of a compiled program's superstep beside its exchange and its vertices: sync and control code.

        A superstep without an exchange has neither, as no tile waits for another.
        """
        return self.sync_cycles + self.superstep_cycles

    def peak_flops(self, element_type: str, partials_type: str = "f32") -> float:
        """Floating-point operations per second of one chip's matrix engines."""
        return self.tiles * self.amp_flops_per_cycle(element_type, partials_type) * self.clock_hz

    @property
    def memory_bytes_per_second(self) -> float:
        """Bytes per second that all tiles of one chip load and store."""
        return self.tiles * self.load_store_bytes_per_cycle * self.clock_hz

    def external_sync_cycles(self, ipus: int) -> int:
        """Cycles of a sync of several chips; those of one chip if there is only one."""
        if ipus <= 1:
            return self.sync_cycles
        hops = 1 + ipus // 2 // 2
        cycles = self.external_sync_hop_seconds * self.clock_hz * hops * 2
        return -int(-cycles // 1)


def target(name: str, tiles: int | None = None, ipus: int = 1) -> Target:
    """Describes the chip "ipu1", "ipu2" (Mk2), "bow" or "c600" (also "ipu21"); with `tiles`, only so many of its tiles.

    Raises ConfigurationError for an unknown name, or for tiles or IPUs that do not exist.
    """
    rows = quantities()
    name = ALIASES.get(name, name)
    names = [key for key in rows["tiles"] if key != "source"]
    if name not in names:
        raise ConfigurationError(
            f"Expected the name of a chip: {', '.join(names)}. Received: {name!r}. "
            "The Mk2 chip of an IPU-M2000 is 'ipu2'."
        )
    most = rows["tiles"][name]
    if tiles is not None and not 1 <= tiles <= most:
        raise ConfigurationError(
            f"Expected between 1 and {most} tiles per IPU on {name}. Received: {tiles}. "
            f"Use {min(max(tiles, 1), most)}, or None for all of them."
        )
    if ipus < 1:
        raise ConfigurationError(f"Expected at least 1 IPU. Received: {ipus}. Use 1.")
    values = {field.name: rows[field.name][name] for field in fields(Target) if field.name in rows}
    return Target(name=name, ipus=ipus, **(values | {"tiles": tiles or most}))


@cache
def quantities() -> dict[str, dict[str, Any]]:
    """The table as read: for each quantity a value per chip, and its `source`."""
    return tomllib.loads((DATA / "targets.toml").read_text())
