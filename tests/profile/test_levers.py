"""Promises of levers, compared with the cost reports of programs that were really changed that way."""

from __future__ import annotations

import pytest

from engine.compiler_options import CompilerOptions
from engine.profile.changes import IPUS, RECOMPUTATION, Change, ChangeEstimator
from engine.profile.levers import Lever, levers
from engine.profile.options import OPTIMIZER_STATE_VARIABLES, Assumptions
from engine.profile.program_estimate import Estimate, estimate
from engine.profile.recomputation import recomputes
from engine.target import target
from tests.profile.programs import product
from tests.profile.training_steps import deep_step

SMALL = target("ipu2", tiles=8)
RECOMPUTING = CompilerOptions(recompute=True)


def found_by(
    batch: int = 4096, width: int = 128, layers: int = 8, **arguments: str
) -> tuple[Estimate, dict[str, Lever]]:
    program = deep_step(batch, width, layers, **arguments)
    found = estimate(program, SMALL)
    helps = levers(program, found, lambda: deep_step(batch, width, layers, options=RECOMPUTING, **arguments))
    return found, {lever.what.split(",")[0].split(" over ")[0]: lever for lever in helps}


@pytest.fixture(scope="module")
def deep() -> tuple[Estimate, dict[str, Lever]]:
    return found_by()


def peak_of(change: Change, batch: int = 4096, width: int = 128, layers: int = 8) -> int:
    program = deep_step(batch, width, layers)
    return ChangeEstimator(program, estimate(program, SMALL)).peak_of(change)


def test_the_largest_batch_that_fits_is_proposed(deep: tuple[Estimate, dict[str, Lever]]) -> None:
    """Half the batch saves what a program with half the batch saves, and the proposed number really fits."""
    found, helps = deep
    really = estimate(deep_step(2048, 128, 8), SMALL).memory.peak_fullest
    assert found.memory.peak_fullest - peak_of(Change(batch=2048)) == pytest.approx(
        found.memory.peak_fullest - really, rel=0.1
    )
    lever = helps["a smaller batch"]
    assert lever.what == "a smaller batch, 256 in place of 4096" and lever.fits and lever.alone
    assert estimate(deep_step(256, 128, 8), SMALL).fits and not estimate(deep_step(512, 128, 8), SMALL).fits


@pytest.mark.parametrize("batch", [2048, 1024, 512, 256])
def test_a_smaller_batch_saves_what_the_program_with_it_saves(batch: int) -> None:
    assert peak_of(Change(batch=batch)) == pytest.approx(
        estimate(deep_step(batch, 128, 8), SMALL).memory.peak_fullest, rel=0.01
    )


def test_accumulation_saves_that_but_for_the_sums(deep: tuple[Estimate, dict[str, Lever]]) -> None:
    found, helps = deep
    sums = 8 * 128 * 128 * 4 / SMALL.tiles
    lever = helps["the same update by gradient accumulation"]
    assert lever.what.endswith("of 256")  # micro-batches of 512 do not fit beside the sums
    smaller = found.memory.peak_fullest - peak_of(Change(batch=256))
    assert lever.saves == pytest.approx(smaller - sums, rel=0.03)


def test_half_precision_promises_less_than_a_program_of_halves_saves(deep: tuple[Estimate, dict[str, Lever]]) -> None:
    found, helps = deep
    half = estimate(deep_step(4096, 128, 8, "f16"), SMALL)
    variables = (found.memory.always_live["variables"] - half.memory.always_live["variables"]) / SMALL.tiles
    really = found.memory.peak_fullest - half.memory.peak_fullest - variables
    saved = helps["half precision (mixed_float16)"].saves
    assert 0.5 * really < saved < really  # Keras keeps inputs and variables in float32, and casts them


