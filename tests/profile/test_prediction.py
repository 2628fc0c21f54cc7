"""The error stated beside a prediction follows from the regimes that a step belongs to, by held-out figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.profile.prediction import (
    PARTS,
    SHOWN,
    UNMEASURED,
    Trust,
    error_basis,
    prediction_error,
    trust_in_bytes,
    trust_in_cycles,
)
from engine.profile.program_estimate import estimate
from engine.profile.step_costs import ComputeSetCost
from engine.profile.validation import DENSE, STEPS, bounds, measurements
from engine.target import target
from tests.profile.programs import dense_step, elementwise, product

MK2 = target("ipu2")


def test_every_part_and_the_total_have_one() -> None:
    found = prediction_error(estimate(dense_step(), MK2))
    assert set(found) == {*PARTS, "total"}
    assert all(0 < error < 1 for error in found.values())


def test_small_steps_have_the_error_of_recurrent_programs() -> None:
    found = estimate(dense_step(), MK2)
    (trust,) = trust_in_cycles(found)
    assert trust.regime == STEPS and trust.bound == bounds()[STEPS]
    assert prediction_error(replace(found, host=0))["total"] == pytest.approx(bounds()[STEPS].rms)


def test_it_depends_on_what_computes() -> None:
    large = estimate(product(2048, 2048, 2048), MK2)
    assert [each.regime for each in trust_in_cycles(large)] == [DENSE[True]]
    assert prediction_error(large)["compute"] == pytest.approx(abs(bounds()[DENSE[True]].worst))
    tanh = prediction_error(estimate(elementwise("tanh", 50_000_000), MK2))["compute"]
    assert tanh == pytest.approx(abs(bounds()["compiled element-wise"].worst))
    half = prediction_error(estimate(elementwise("tanh", 50_000_000, "f16"), MK2))["compute"]
    assert half == pytest.approx(abs(bounds()["vector widths"].worst))


def test_convolutions_are_a_regime() -> None:
    found = estimate(product(2048, 2048, 2048), MK2)

    def convolving(cost: ComputeSetCost) -> ComputeSetCost:
        return replace(cost, operation=replace(cost.operation, convolves=True))

    images = replace(found, costs=tuple(map(convolving, found.costs)))
    assert trust_in_cycles(images)[0].regime == "convolutional networks"
    assert trust_in_bytes(images).regime == "bytes of convolutions"
    assert trust_in_bytes(found).regime == "bytes of large arrays"


def test_unmeasured_vertices_are_not_trusted_and_are_named() -> None:
    found = estimate(elementwise("tanh", 50_000_000), MK2)
    sorts = (replace(cost, operation=replace(cost.operation, unmeasured="sorts")) for cost in found.costs)
    sorted_ = replace(found, costs=tuple(sorts))
    assert prediction_error(sorted_)["compute"] == prediction_error(replace(sorted_, host=0))["total"] == UNMEASURED
    assert error_basis(trust_in_cycles(sorted_)) == "sorts, 100%: no figure held out, ± 50% assumed"


@pytest.mark.parametrize("regime", sorted({each.group for each in measurements() if each.subject[0] != "estimator"}))
def test_reports_say_why_a_row_of_their_regime_is_far_off(regime: str) -> None:
    told = Trust(regime, 1.0, bounds()[regime]).reason
    for each in measurements():
        far = each.group.startswith(regime) and abs(each.error) > SHOWN
        assert (each.name in told) == far and (not far or each.caveat in told)


def test_several_ipus_are_less_certain() -> None:
    one, four = (prediction_error(estimate(dense_step(), MK2, replicas=r)) for r in (1, 4))
    assert four["sync"] > one["sync"] and four["exchange"] > one["exchange"] and four["host"] == one["host"]


def test_nothing_to_do() -> None:
    found = estimate(elementwise("tanh", 0), MK2)
    assert prediction_error(found)["compute"] == 0 and trust_in_cycles(found) == ()
