"""A program as executables need it: after the host's passes, its work encoded, its memory planned."""

from __future__ import annotations

from dataclasses import dataclass

from engine.codelets.language.encoded import Encoded
from engine.program.memory import MemoryPlan
from engine.program.program import Program


@dataclass(frozen=True, slots=True)
class EncodedProgram:
    """A program after the host's passes (`running`), with the encoded work of its compute sets (`blocks`).

    Only one executable may take over the blocks. `work_estimate` is the work of a step, and of executing its compute
    sets, in multiply-adds. `is_fine_grained` says whether the step's parts are too small to distribute among workers.
    """

    program: Program
    running: Program
    blocks: list[Encoded]
    plan: MemoryPlan
    work_estimate: int
    is_fine_grained: bool
