"""The passes over programs that are the host's alone, in their order."""

from __future__ import annotations

from engine.program.chains import chains
from engine.program.hand_over import hand_over_units
from engine.program.in_pieces import in_pieces
from engine.program.program import Program
from engine.program.slots import slots_in_place


def as_run(program: Program) -> Program:
    """The program as it is run on the host; the given one is left as it is."""
    return in_pieces(chains(hand_over_units(slots_in_place(program))))
