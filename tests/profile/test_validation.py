"""The model against published figures: kept estimates equal those of the present product, and rows are split."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

import pytest

from benchmarks.published import computed, program_key
from engine.profile.estimators import matrix_product
from engine.profile.prediction import PARTS
from engine.profile.validation import ESTIMATES, Measurement, bounds, measurements, table, table_of_bounds

ROWS = {each.name: each for each in measurements()}
KINDS = {kind: [m for m in measurements() if m.subject[0] == kind] for kind in ("estimator", "program", "model")}
MODELS: dict[tuple[Any, ...], list[Measurement]] = {}
"""The rows of whole models by their programs: those of one test share them."""
for each in KINDS["model"]:
    MODELS.setdefault(program_key(each.subject[1]), []).append(each)


def assert_kept(rows: list[Measurement]) -> None:
    """Asserts that pages and reports show the present estimates."""
    found = {each.name: computed(each) for each in rows}
    assert found == {each.name: each.estimate for each in rows}, "python -m benchmarks.published --write"


def named(rows: list[Measurement]) -> str:
    return rows[0].name


def test_kept_estimates_of_experiments_are_the_estimators() -> None:
    assert_kept(KINDS["estimator"])


def test_kept_estimates_of_programs_are_the_products() -> None:
    assert_kept(KINDS["program"])


@pytest.mark.parametrize("rows", MODELS.values(), ids=named)
def test_kept_estimates_of_whole_models_are_the_products(rows: list[Measurement]) -> None:
    assert_kept(rows)


def test_no_estimate_is_kept_for_a_row_that_is_gone() -> None:
    assert list(json.loads(ESTIMATES.read_text())) == list(ROWS)
    assert len(ROWS) == len(measurements()) and all(isfinite(each.estimate) for each in measurements())


@pytest.mark.parametrize("measurement", [m for m in measurements() if m.tolerance], ids=lambda m: m.name)
def test_estimate_is_within_its_tolerance(measurement: Measurement) -> None:
    assert measurement.tolerance is not None
    assert abs(measurement.error) <= measurement.tolerance, table()
    assert measurement.tolerance <= 0.2 or measurement.caveat


def test_rows_say_where_they_are_from_and_why_they_are_far_off() -> None:
    for m in measurements():
        assert len(m.source) > 10 and m.kind in ("M", "V", "model")
        assert abs(m.error) <= 0.4 or m.caveat, m.name


def test_every_part_of_a_step_has_measurements_of_hardware() -> None:
    for part in PARTS:
        assert [m for m in measurements() if m.part == part and m.kind == "M"], part


def test_bounds_are_of_rows_that_were_not_fitted() -> None:
    for group, bound in bounds().items():
        errors = [m.error for m in measurements() if m.group == group and not m.fitted]
        assert bound.held_out == len(errors) > 0
        assert bound.rms == pytest.approx((sum(e * e for e in errors) / len(errors)) ** 0.5)
        assert abs(bound.worst) == max(map(abs, errors)) and ROWS[bound.worst_name].error == bound.worst
    assert "matrix products" not in bounds()  # all of them set constants


def test_matrix_products_within_12_cycles() -> None:
    for m in measurements():
        if m.group == "matrix products":
            assert abs(m.estimate - m.published) <= 12


@pytest.mark.parametrize("rows", range(16, 2049, 16))
def test_the_128_matrix_products_of_the_notebook(rows: int) -> None:
    """The notebook prints six of them; the least squares line of all 128 is known: 4.000 N + 331.4 cycles."""
    assert abs(matrix_product("bow", rows) - (4.000 * rows + 331.4)) <= 12


def test_the_tables_have_a_line_for_each() -> None:
    lines = table().splitlines()
    assert len(lines) == len(ROWS) + 2
    assert max(map(len, lines)) <= 88
    assert any("triad" in line and "-0.3%" in line for line in lines)
    assert len(table_of_bounds().splitlines()) == len(bounds()) + 1
