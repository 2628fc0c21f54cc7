"""All passes over programs that the cost report sees, in the order they run."""

from __future__ import annotations

from engine.program.passes.copy_elision import elide_copies
from engine.program.passes.dead_stores import eliminate_dead_stores
from engine.program.passes.exception_checks import check_exceptions
from engine.program.passes.loop_invariants import hoist_loop_invariants
from engine.program.passes.row_sums import fuse_row_sums
from engine.program.passes.scopes import name_scopes_of_sums
from engine.program.run_passes import Pass

PROGRAM_PASSES: tuple[Pass, ...] = (
    elide_copies,
    eliminate_dead_stores,
    hoist_loop_invariants,
    check_exceptions,
    fuse_row_sums,
    name_scopes_of_sums,
)
