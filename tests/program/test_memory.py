"""The memory plan: buffers that live at the same time do not overlap, and garbage in free memory changes nothing."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
import pytest

from engine.program.memory import ALIGNMENT, HELD_BYTES, Arena, FreePart, Hole, plan_memory, shared_paddings
from engine.program.program import Buffer, Program
from engine.program.syncs import syncs
from engine.program.uses import BufferUses
from engine.runtime.executable import Executable
from tests.engine.running import buffers
from tests.program.machine import GARBAGE, Machine
from tests.program.programs import PROGRAMS, program_of, values_of


def alive(program: Program) -> list[set[Buffer]]:
    """The arena buffers that must keep their contents while each compute set runs, found by brute force."""
    sets = program.compute_sets
    found: list[set[Buffer]] = []
    for at in range(len(sets)):
        past = {s.buffer for c in sets[: at + 1] for s in (*c.reads, *c.writes)} | set(program.feeds.values())
        future = {s.buffer for c in sets[at:] for s in (*c.reads, *c.writes)} | set(program.outputs)
        held = {b for b in past & future if b.kind in ("arena", "feed")}
        held |= {s.buffer for c in sets for s in (*c.reads, *c.writes) if s.buffer.permanent}
        found.append(held)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_live_buffers_do_not_overlap(name: str) -> None:
    program = program_of(name)
    plan = plan_memory(program)
    owners = shared_paddings(program, BufferUses(program))
    assert all(offset % ALIGNMENT == 0 for offset in plan.offsets.values())
    assert all(plan.offsets[buffer] == plan.offsets[owner] for buffer, owner in owners.items())
    for together in alive(program):
        together = {owners.get(buffer, buffer) for buffer in together}
        places = sorted((plan.offsets[b], plan.offsets[b] + b.shape.bytes, b.name) for b in together)
        assert all(stop <= plan.arena_bytes for _, stop, _ in places)
        for (_, stop, one), (start, _, other) in zip(places, places[1:], strict=False):
            assert stop <= start, f"{one} and {other} overlap"


@pytest.mark.parametrize("name", PROGRAMS)
def test_paddings_share_memory_one_after_the_other(name: str) -> None:
    """Paddings that share memory are written in the same elements again before each is read."""
    program = program_of(name)
    iterations: dict[Buffer, list[tuple[int, int]]] = {}
    for buffer, owner in shared_paddings(program, BufferUses(program)).items():
        sets = enumerate(program.compute_sets)
        places = [at for at, c in sets if any(s.buffer is buffer for s in (*c.reads, *c.writes))]
        assert buffer.shape == owner.shape
        iterations.setdefault(owner, []).append((places[0], places[-1]))
    for each in iterations.values():
        assert all(stop < start for (_, stop), (start, _) in pairwise(sorted(each)))


def test_memory_is_used_again() -> None:
    program = program_of("training")
    plan = plan_memory(program)
    assert plan.arena_bytes < 0.8 * sum(b.shape.bytes for b in plan.offsets)
    assert max(plan.live_bytes) <= plan.arena_bytes


def test_live_bytes_are_those_of_the_buffers_that_live() -> None:
    program = program_of("training")
    plan = plan_memory(program)
    held = [sum(b.shape.bytes for b in together) for together in alive(program)]
    # A feed has its memory for the whole step.
    assert all(live >= least for live, least in zip(plan.live_bytes, held, strict=False))


def test_an_array_goes_where_one_of_its_size_was() -> None:
    arena = Arena()
    wide, narrow, last = (arena.take(size) for size in (2048, 512, 512))
    arena.release(wide, 2048)
    arena.release(narrow, 512)
    assert arena.take(512) == narrow
    assert (last, arena.bytes) == (2560, 3072)


def test_an_array_goes_where_the_same_half_of_the_workers_was() -> None:
    arena = Arena()
    wide, last = arena.take(2048), arena.take(64)
    arena.release(wide, 2048)
    assert arena.take(512) == wide + 768
    assert arena.take(512) == wide  # half of it crosses in each place: the first one
    assert (last, arena.bytes) == (2048, 2112)


def test_an_arena_has_no_array_twice() -> None:
    """Random arrays, beside sets of the bytes that they have, and the bytes that cross beside a count one by one."""
    generator = np.random.default_rng(0)
    arena, live, halves = Arena(), dict[int, int](), np.full(1 << 16, -1)
    for _ in range(2000):
        if live and generator.random() < 0.5:
            begin = int(generator.choice(list(live)))
            arena.release(begin, live.pop(begin))
            continue
        size = ALIGNMENT * int(generator.integers(1, 9))
        begin = arena.take(size)
        assert begin % ALIGNMENT == 0 and begin + size <= arena.bytes
        assert all(begin + size <= other or other + length <= begin for other, length in live.items())
        live[begin] = size
        halves[begin : begin + size] = np.arange(size) >= size // 2
    free = arena.bytes - sum(live.values())
    assert sum(hole.end - hole.begin for hole in arena._free) == free
    for hole in arena._free:
        for size in range(ALIGNMENT, hole.end - hole.begin + 1, ALIGNMENT):
            for place in hole.places(size):
                half = np.arange(size) >= size // 2
                assert hole.crossing(place, size) == np.sum(halves[place : place + size] != half)


def test_what_is_left_of_a_hole_has_the_parts_in_it() -> None:
    hole = Hole(0, 256, (FreePart(0, 128, 64), FreePart(128, 256, 192)))
    assert hole.between(64, 192) == Hole(64, 192, (FreePart(64, 128, 64), FreePart(128, 192, 192)))


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_buffer_is_written_before_it_is_read(name: str) -> None:
    """Runs in separate memory full of NaN equal runs in one arena, which is poisoned before each call."""
    module, roles = PROGRAMS[name]()
    arguments = values_of(module.entry.parameters)
    program = program_of(name)
    # Feeds become variables here, so that only the program writes to the arena.
    for number, buffer in list(program.feeds.items()):
        buffer.kind = "variable"
        program.variables[number] = program.feeds.pop(number)
    program.variables = dict(sorted(program.variables.items()))
    machine = Machine(program, dict(enumerate(arguments)))
    expected = [machine.run(), machine.run()]
    variables = [machine.variable(n) for n in program.variables]
    executable = Executable(program)
    held = buffers(arguments)
    for step in range(2):
        poison(executable)
        results = executable.run(1, [], held)
        for result, value in zip(results, expected[step], strict=True):
            np.testing.assert_array_equal(result, value)
            assert np.isfinite(result).all()
    for one, other in zip(held, variables, strict=True):
        np.testing.assert_array_equal(one.read(), other)


def poison(executable: Executable) -> None:
    """Writes garbage into all memory outside permanent buffers."""
    kept = np.zeros(executable._arena.size, bool)
    for buffer, offset in executable.plan.offsets.items():
        if buffer.permanent:
            kept[offset : offset + buffer.shape.bytes] = True
    executable._arena[~kept] = GARBAGE


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_small_array_needs_a_meeting_for_its_place_alone(name: str) -> None:
    program = program_of(name)
    plan = plan_memory(program)
    used = dict.fromkeys(s.buffer for each in program.compute_sets for s in (*each.reads, *each.writes))
    if program.regions or any(b.shape.bytes > HELD_BYTES or b.permanent for b in used):
        return
    begins = dict(zip(used, accumulate((b.shape.bytes for b in used), initial=plan.arena_bytes), strict=False))

    def own_place(buffer: Buffer) -> tuple[int, int]:
        return begins[buffer], begins[buffer] + buffer.shape.bytes

    def place(buffer: Buffer) -> tuple[int, int]:
        begin = plan.offsets.get(buffer, begins[buffer])
        return begin, begin + buffer.shape.bytes

    for workers in (2, 3):
        assert sum(syncs(program.compute_sets, workers, place)[0]) >= sum(
            syncs(program.compute_sets, workers, own_place)[0]
        )
    assert syncs(program.compute_sets, 2, place) == syncs(program.compute_sets, 2, own_place)
