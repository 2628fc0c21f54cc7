"""Whole Keras programs, drawn from features, have the results of plain Keras."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.crossings import workers
from tests.crossings.check import check, stand_alone
from tests.crossings.compare import differences
from tests.crossings.documented import FAULTS, IN_XLA, TABLE, before_faults, exclusions, excused
from tests.crossings.generate import generate
from tests.crossings.harness import Raised
from tests.crossings.micro_batches import Device
from tests.crossings.plan import FRAMEWORKS, Misfit, Plan, all_features
from tests.crossings.shrink import shrink
from tests.exploring import more_seeds

SEEDS, MORE_SEEDS = range(10), more_seeds(range(10, 60), 100)
DOCS = Path(__file__).parent.parent.parent / "docs"
# Keras and TensorFlow warn of many things that these programs do on purpose.
pytestmark = pytest.mark.filterwarnings("ignore")


def run(seed: int, *wanted: str) -> None:
    plan = generate(seed, wanted, exclusions())
    found = check(plan)
    if found and not found[0].startswith("refused"):
        pytest.fail("\n".join([f"python -m tests.crossings --plan '{plan}'", *found[:10]]), pytrace=False)


@pytest.mark.parametrize("seed", SEEDS)
def test_program(seed: int) -> None:
    run(seed)


@pytest.mark.explore
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_more_programs(seed: int) -> None:
    run(seed)


ON_DEVICES = (
    "tf_keras scope accumulation=3_mean replicas=2 controlled=nested size=9/3 adam=amsgrad fit checkpoint fit",
    "keras scope stages=2_Interleaved two_outputs=dict sequence adam averaged=overwritten fit save_and_load=keras fit",
    "keras scope replicas=3 normalized=batch generator=endless weight_decay bad_call=shape fit evaluate",
    "tf_keras scope stages replicas=2 device_option=recomputed two_inputs=dict dataset=dropped other_optimizer=AdamW "
    "raises=epoch_end fit fit predict",
)
DEVICES = ("accumulation", "stages", "replicas,accumulation", "stages,replicas")


@pytest.mark.parametrize("line", ON_DEVICES)
def test_program_on_a_device(line: str) -> None:
    assert check(Plan.read(line)) == []


@pytest.mark.explore
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_more_programs_on_devices(seed: int, device: str) -> None:
    run(seed, "mode:scope", *device.split(","), "fit")


@pytest.mark.slow
def test_program_in_processes() -> None:
    pytest.importorskip("mpi4py", exc_type=ImportError)
    assert (
        check(Plan.read("keras scope processes=2 replicas=2 accumulation normalized adam fit evaluate predict")) == []
    )


def test_other_reductions_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan.read("keras scope accumulation=3_mean replicas=2 fit")
    of_device = Device.set_options
    monkeypatch.setattr(Device, "set_options", lambda d, model: of_device(replace(d, reduction="sum"), model))
    assert any("end #1/weights" in line for line in check(plan))


def test_a_plan_is_its_line() -> None:
    plans = [generate(seed) for seed in range(20)]
    assert [Plan.read(str(plan)) for plan in plans] == plans
    assert [generate(seed) for seed in range(20)] == plans


@pytest.mark.parametrize("name", all_features())
def test_each_option_makes_a_program(name: str) -> None:
    """Each option makes a program in the company of features that some options need."""
    company = ((), ("classifier",), ("averaged",), ("stateful",), ("own_step",), ("validation", "arrays"))
    for option in all_features()[name].options:
        word = f"{name}={option.replace(' ', '_')}" if option else name
        sources = [source for keras in FRAMEWORKS for others in company if (source := _source(keras, word, *others))]
        assert sources, word
        for source in sources:
            compile(source, word, "exec")


def _source(keras: str, *words: str) -> str:
    try:
        return Plan(keras, ("scope",), words).source()
    except Misfit:
        return ""


def test_programs_have_what_is_wanted_and_nothing_that_is_excluded() -> None:
    without = exclusions(("adam+mode:copy", "legacy"))
    plans = [generate(seed, ("adam", "fit"), without) for seed in range(30)]
    assert all(plan.has(frozenset({"adam", "fit"})) for plan in plans)
    assert not any(plan.has(exclusion) for plan in plans for exclusion in without)
    assert {mode for plan in plans for mode in plan.modes} == {"scope", "block", "call"}


def test_other_numbers_errors_and_orders_are_seen() -> None:
    wanted = [("fit", {"loss": np.float32(0.5), "count": 3}), ("state", np.linspace(0, 1, 5, dtype=np.float32))]
    assert not differences(wanted, wanted)
    changed: list[Any] = [("fit", {"loss": np.float32(0.51), "count": 4}), *wanted[1:]]
    assert {line.partition(":")[0] for line in differences(changed, wanted)} == {"fit #1/loss", "fit #1/count"}
    assert {line.partition(":")[0] for line in differences(wanted[::-1], wanted)} == {"order"}
    assert differences([("fit", workers.Checked), *wanted[1:]], wanted)


def test_an_overflow_in_float64_ends_in_infinity_or_nan() -> None:
    wanted, got = ([("end", np.array(each))] for each in ([1.0, np.nan, np.inf], [1.0, -np.inf, np.nan]))
    assert differences(got, wanted)
    assert not differences(got, wanted, f="float64")
    assert differences([("end", np.array([1.0, 2.0, np.nan]))], wanted, f="float64")


def test_a_failure_is_cut_down_to_its_features() -> None:
    plan = Plan.read(
        "keras scope recurrent=GRU size=22/4 adam=amsgrad clipping=clipvalue logged=all fit evaluate predict"
    )
    small = shrink(plan, lambda each: {"adam", "logged"} <= {*each.names})
    assert str(small) == "keras scope adam logged"
    assert "def program(K, note, f):" in stand_alone(small)


def test_crashes_and_hangs_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan.read("keras scope fit")
    worker = workers.Worker()
    worker.give(plan)
    worker.process.kill()
    assert workers.first_ready([worker]).take().found == ["crash: the process ended with -9"]
    monkeypatch.setattr(workers, "LIMIT_SECONDS", 0.0)
    checker = workers.Checker()
    assert checker(plan).found == ["hang: it takes more than 0 s"]
    checker.end()


def test_documented_differences_are_on_their_pages() -> None:
    for row in (*TABLE, *IN_XLA, *FAULTS):
        assert row.reason in " ".join((DOCS / row.page).read_text().split())
    plan = Plan.read("tf_keras scope random_layers=Dropout fit")
    line = "scope end #1/weights/0: plain [1.], here [2.], off by 0.5 of 7.6e-06"
    assert excused(plan, [line, line[:30]]) == [line[:30]]


def test_nothing_is_compared_after_a_fault_of_plain_keras() -> None:
    fault = Raised(ValueError("Creating variables on a non-first call to a function decorated with tf.function."))
    wanted: list[Any] = [("bad missing", fault), ("fit", fault), ("state", 1)]
    got: list[Any] = [("bad missing", fault), ("fit", 0.5), ("state", 2)]
    assert before_faults(got, wanted) == (got[:1], wanted[:1])
    assert before_faults(wanted, wanted) == (wanted, wanted)


def test_what_reads_a_file_that_was_not_saved_is_not_compared() -> None:
    failed, absent = (
        Raised(ValueError("name already exists")),
        Raised(FileNotFoundError(2, "No such file or directory")),
    )
    wanted: list[Any] = [("save", failed), ("load", Raised(KeyError("kernel_velocity"))), ("state", 1)]
    got: list[Any] = [("save", failed), ("load", absent), ("state", 2)]
    assert before_faults(got, wanted) == (got[:1], wanted[:1])


def test_counts_at_the_end_of_unknown_data_are_those_of_xla() -> None:
    assert check(Plan.read("tf_keras block generator=finite adam weight_decay fit")) == []
