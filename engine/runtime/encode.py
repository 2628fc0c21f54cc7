"""Encoding of a program for an executable; a program that a file holds encoded needs none of these modules."""

from __future__ import annotations

from engine.garbage import collector_paused
from engine.host.passes.pass_list import HOST_PASSES
from engine.program.memory import plan_memory
from engine.program.program import Program
from engine.program.run_passes import run_passes
from engine.program.work.encoding import encoded
from engine.program.work_estimates import call_estimate_of, is_fine_grained
from engine.resource_limits import check_bytes, interruptible
from engine.runtime.encoded_program import EncodedProgram


def encode_program(program: Program) -> EncodedProgram:
    """Runs the host's passes, encodes all work and plans the memory. Raises ResourceLimit beyond a file's limits."""
    with collector_paused(), interruptible():
        running = run_passes(program, HOST_PASSES)
        blocks = [encoded(each.work) for each in running.compute_sets]
        plan = plan_memory(running)
    check_bytes(plan.arena_bytes, "memory for a program's arrays")
    work_estimate = call_estimate_of(program)
    return EncodedProgram(program, running, blocks, plan, work_estimate, is_fine_grained(program))
