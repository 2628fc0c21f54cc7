"""Options of single parts of a pipeline reach the plans of these parts, and of no others."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from engine.compile import build_program
from engine.errors import ConfigurationError
from engine.partition.stage_options import LibraryOptions, StageOptions, stage_options_from
from engine.profile.options import Assumptions, with_library_options
from engine.profile.pipeline_estimate import estimate_pipeline
from engine.profile.program_estimate import Estimate
from tests.profile.test_pipeline_estimate import MK2, made

NONE = LibraryOptions()
LITTLE = LibraryOptions(matmul=(("availableMemoryProportion", "0.002"),))
"""Options that leave so little memory that products of 256 x 256 matrices take longer."""


def estimated(options: StageOptions, **pipelining: Any) -> Estimate:
    step, _ = made(width=256, **pipelining)
    return estimate_pipeline(replace(step, options=options), MK2, build_program)


def differing(one: Estimate, other: Estimate) -> set[tuple[str, int]]:
    assert one.pipeline is not None and other.pipeline is not None
    pairs = zip(one.pipeline.parts, other.pipeline.parts, strict=True)
    return {(a.kind, a.stage) for a, b in pairs if (a.compute, a.exchange, a.sync) != (b.compute, b.exchange, b.sync)}


def test_options_reach_their_own_stage() -> None:
    plain = estimated(StageOptions())
    assert differing(plain, estimated(StageOptions((NONE, LITTLE, NONE)))) == {("forward", 1)}
    assert differing(plain, estimated(StageOptions(backward=(NONE, NONE, LITTLE)))) == {("backward", 2)}
    assert differing(plain, estimated(StageOptions(update=LITTLE))) == set()  # the update has no products
    both = estimated(StageOptions((LITTLE,) * 3, (LITTLE,) * 3))
    assert both.cycles > plain.cycles and both.memory.peak_fullest < plain.memory.peak_fullest


def test_recomputation_of_its_own_row_has_the_options_of_the_forward_part() -> None:
    mode = {"recomputation_mode": "RecomputeThenBackpropagate"}
    plain, forward = estimated(StageOptions(), **mode), estimated(StageOptions((LITTLE, NONE, NONE)), **mode)
    assert differing(plain, forward) == {("forward", 0), ("recompute", 0)}
    within = {"recomputation_mode": "RecomputeAndBackpropagateInterleaved"}
    found = differing(estimated(StageOptions(), **within), estimated(StageOptions((LITTLE, NONE, NONE)), **within))
    assert found == {("forward", 0)}


def test_flags_stand_over_those_of_the_whole_program() -> None:
    whole = Assumptions(partials_type="f16", available_memory_proportion=0.4, slice_memory_proportion=0.3)
    assert with_library_options(whole, NONE).product_options() == whole.product_options()
    found = with_library_options(
        whole,
        LibraryOptions(
            convolution=(("partialsType", "float"),), matmul=(("availableMemoryProportion", "0.1"),), slices=()
        ),
    )
    assert (found.partials_type, found.available_memory_proportion) == ("f16", 0.1)
    # Convolutions take the options of products until they get their own.
    assert (found.convolution_partials_type, found.convolution_memory_proportion) == ("f32", 0.4)
    assert found.slice_proportion() == 0.3
    sliced = with_library_options(whole, LibraryOptions(slices=(("availableMemoryProportion", "0.05"),)))
    assert sliced.slice_proportion() == 0.05
    with pytest.raises(ConfigurationError, match="Received: 'much'"):
        with_library_options(whole, LibraryOptions(matmul=(("availableMemoryProportion", "much"),)))


def test_options_survive_json() -> None:
    options = StageOptions((LITTLE, NONE), (NONE, LITTLE), LITTLE)
    assert stage_options_from(json.loads(json.dumps(asdict(options)))) == options
