"""Estimates of a program on the chip: memory, cycles, and how far to trust them."""

from engine.ir.op_names import readable_name
from engine.profile.fit import check_fit, out_of_tile_memory
from engine.profile.levers import Lever, levers
from engine.profile.liveness import LiveTensor, TileMemory
from engine.profile.memory import Memory
from engine.profile.options import Assumptions
from engine.profile.program_estimate import Estimate, estimate
from engine.profile.step_costs import ComputeSetCost
from engine.profile.summary import summary

__all__ = [
    "Estimate",
    "Assumptions",
    "ComputeSetCost",
    "Lever",
    "LiveTensor",
    "Memory",
    "TileMemory",
    "estimate",
    "check_fit",
    "levers",
    "out_of_tile_memory",
    "readable_name",
    "summary",
]
