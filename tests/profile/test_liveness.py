"""Bytes on tiles over time, compared with counting at every compute set and tile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.compile import build_program
from engine.ir.builder import Builder
from engine.profile.categories import CATEGORIES
from engine.profile.exchange import Layouts
from engine.profile.liveness import LiveRange, tile_memory
from engine.profile.mapping import TileMapping
from engine.profile.options import Assumptions
from engine.profile.program_estimate import Estimate, estimate
from engine.program.memory import lifetimes
from engine.program.uses import BufferUses
from engine.target import target
from tests.profile.programs import dense_step
from tests.profile.training_steps import deep_step
from tests.program.loop_parts import below, loop, next_count, product

MK2 = target("ipu2")
TILES, STEPS = 5, 6


@st.composite
def pieces(draw: st.DrawFn) -> LiveRange:
    tiles = draw(st.integers(0, TILES))
    per_tile = draw(st.integers(1, 50))
    placement = TileMapping(draw(st.integers(0, TILES - 1)), tiles, per_tile, draw(st.integers(0, per_tile)), TILES)
    first = draw(st.integers(-1, STEPS - 1))
    return LiveRange(placement, first, draw(st.integers(max(first, 0), STEPS - 1)), draw(st.sampled_from(CATEGORIES)))


def laid_out(piece: LiveRange) -> np.ndarray:
    found, place = np.zeros(TILES, np.int64), piece.placement
    for k in range(place.tiles):
        found[(place.start + k) % TILES] = place.last_tile if k == place.tiles - 1 else place.per_tile
    return found


@given(st.lists(pieces(), max_size=8), st.integers(0, 9))
def test_peaks_and_categories_are_those_of_counting(made: list[LiveRange], code: int) -> None:
    fixed = {"code": np.full(TILES, code, np.int64)}
    found = tile_memory(made, fixed, STEPS)
    counted = np.zeros((STEPS, len(CATEGORIES), TILES), np.int64)
    counted[:, CATEGORIES.index("code")] = code
    always = np.full(TILES, code, np.int64)
    for piece in made:
        number = CATEGORIES.index(piece.category)
        always += laid_out(piece) if piece.first < 0 else 0
        for step in range(STEPS) if piece.first < 0 else range(piece.first, piece.last + 1):
            counted[step, number] += laid_out(piece)
    totals = counted.sum(axis=1)
    assert np.array_equal(found.peak_bytes, totals.max(axis=0))
    assert np.array_equal(found.always_live_bytes, always)
    for tile, step in enumerate(found.peak_at):
        assert totals[step, tile] == found.peak_bytes[tile]
        assert [found.categories[name][tile] for name in CATEGORIES] == counted[step, :, tile].tolist()


def of(found: Estimate, category: str) -> int:
    return sum(tensor.bytes for tensor in found.liveness if tensor.category == category)


def test_weights_and_the_optimizers_state_are_told_apart() -> None:
    found = estimate(dense_step(64, 300, 200), MK2)
    assert of(found, "weights") == (300 * 200 + 200) * 4
    assert of(found, "optimizer state") == 300 * 200 * 4
    assert of(found, "stream buffers") == 64 * 300 * 4
    layers = {tensor.name: tensor.layer for tensor in found.liveness}
    assert layers["sgd slot of variable of dense"] == layers["variable of dense"] == "dense"


def test_arrays_live_from_what_makes_them_to_their_last_reader() -> None:
    program = dense_step()
    found, lives = estimate(program, MK2), lifetimes(program, BufferUses(program), held=False)
    by_buffer = {p.buffer: t for p, t in zip(found.tiles.blocks, found.liveness, strict=True) if p.buffer is not None}
    end, layouts = len(program.compute_sets) - 1, Layouts(program.compute_sets)
    adding = [each for each in program.compute_sets if layouts.adds_parts(each)]
    parts = {each.writes[0].buffer: each.reads[0].buffer for each in adding}
    assert parts, "a product whose terms are split for this processor"
    for buffer, (first, last) in lives.items():
        if buffer.kind == "arena" and buffer not in parts.values():
            # The chip has the sum itself, from the product on.
            first = lives[parts.get(buffer, buffer)][0]
            assert (by_buffer[buffer].first, by_buffer[buffer].last) == (max(first, 0), min(last, end))
            assert by_buffer[buffer].bytes == buffer.shape.bytes // layouts.parts.get(buffer, 1)
    for buffer in program.variables.values():
        assert by_buffer[buffer].always_live


def test_the_parts_add_up_on_every_tile() -> None:
    for tiles in (3, 1472):
        found = estimate(deep_step(), target("ipu2", tiles))
        assert np.array_equal(sum(found.tiles.categories.values()), found.tiles.peak_bytes)
        assert (found.tiles.always_live_bytes <= found.tiles.peak_bytes).all()
        assert found.tiles.peak_bytes[found.tiles.fullest] == found.memory.peak_fullest


def test_each_tile_has_a_peak_of_its_own() -> None:
    """Two arrays on different tiles that live one after the other fill both tiles, though never at once."""
    early = LiveRange(TileMapping(0, 1, 100, 100, 4), 0, 1, "activations")
    late = LiveRange(TileMapping(2, 1, 70, 70, 4), 2, 3, "activations")
    found = tile_memory([early, late], {"code": np.zeros(4, np.int64)}, 4)
    assert found.peak_bytes.tolist() == [100, 0, 70, 0]
    assert found.peak_at.tolist() == [0, 0, 2, 0]


def test_a_loop_counts_one_iteration_and_holds_its_states() -> None:
    b = Builder("products")
    x, w = b.parameter("f32", (64, 64)), b.parameter("f32", (64, 64))
    _, y, _ = loop(
        *(b, [b.constant(0, "s32"), x, w], below(1000)),
        lambda s, e: [next_count(s, e[0]), product(s, e[1], e[2]), e[2]],
    )
    program = build_program(b.module(b.tuple(y)), ["feed", "feed"], {})
    (region,) = [r for r in program.regions if r.repeats]
    found = estimate(program, MK2)
    held = [t for t in found.liveness if t.shape == "f32[64,64]" and not t.always_live]
    assert len(held) <= 3
    assert any(t.first <= region.begin and t.last >= region.end - 1 for t in held)


def test_streams_are_on_io_tiles() -> None:
    found = estimate(deep_step(), MK2, assumptions=Assumptions(io_tiles=32))
    streams = found.tiles.categories["stream buffers"]
    assert streams[:-32].sum() == 0 and streams[-32:].sum() > 0
    assert found.tiles.categories["weights"][-32:].sum() == 0
    twice = estimate(deep_step(), MK2, assumptions=Assumptions(io_tiles=32, overlapped_io=True))
    assert twice.tiles.categories["stream buffers"].sum() == 2 * streams.sum()


def test_weights_are_on_the_tiles_of_the_plan() -> None:
    found = estimate(deep_step(width=256, layers=1), MK2)
    (weight,) = [p for p in found.tiles.blocks if p.category == "weights"]
    product_tiles = next(cost.tiles for cost in found.costs if "MatMul" in cost.label)
    assert weight.placement.tiles == pytest.approx(product_tiles, rel=0.35)
    assert weight.placement.bytes == 256 * 256 * 4


def test_code_can_be_left_out_but_not_vertices() -> None:
    program = deep_step()
    whole, without = estimate(program, MK2), estimate(program, MK2, assumptions=Assumptions(code_bytes=False))
    assert 0 < without.tiles.categories["code"].sum() < whole.tiles.categories["code"].sum()
    assert np.array_equal(without.tiles.categories["vertex state"], whole.tiles.categories["vertex state"])
