"""Encoding of a program for an executable; a program that a file holds encoded needs none of these modules."""

from __future__ import annotations

import numpy as np

from engine.codelets.language.encoded import Encoded
from engine.codelets.language.record import block
from engine.codelets.per_iteration import Move, PerIteration, per_iteration, per_iteration_scratch
from engine.garbage import collector_paused
from engine.host.encode import encode
from engine.host.passes.pass_list import HOST_PASSES, passes_for
from engine.host.work_estimates import call_estimate_of, is_fine_grained
from engine.machine_code.abi import Scratch
from engine.program.memory import plan_memory
from engine.program.program import Program
from engine.program.run_passes import run_passes
from engine.program.work.base import Work
from engine.resource_limits import check_bytes, interruptible
from engine.runtime.encoded_program import EncodedProgram


def encode_program(program: Program) -> EncodedProgram:
    """Runs the host's passes, encodes all work and plans the memory. Raises ResourceLimit beyond a file's limits."""
    with collector_paused(), interruptible():
        running = run_passes(program, passes_for(program, HOST_PASSES))
        blocks = [encoded(each.work) for each in running.compute_sets]
        plan = plan_memory(running)
    check_bytes(plan.arena_bytes, "memory for a program's arrays")
    work_estimate = call_estimate_of(program)
    return EncodedProgram(program, running, blocks, plan, work_estimate, is_fine_grained(program))


def encoded(work: Work) -> Encoded:
    """The codelet and parameter block of work, which updates by itself the addresses that move."""
    inner = encode(work)
    moved = [(r.word, r.address.moved) for r in inner.relocations if r.address.moved is not None]
    if not moved:
        return inner
    moves = [
        Move(word=word, counter=Scratch.ITERATION + each.counter, values=np.array(each.values, np.int64))
        for word, each in moved
    ]
    head = PerIteration(parameter_words=len(inner.words), moved=len(moved))
    first = PerIteration.WORDS + Move.WORDS * len(moved)
    return Encoded.of(
        per_iteration,
        block(head, moves, inner.parts()),
        per_iteration_scratch(len(inner.words), inner.scratch),
        ((PerIteration.CODELET, inner.codelet), *((first + word, codelet) for word, codelet in inner.calls)),
    )
