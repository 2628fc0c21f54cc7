"""Passes that bring a step into a form that can be cut into stages."""

from __future__ import annotations

from engine.partition.repeat import BEFORE
from engine.passes.dead_code import dead_code
from engine.passes.inline_calls import inline_calls
from engine.passes.loops.flat_state import flatten_loop_states
from engine.passes.loops.prune_state import prune_loop_states
from engine.passes.run_passes import Pass

BEFORE_STAGES: tuple[Pass, ...] = (
    *BEFORE,
    # Arrays, not tuples, cross between stages; the lists that TensorFlow's loops keep for their gradients are tuples.
    flatten_loop_states,
    inline_calls,
    dead_code,
    # Weights that loops only read come from the variables, so they are not kept for each micro-batch.
    prune_loop_states,
    inline_calls,
    dead_code,
)
