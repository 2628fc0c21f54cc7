"""A program as executables need it: after the host's passes, its work encoded, its memory planned."""

from __future__ import annotations

from dataclasses import dataclass

from engine.program.memory import MemoryPlan
from engine.program.program import Program
from engine.program.work.base import Encoded


@dataclass(frozen=True, slots=True)
class EncodedProgram:
    """`running` is the program after the host's passes, `blocks` have the work of its compute sets.

    One executable takes over the blocks. `work_estimate` counts elements and multiply-adds of a step, and executions of
    compute sets as so many of them; `is_fine_grained` says whether its parts are too small to distribute among workers.
    """

    program: Program
    running: Program
    blocks: list[Encoded]
    plan: MemoryPlan
    work_estimate: int
    is_fine_grained: bool
