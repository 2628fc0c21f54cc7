"""No public name of Keras is forgotten, and a representative of each family does the same as on TensorFlow."""

from __future__ import annotations

import json
import multiprocessing
import os

import pytest

from tests.differential.__main__ import KEPT, PAGE
from tests.differential.comparison import REFUSED, SAME, Outcome, compare, distance
from tests.differential.frameworks import framework
from tests.differential.page import page
from tests.differential.report import GOOD, Missing, counts, missing
from tests.differential.running import run
from tests.differential.suite import CASES, Entry, entries, forgotten

REPRESENTATIVES = [
    "layers/Conv2D (strided)",
    "layers/SimpleRNN",
    "layers/MultiHeadAttention (causal)",
    "layers/BatchNormalization",
    "layers/MaxPooling2D (overlapping, same)",
    "layers/Embedding",
    "layers/RandomCrop",
    "layers/UpSampling2D (bilinear)",
    "losses/CategoricalFocalCrossentropy",
    "metrics/AUC",
    "optimizers/Adam (embedding)",
    "optimizers/Lamb",
    "schedules/CosineDecay (warm-up)",
    "activations/gelu",
]
OF_TF_KERAS = [
    "optimizers/Nadam",
    "layers/SimpleRNN",
    "layers/BatchNormalization",
    "optimizers/Adam (embedding)",
    "metrics/AUC",
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "title"), [*(("keras", each) for each in REPRESENTATIVES), *(("tf_keras", each) for each in OF_TF_KERAS)]
)
def test_same_as_on_tensorflow(name: str, title: str) -> None:
    (case,) = (each for each in CASES if each.title == title)
    outcomes = compare(framework(name), case)
    assert {outcome.verdict for outcome in outcomes} == {SAME}, outcomes


PARTS = [
    ("tf_keras", 32, 0),
    *((name, 8, first) for name in ("keras", "tf_keras") for first in (0, 4)),
]


@pytest.mark.explore
@pytest.mark.slow
@pytest.mark.parametrize(("name", "every", "first"), PARTS)
def test_every_so_many_cases(name: str, every: int, first: int) -> None:
    """Runs only some cases: `python -m tests.differential` runs all, which takes longer than a test should."""
    # Tests that run side by side use the other cores.
    jobs = 1 if multiprocessing.parent_process() else os.cpu_count() or 1
    outcomes = [each for _, found in run(framework(name), None, "", jobs, every, first) for each in found]
    assert [outcome for outcome in outcomes if outcome.verdict not in GOOD | {REFUSED}] == []
    assert len(outcomes) > 720 / every


def test_page_tells_of_all_names() -> None:
    kept = json.loads(KEPT.read_text())
    assert PAGE.read_text() == page(kept["records"], kept["versions"])
    for name, kinds in kept["records"].items():
        names = [entry.kind for entry in entries(framework(name))]
        assert {kind: record["names"] for kind, record in kinds.items()} == {kind: names.count(kind) for kind in names}


@pytest.mark.parametrize("name", ["keras", "tf_keras"])
def test_every_public_name_has_a_case_or_a_reason(name: str) -> None:
    assert forgotten(framework(name)) == []
    assert len(entries(framework(name))) > 200


def test_titles_are_unique() -> None:
    titles = [case.title for case in CASES]
    assert len(titles) == len(set(titles))


def test_a_difference_is_reported() -> None:
    case = CASES[0]
    outcomes = [Outcome(case, "train", SAME), Outcome(case, "predict", "differs", "1e-2 apart, allowed 1e-5")]
    results = [(Entry(case.kind, case.name, (case,)), outcomes)]
    assert counts(results) == {case.kind: (0, 1)}
    assert list(missing(results)) == [Missing(case.name, "predict", "differs", "1e-2 apart, allowed 1e-5")]


def test_distance_minds_shapes_and_nan() -> None:
    import numpy as np

    one = [np.array([1.0, np.nan, np.inf])]
    assert distance(one, [np.array([1.5, np.nan, np.inf])]) == 0.5
    assert distance(one, [np.array([1.0, 2.0, np.inf])]) == float("inf")
    assert distance(one, [np.array([1.0, np.nan])]) == float("inf")
