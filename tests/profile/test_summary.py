"""The summary has its sentences, and fits a terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.profile.prediction import error_basis, trust_in_bytes, trust_in_cycles
from engine.profile.program_estimate import Estimate, estimate
from engine.profile.summary import summary
from engine.target import target
from tests.profile.programs import dense_step, elementwise

MK2 = target("ipu2")


@pytest.fixture(scope="module")
def trained() -> Estimate:
    return estimate(dense_step(), MK2)


def test_size(trained: Estimate) -> None:
    lines = summary(trained).splitlines()
    assert 15 <= len(lines) <= 28
    assert max(map(len, lines)) <= 88
    assert not any(line != line.rstrip() for line in lines)


def test_what_it_says(trained: Estimate) -> None:
    text = " ".join(summary(trained).split())
    for words in (
        "Mk2 GC200 (ipu2): one IPU, 1,472 tiles, 1.33 GHz",
        "Memory: fits",
        "of 638,976 bytes",
        f"{trained.memory.always_live_fullest:,}",
        f"{trained.memory.peak_fullest:,}",
        f"Cycles per step: {trained.cycles_per_step:,}, {trained.cycles:,} of them on the chip",
        f"{trained.compute:,}",
        f"{trained.samples_per_second:,.0f} samples/s",
        "dense MatMul (backward)",
        "Estimated, not measured",
        "% for the whole (recurrent and small-step programs: rms ",
        "Bytes: ± ",
        "Largest errors of parts against figures held out: compute ± ",
        "host ± 50%",
    ):
        assert words in text


def test_bars_follow_the_shares(trained: Estimate) -> None:
    lines = {line.split()[0]: line for line in summary(trained).splitlines() if line.startswith("  ")}
    for part in ("compute", "exchange", "sync", "host"):
        assert lines[part].count("#") == round(30 * getattr(trained, part) / trained.cycles_per_step)


def test_overlapped_transfers_lengthen_a_step_by_what_outlasts_the_rest(trained: Estimate) -> None:
    overlapping = replace(trained.assumptions, overlapped_io=True, io_tiles=32)
    for host in (trained.cycles // 2, 3 * trained.cycles):
        found = replace(trained, assumptions=overlapping, host=host)
        assert found.cycles_per_step == max(found.cycles, host)
        assert found.seconds_per_step == found.cycles_per_step / MK2.clock_hz
        text = " ".join(summary(found).split())
        assert f"Cycles per step: {found.cycles_per_step:,}, " in text and f"{host:,} cycles beside the rest" in text


def test_it_says_so_if_the_program_does_not_fit() -> None:
    cramped = estimate(dense_step(64, 2000, 1000), target("ipu2", tiles=16))
    assert f"DOES NOT FIT, {cramped.memory.peak_fullest - 638_976:,} bytes over" in summary(cramped)
    assert max(map(len, summary(cramped).splitlines())) <= 88


def test_it_says_how_far_to_trust_it(trained: Estimate) -> None:
    found = replace(trained, host=0)
    text = " ".join(summary(found).split())
    (trust,), held = trust_in_cycles(found), trust_in_bytes(found)
    assert f"± {trust.error:.0%} for the whole ({error_basis((trust,))})." in text
    assert f"Bytes: ± {held.error:.0%} ({error_basis((held,))})." in text


def test_replicas_bring_the_error_of_external_sync() -> None:
    text = summary(estimate(dense_step(), MK2, replicas=4))
    assert "4 replicas, each 1,472 tiles" in text
    assert "sync ± 58%" in " ".join(text.split())


def test_assumed_rates_are_named(trained: Estimate) -> None:
    text = " ".join(summary(replace(trained, assumed=("fft",))).split())
    assert "Rates assumed for: fft." in text


def test_an_empty_program() -> None:
    assert "fits" in summary(estimate(elementwise("tanh", 0), MK2))