@pytest.mark.parametrize(("batch", "layers"), [(512, 8), (1024, 11), (4096, 8)])
def test_recomputation_saves_what_the_program_with_it_saves(batch: int, layers: int) -> None:
    found, helps = found_by(batch, layers=layers)
    really = estimate(deep_step(batch, 128, layers, options=RECOMPUTING), SMALL).memory.peak_fullest
    assert helps[RECOMPUTATION].saves == found.memory.peak_fullest - really > 0


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_recomputation_is_no_proposal_for_shallow_models(layers: int) -> None:
    """The compiler does not recompute there: no program has `recomputed` compute sets."""
    program = deep_step(4096, 128, layers, options=RECOMPUTING)
    assert not recomputes(program)
    assert RECOMPUTATION not in found_by(layers=layers)[1]


def test_options_are_whole_new_estimates() -> None:
    program = product(2048, 4096, 2048, role="variable")
    found = estimate(program, SMALL)
    helps = {lever.what: lever for lever in levers(program, found)}
    again = estimate(program, SMALL, assumptions=Assumptions(available_memory_proportion=0.3))
    saved = found.memory.peak_fullest - again.memory.peak_fullest
    assert saved > 0
    assert helps["availableMemoryProportion 0.3 in place of 0.6"].saves == saved


def test_offloading_saves_the_slots(deep: tuple[Estimate, dict[str, Lever]]) -> None:
    """The sums of gradients, which offloading needs, take what one slot for each weight saves."""
    found, helps = deep
    offloads = Assumptions(offloaded=frozenset({OPTIMIZER_STATE_VARIABLES}))
    again = estimate(deep_step(4096, 128, 8), SMALL, assumptions=offloads).memory.peak_fullest
    slots = 8 * 128 * 128 * 4 / SMALL.tiles
    assert 0.9 * slots < found.memory.peak_fullest - again <= slots + 1024
    assert peak_of(Change(assumptions=offloads)) == pytest.approx(again + slots, rel=0.001)
    assert "optimizer state in streaming memory" not in helps


def test_pipelining_takes_as_many_ipus_as_it_needs() -> None:
    found, helps = found_by(2048, 512, 16)
    lever = helps["pipelining"]
    assert not found.fits and not any(each.fits for each in helps.values())
    assert lever.what in [f"pipelining over {ipus} IPUs" for ipus in IPUS]
    assert lever.fits == (found.memory.peak_fullest - lever.saves <= SMALL.bytes_per_tile)
    # Buffers of single products, rearranged operands among them, are as large on each IPU.
    assert found.memory.peak_fullest / 3 < lever.saves < found.memory.peak_fullest


def test_a_pipeline_that_fits_is_found() -> None:
    found, helps = found_by(256, 128, 16)
    assert not found.fits and helps["pipelining"].fits


def test_a_pipeline_has_no_more_ipus_than_layers() -> None:
    _, helps = found_by(64, 2000, 2)
    assert helps["pipelining"].what == "pipelining over 2 IPUs"
    _, helps = found_by(64, 2000, 1)
    assert "pipelining" not in helps


def test_what_suffices_together_is_told_where_nothing_does_alone() -> None:
    program = deep_step(512, 320, 4)
    found = estimate(program, SMALL)
    first, *others = levers(program, found)
    assert first.fits and not first.alone and " + " in first.what
    assert not any(lever.fits for lever in others)
    assert found.memory.peak_fullest - first.saves <= SMALL.bytes_per_tile


def test_two_changes_together_save_what_the_program_with_both_saves() -> None:
    both = peak_of(Change(batch=1024, half_precision=True))
    program = deep_step(1024, 128, 8, "f16")
    half = estimate(program, SMALL).memory
    # Keras keeps variables and inputs in single precision and casts them. So do estimates, but this program does not.
    weights = 8 * 128 * 128 * 2
    singles = half.always_live["variables"] + half.always_live["feeds"] + weights
    assert both == pytest.approx(half.peak_fullest + singles / SMALL.tiles, rel=0.01)


def test_inference_has_nothing_to_recompute_or_accumulate() -> None:
    program = product(4096, 256, 256, role="variable")
    what = " ".join(lever.what for lever in levers(program, estimate(program, SMALL)))
    assert "recomputation" not in what and "accumulation" not in what
    assert "a smaller batch, " in what


def test_half_precision_is_no_advice_for_halves() -> None:
    _, helps = found_by(element_type="f16")
    assert "half precision (mixed_float16)" not in helps
