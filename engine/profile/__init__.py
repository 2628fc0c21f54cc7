"""Estimates of a program on the chip: memory, cycles, and how far to trust them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.profile.fit import check_fit
    from engine.profile.liveness import LiveTensor, TileMemory
    from engine.profile.memory import Memory
    from engine.profile.options import Assumptions
    from engine.profile.program_estimate import Estimate, estimate
    from engine.profile.refusal import out_of_tile_memory
    from engine.profile.step_costs import ComputeSetCost

MODULES = {
    "Estimate": "program_estimate",
    "Assumptions": "options",
    "ComputeSetCost": "step_costs",
    "LiveTensor": "liveness",
    "Memory": "memory",
    "TileMemory": "liveness",
    "estimate": "program_estimate",
    "check_fit": "fit",
    "out_of_tile_memory": "refusal",
}

__all__ = [
    "Estimate",
    "Assumptions",
    "ComputeSetCost",
    "LiveTensor",
    "Memory",
    "TileMemory",
    "estimate",
    "check_fit",
    "out_of_tile_memory",
]


def __getattr__(name: str) -> Any:
    """Import a module at the first use of its name: most programs are small for a chip and need none of them."""
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
