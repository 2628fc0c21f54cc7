"""All passes over programs that the cost report sees, in the order they run."""

from __future__ import annotations

from engine.program.copy_elision import elide_copies
from engine.program.dead_stores import eliminate_dead_stores
from engine.program.loop_invariants import hoist_loop_invariants
from engine.program.run_passes import Pass
from engine.program.scopes import name_scopes_of_sums

PROGRAM_PASSES: tuple[Pass, ...] = (
    elide_copies,
    eliminate_dead_stores,
    hoist_loop_invariants,
    name_scopes_of_sums,
)
