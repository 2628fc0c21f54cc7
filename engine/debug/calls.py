"""Calls a codelet as a worker of the engine does: denormals are flushed to zero."""

from __future__ import annotations

from engine.codelets.host.rows import word
from engine.codelets.language.build import codelet
from engine.codelets.language.memory import call4, floating_point_state, flush_to_zero, set_floating_point_state


@codelet
def call_as_worker(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Parameters: the addresses of a codelet and of its parameters."""
    floating_point = floating_point_state()
    set_floating_point_state(flush_to_zero(floating_point))
    call4(word(parameters, 0), word(parameters, 1), lo, hi, scratch)
    set_floating_point_state(floating_point)
