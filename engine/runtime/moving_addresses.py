"""Compute sets whose addresses move from turn to turn, as they are run: behind a codelet that moves them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.codelets.by_turn import ByTurn, Move, by_turn, by_turn_scratch_bytes
from engine.machine_code.abi import Scratch
from engine.program.chains import chains
from engine.program.hand_over import hand_over_units
from engine.program.in_pieces import in_pieces
from engine.program.program import ComputeSet, Program, Relocation
from engine.program.slots import slots_in_place


def as_run(program: Program) -> Program:
    """The program as it is run on the host; the given one is left as it is."""
    return moving_addresses(in_pieces(chains(hand_over_units(slots_in_place(program)))))


def with_own_parameters(program: Program) -> Program:
    """The program with copies of its compute sets' parameters, which an executable points at its own memory."""
    return replace(program, compute_sets=[replace(s, parameters=s.parameters.copy()) for s in program.compute_sets])


def moving_addresses(program: Program) -> Program:
    """The program with addresses that move by themselves; the given one is left as it is."""
    sets = [_moving(each) if any(r.moved for r in each.relocations) else each for each in program.compute_sets]
    return program if sets == program.compute_sets else replace(program, compute_sets=sets)


def _moving(compute_set: ComputeSet) -> ComputeSet:
    moved = [r for r in compute_set.relocations if r.moved is not None]
    words = len(compute_set.parameters)
    first = int(ByTurn.WORDS) + int(Move.WORDS) * len(moved)
    head = np.zeros(first, np.int64)
    head[ByTurn.PARAMETER_WORDS], head[ByTurn.MOVED] = words, len(moved)
    tables = []
    for number, relocation in enumerate(moved):
        assert relocation.moved is not None
        tables.append(np.array(relocation.moved.values, np.int64))
        entry = head[int(ByTurn.WORDS) + int(Move.WORDS) * number :]
        entry[Move.WORD] = relocation.word
        entry[Move.COUNTER] = Scratch.TURN + relocation.moved.counter
        entry[Move.VALUES] = tables[-1].ctypes.data
    inner = ((int(ByTurn.CODELET), compute_set.codelet),)
    return replace(
        compute_set,
        codelet=by_turn,
        parameters=np.concatenate([head, compute_set.parameters]),
        relocations=[Relocation(first + r.word, r.buffer, r.offset) for r in compute_set.relocations],
        scratch_bytes=by_turn_scratch_bytes(words, compute_set.scratch_bytes),
        keep=[*compute_set.keep, *tables],
        calls=(*inner, *((first + word, codelet) for word, codelet in compute_set.calls)),
    )
