"""The error that is stated beside a prediction: by what a step consists of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.profile import estimate
from engine.profile.prediction import PARTS, UNMEASURED, prediction_error, whole_model_error
from engine.profile.validation import measurements, whole_models, worst_errors
from engine.target import target
from tests.profile.programs import dense_step, elementwise, product

MK2 = target("ipu2")


def test_every_part_and_the_total_have_one() -> None:
    found = prediction_error(estimate(dense_step(), MK2))
    assert set(found) == {*PARTS, "total"}
    assert all(0 < error < 1 for error in found.values())
    assert found["total"] >= whole_model_error()


def test_it_depends_on_what_computes() -> None:
    worst = worst_errors()
    products = prediction_error(estimate(product(512, 512, 512), MK2))["compute"]
    assert products == pytest.approx(max(abs(worst["matrix products"]), abs(worst["matrix-vector products"])))
    tanh = prediction_error(estimate(elementwise("tanh", 500_000), MK2))["compute"]
    assert tanh == pytest.approx(abs(worst["compiled element-wise"]))
    half = prediction_error(estimate(elementwise("tanh", 500_000, "f16"), MK2))["compute"]
    assert half == pytest.approx(abs(worst["vector widths"]))


def test_vertices_that_nobody_measured_are_not_trusted() -> None:
    found = estimate(elementwise("tanh", 500_000), MK2)
    sorted_ = replace(found, costs=tuple(replace(cost, method="bitonic sort") for cost in found.costs))
    assert prediction_error(sorted_)["compute"] == UNMEASURED


def test_several_ipus_are_less_certain() -> None:
    one, four = (prediction_error(estimate(dense_step(), MK2, replicas=r)) for r in (1, 4))
    assert four["sync"] > one["sync"] and four["exchange"] > one["exchange"] and four["host"] == one["host"]


def test_nothing_to_do() -> None:
    assert prediction_error(estimate(elementwise("tanh", 0), MK2))["compute"] == 0


def test_whole_models_stay_within_their_tolerance_and_say_where_they_are_from() -> None:
    for row in whole_models():
        assert abs(row["estimate"] / row["published"] - 1) <= row["tolerance"] <= 0.3
        assert len(row["source"]) > 20 and row["caveat"]
    assert {row["name"] for row in whole_models()}.isdisjoint(m.name for m in measurements())
