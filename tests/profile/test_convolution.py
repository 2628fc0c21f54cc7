"""Convolutions on the chip: slices compared with counting, vertices with each other, and plausible plans."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from itertools import product as combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.compile import build_program
from engine.ir import ConvolutionDimensionNumbers, WindowDimension
from engine.ir.builder import Builder
from engine.profile.convolution import Cuts, PlannedConvolution, blocks, foldings, received
from engine.profile.exchange import Layouts
from engine.profile.matrix_engine import amp_cycles, depthwise_cycles
from engine.profile.options import Assumptions, ProductOptions
from engine.profile.plan import best_plan
from engine.profile.program_estimate import estimate
from engine.profile.superstep import planned_of
from engine.program.convolution_size import ConvolutionSize
from engine.program.program import Program
from engine.target import target
from tests.exploring import examples

MK2 = target("ipu2")
NUMBERS = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))


def image(features: int = 64, field: int = 56, taps: int = 3, batch: int = 4, groups: int = 1) -> PlannedConvolution:
    """A convolution that keeps the size of its images."""
    inside = features // groups
    size = ConvolutionSize(
        groups, batch, inside, inside, (field, field), (taps, taps), (1.0, 1.0), (1.0, 1.0), (field, field)
    )
    return PlannedConvolution(size, "f16", "b")


def program(
    batch: int, size: int, inputs: int, outputs: int, window: WindowDimension, groups: int = 1, kind: str = "f32"
) -> Program:
    b = Builder("convolution")
    x = b.parameter(kind, (batch, size, size, inputs))
    w = b.parameter(kind, (window.size, window.size, inputs // groups, outputs))
    made = b.convolution(x, w, (window, window), NUMBERS, feature_group_count=groups)
    return build_program(b.module(b.tuple(made)), ["feed", "variable"], {})


@settings(max_examples=examples(60))
@given(
    batch=st.integers(1, 4),
    field=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    taps=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    features=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    step=st.integers(1, 2),
    cut=st.tuples(st.integers(1, 12), st.integers(1, 5), st.integers(1, 8)),
    taps_first=st.booleans(),
)
def test_slices_cover_everything_and_read_their_inputs(
    batch: int,
    field: tuple[int, int],
    taps: tuple[int, int],
    features: tuple[int, int],
    step: int,
    cut: tuple[int, int, int],
    taps_first: bool,
) -> None:
    sources = tuple((f - 1) * step + t for f, t in zip(field, taps, strict=True))
    size = ConvolutionSize(1, batch, *features, field, taps, (float(step),) * 2, (1.0, 1.0), sources)
    convolution = PlannedConvolution(size, "f32")
    cuts = Cuts(*(np.array([n]) for n in (1, min(cut[0], convolution.rows), min(cut[1], features[1]), cut[2])))
    piece = blocks(convolution, cuts, taps_first)
    made = [int(p[0]) for p in (piece.batch, *piece.field, piece.outputs, piece.inputs, *piece.taps)]
    extents = [batch, *field, features[1], features[0], *taps]
    needed = [-(-extent // p) for extent, p in zip(extents, made, strict=True)]
    # Dimensions cut one after another have at most as many pieces as asked for.
    assert needed[0] * needed[1] * needed[2] <= cuts.rows[0] and needed[4] * needed[5] * needed[6] <= cuts.k[0]
    read = {
        (o * step + t, p * step + u)
        for o, p, t, u in combinations(range(made[1]), range(made[2]), range(made[5]), range(made[6]))
    }
    box = (1 + max(r for r, _ in read)) * (1 + max(c for _, c in read))
    assert int(piece.source(size)[0]) == made[0] * made[4] * box
    assert int(piece.kernel[0]) == made[3] * made[4] * made[5] * made[6]


def test_one_tap_costs_as_a_product_and_more_taps_as_more_passes() -> None:
    one = int(amp_cycles(600, 64, 64, "f16", MK2))
    assert int(amp_cycles(600, 64, 64, "f16", MK2, taps=1, run=10)) == one
    nine = int(amp_cycles(600, 64, 64, "f16", MK2, taps=9, run=100))
    assert 8.5 * one < nine < 12 * one
    short = int(amp_cycles(600, 64, 64, "f16", MK2, taps=9, run=7))
    assert short > 1.3 * nine


def test_slic_beats_vmac_beats_the_matrix_engine_where_groups_are_small() -> None:
    plan = best_plan(image(512, 14, 3, 20, groups=512), MK2)
    assert plan.method == "groups in lanes"
    wide = int(depthwise_cycles(196, 1, 3, 3, 64, element_type="f32", target=MK2))
    narrow = int(depthwise_cycles(196, 1, 3, 3, 64, element_type="f16", target=MK2))
    slic = int(depthwise_cycles(196, 1, 3, 3, 64, element_type="f16", target=MK2, partials_type="f16"))
    assert slic < narrow < wide


def test_few_input_features_are_widened_by_taps() -> None:
    size = ConvolutionSize(1, 4, 3, 64, (112, 112), (7, 7), (2.0, 2.0), (1.0, 1.0), (224, 224))
    plan = best_plan(PlannedConvolution(size, "f16", "b"), MK2)
    padded = 4 * 112 * 112 * 49 * 16 * 64 // (32 * 1472)
    assert plan.compute < 0.6 * padded


def test_folded_taps_come_with_the_inputs_of_each_position() -> None:
    """7 x 7 taps of stride 2 over 4 features, 112 x 112 positions on 112 tiles, each a line of the field."""
    size = ConvolutionSize(1, 1, 4, 64, (112, 112), (7, 7), (2.0, 2.0), (1.0, 1.0), (224, 224))
    one, lines = np.array([1]), np.array([112])
    cuts = Cuts(one, lines, one, one)
    block = blocks(PlannedConvolution(size, "f16"), cuts, taps_first=False)
    found = {
        folded: int(received(PlannedConvolution(size, "f16"), block, cuts, folded)[0][0]) // (2 * 4)
        for folded in foldings(size.taps)
    }
    # A line reads 7 lines of 224 positions; folded, each of its 112 positions has those of its 7 taps.
    assert found == {(): 7 * 224, (0,): 7 * 224, (1,): 7 * 112 * 7, (0, 1): 7 * 112 * 7}


@pytest.mark.parametrize("field", [7, 14, 28, 56])
def test_no_convolution_beats_the_matrix_engine(field: int) -> None:
    convolution = image(256, field)
    plan = best_plan(convolution, MK2, ProductOptions("f16"))
    share = 2 * convolution.multiply_adds / (plan.cycles * MK2.tiles) / MK2.amp_flops_per_cycle("f16", "f16")
    assert 0.1 < share < 1


@settings(max_examples=examples(20))
@given(
    st.sampled_from([8, 64, 256]),
    st.sampled_from([7, 30, 56]),
    st.sampled_from([1, 3]),
    st.sampled_from([1, 4]),
    st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=3, unique=True),
)
def test_less_memory_takes_more_cycles(
    features: int, field: int, taps: int, groups: int, proportions: list[float]
) -> None:
    convolution = image(features, field, taps, groups=groups)
    plans = [best_plan(convolution, MK2, ProductOptions("f32", p)) for p in sorted(proportions)]
    for less, more in pairwise(plans):
        assert less.temporary_bytes <= more.temporary_bytes and less.cycles >= more.cycles


@pytest.mark.parametrize("proportion", [0.1, 0.3, 0.5, 0.6])
@pytest.mark.parametrize(("features", "field"), [(64, 512), (128, 256), (512, 64)])
def test_a_kernel_gradient_of_twice_the_features_takes_about_twice_the_cycles(
    features: int, field: int, proportion: float
) -> None:
    options, fields = ProductOptions("f16", proportion), (field, field)
    one, two = (
        PlannedConvolution(ConvolutionSize(1, n, 1, 64, (3, 3), fields, (1, 1), (1, 1), fields), "f16", "", "ab")
        for n in (features, 2 * features)
    )
    cycles, twice = (best_plan(each, MK2, options).cycles for each in (one, two))
    assert cycles < twice < 2.2 * cycles


def test_positions_of_a_kernel_gradient_in_one_dimension_are_divided_among_tiles() -> None:
    shapes = (((5,), (4096,)), ((5, 1), (64, 64)))
    line, square = (
        PlannedConvolution(ConvolutionSize(1, 64, 4, 64, taps, field, ones, ones, field), "f32", "", "ab")
        for (taps, field), ones in zip(shapes, ((1,), (1, 1)), strict=True)
    )
    one, two = (best_plan(each, MK2) for each in (line, square))
    assert one.tiles > MK2.tiles / 2 and one.cycles < 2 * two.cycles


def test_a_program_tells_the_sizes() -> None:
    window = WindowDimension(3, 2, 1, 1)
    (made,) = [c for c in program(2, 12, 8, 16, window).compute_sets if c.work_estimate.multiply_adds]
    (convolution,) = planned_of(made, Layouts([made]))
    assert convolution.size == ConvolutionSize(1, 2, 8, 16, (6, 6), (3, 3), (2.0, 2.0), (1.0, 1.0), (12, 12))
    assert convolution.multiply_adds == 2 * 6 * 6 * 9 * 8 * 16 and convolution.resident == "b"


def test_groups_are_told() -> None:
    (made,) = [
        c
        for c in program(2, 8, 32, 32, WindowDimension(3, 1, 1, 1), groups=32).compute_sets
        if c.work_estimate.multiply_adds
    ]
    (convolution,) = planned_of(made, Layouts([made]))
    size = convolution.size
    assert (size.groups, size.inputs, size.outputs) == (32, 1, 1)


def test_transposed_convolutions_multiply_no_zeros() -> None:
    window = WindowDimension(4, 1, 2, 2, 1, 2)
    (made,) = program(2, 8, 16, 16, window).compute_sets
    planned = planned_of(made, Layouts([made]))
    assert len(planned) == 4  # for even and odd rows and columns
    total = sum(each.multiply_adds for each in planned)
    assert total == made.work_estimate.multiply_adds
    assert total == pytest.approx(2 * 15 * 15 * 4 * 16 * 16, rel=0.15)


def test_padding_costs_nothing() -> None:
    (padded, valid) = (program(2, size, 16, 16, WindowDimension(3, 1, low, low)) for size, low in ((16, 1), (18, 0)))
    assert [each.work.kind for each in padded.compute_sets] == ["Convolution"]
    assert estimate(padded, MK2).compute == estimate(valid, MK2).compute


def test_the_options_reach_the_plan() -> None:
    made = program(8, 28, 128, 128, WindowDimension(3, 1, 1, 1), kind="f16")
    free, tight = (estimate(made, MK2, assumptions=Assumptions(convolution_memory_proportion=p)) for p in (0.6, 0.01))
    assert tight.cycles > free.cycles
    other = estimate(
        made, MK2, assumptions=Assumptions(available_memory_proportion=0.01, convolution_memory_proportion=0.6)
    )
    assert other.cycles == free.cycles
    half = estimate(made, MK2, assumptions=Assumptions(convolution_partials_type="f16"))
    assert half.cycles < free.cycles
    assert replace(Assumptions(), partials_type="f16").product_options("", True).partials_type == "f16"
