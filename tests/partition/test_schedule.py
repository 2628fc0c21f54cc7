"""Pipeline schedules: rows as in the documentation's figures, properties that follow, and refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ConfigurationError, StepCountError, UnsupportedOperation
from engine.partition.schedule import Row, devices_of, make_schedule
from engine.partition.schedule_checks import check_count, check_pipeline, legal_count, recomputation_of
from engine.partition.schedule_table import LETTERS
from tests.exploring import examples
from tests.partition.schedule_rules import verify_schedule


def cell(row: Row) -> str:
    """`F1.0` is the forward pass of stage 1 for micro-batch 0."""
    return f"{LETTERS[row.kind]}{row.stage}{'' if row.micro_batch is None else f'.{row.micro_batch}'}"


def rows_of(figure: str) -> set[tuple[int, int, str]]:
    """IPU, slot and cell of each row of a figure whose first line numbers the slots; a dot is a bubble."""
    lines = [line.split()[2:] for line in figure.splitlines()[1:]]
    return {(ipu, slot, text) for ipu, line in enumerate(lines) for slot, text in enumerate(line) if text != "."}


GROUPED = """\
         0    1    2    3    4    5    6    7    8    9   10
IPU 0 F0.0 F0.1 F0.2    . F0.3 B0.0    . B0.1 B0.2 B0.3   U0
IPU 1    . F1.0 F1.1 B1.0 F1.2 B1.1 F1.3 B1.2 B1.3    .   U1"""
INTERLEAVED = """\
         0    1    2    3    4    5    6    7    8    9   10
IPU 0 F0.0    . F0.1 B0.0 F0.2 B0.1 F0.3 B0.2    . B0.3   U0
IPU 1    . F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3    .   U1"""
SEQUENTIAL = """\
         0    1    2    3    4
IPU 0 F0.0    .    . B0.0   U0
IPU 1    . F1.0 B1.0    .   U1"""
RECOMPUTED = """\
         0    1    2    3    4    5
IPU 0 F0.0    .    . R0.0 B0.0   U0
IPU 1    . F1.0 B1.0    .    .   U1"""
INFERENCE = """\
         0    1    2    3
IPU 0 F0.0 F0.1 F0.2    .
IPU 1    . F1.0 F1.1 F1.2"""


@pytest.mark.parametrize(
    ("kind", "count", "training", "recomputation", "expected"),
    [
        ("Grouped", 4, True, "none", GROUPED),
        ("Interleaved", 4, True, "none", INTERLEAVED),
        ("Sequential", 1, True, "none", SEQUENTIAL),
        ("Interleaved", 1, True, "then_backpropagate", RECOMPUTED),
        ("Grouped", 3, False, "none", INFERENCE),
        ("Interleaved", 3, False, "none", INFERENCE),
    ],
)
def test_rows_are_those_of_the_figures(kind, count, training, recomputation, expected) -> None:
    schedule = make_schedule(kind, devices_of(2, None), count, training=training, recomputation=recomputation)
    assert schedule.slots == len(expected.splitlines()[0].split())
    assert {(row.ipu, row.slot, cell(row)) for row in schedule.rows} == rows_of(expected)


@settings(max_examples=examples(60))
@given(
    st.sampled_from(["Grouped", "Interleaved", "Sequential"]),
    st.integers(2, 6),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from(["none", "then_backpropagate", "with_backpropagation"]),
    st.data(),
)
def test_every_schedule_keeps_to_the_rules(kind, stages, count, training, recomputation, data) -> None:
    ipu = st.integers(0, stages - 1)
    mapping = None
    if kind != "Interleaved" or not training:
        concurrent = st.lists(ipu, min_size=2, max_size=3, unique=True)
        mapping = data.draw(st.none() | st.lists(ipu | concurrent, min_size=stages, max_size=stages))
    devices = devices_of(stages, mapping)
    check_pipeline(kind, stages, devices, training=training)
    schedule = make_schedule(kind, devices, count, training=training, recomputation=recomputation)
    verify_schedule(schedule)
    assert {row.slot for row in schedule.rows} == set(range(schedule.slots))
    assert all(0 <= share < 1 for share in schedule.bubbles().values())


@pytest.mark.parametrize("count", [12, 24])
@pytest.mark.parametrize("kind", ["Grouped", "Interleaved", "Sequential"])
def test_stash_depths_are_what_the_rows_hold(kind, count) -> None:
    schedule = make_schedule(kind, devices_of(3, None), count, training=True)
    for stage, depth in enumerate(schedule.stash_depths()):
        held = most = 0
        for row in schedule.rows:
            if row.stage == stage and row.kind in ("forward", "backward"):
                held += 1 if row.kind == "forward" else -1
                most = max(most, held)
        assert most == depth
    expected = {"Grouped": (6, 4, 2), "Interleaved": (3, 2, 1), "Sequential": (1, 1, 1)}
    assert schedule.stash_depths() == expected[kind]


def test_bubbles_follow_from_rows_and_durations() -> None:
    schedule = make_schedule("Sequential", devices_of(2, None), 4, training=True)
    assert schedule.bubbles() == {0: 0.5, 1: 0.5}
    durations = {("forward", 0): 1.0, ("forward", 1): 3.0, ("backward", 0): 2.0, ("backward", 1): 6.0}
    assert schedule.bubbles(durations) == {0: 0.75, 1: 0.25}
    # Backward passes longer than forward passes make interleaved IPUs wait for each other.
    slow_backward = {("forward", s): 1.0 for s in range(4)} | {("backward", s): 2.0 for s in range(4)}
    shares = {
        kind: make_schedule(kind, devices_of(4, None), 64, training=True).bubbles(slow_backward)[0]
        for kind in ("Grouped", "Interleaved")
    }
    assert shares["Grouped"] < shares["Interleaved"]


def test_concurrent_stages_share_a_slot() -> None:
    schedule = make_schedule("Grouped", devices_of(3, [0, [1, 2], 2]), 6, training=True)
    verify_schedule(schedule)
    rows = [row for row in schedule.rows if (row.stage, row.kind, row.micro_batch) == (1, "forward", 2)]
    assert {row.ipu for row in rows} == {1, 2}
    assert len({row.slot for row in rows}) == 1


def broken(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    return [
        ("twice", [*rows, rows[-1]]),
        ("missing", rows[1:]),
        ("in two places", [replace(row, ipu=0) for row in rows]),
        ("too early", [replace(row, slot=0) if row.kind == "backward" else row for row in rows]),
    ]


def test_broken_schedules_are_found() -> None:
    schedule = make_schedule("Grouped", devices_of(2, None), 4, training=True)
    verify_schedule(schedule)
    for what, rows in broken(list(schedule.rows)):
        with pytest.raises(AssertionError):
            verify_schedule(replace(schedule, rows=tuple(rows)))
            pytest.fail(what)


@pytest.mark.parametrize(
    ("kind", "mapping", "training", "unit"),
    [
        ("Grouped", None, True, 8),
        ("Grouped", None, False, 4),
        ("Interleaved", None, True, 4),
        ("Interleaved", None, False, 4),
        ("Sequential", None, True, 1),
        ("Grouped", [0, 1, 1, 0], True, 8),
    ],
)
def test_legal_counts(kind, mapping, training, unit) -> None:
    devices = devices_of(4, mapping)
    assert legal_count(kind, devices, training=training) == unit
    for count in range(1, 3 * unit + 1):
        if count % unit == 0:
            check_count(kind, devices, count, training=training, option="steps")
            continue
        with pytest.raises(StepCountError, match=f"multiple of {unit}.*Received: {count}"):
            check_count(kind, devices, count, training=training, option="steps")


def test_messages_name_the_nearest_counts() -> None:
    with pytest.raises(StepCountError, match="nearest legal count is 8 or 16"):
        check_count("Grouped", devices_of(4, None), 10, training=True, option="steps")
    with pytest.raises(StepCountError, match="nearest legal count is 8;"):
        check_count("Grouped", devices_of(4, None), 3, training=True, option="steps")
    with pytest.raises(StepCountError, match="nearest legal count is 1;"):
        check_count("Sequential", devices_of(4, None), 0, training=True, option="steps")


@pytest.mark.parametrize(
    ("kind", "stages", "mapping", "training", "error", "message"),
    [
        ("Diagonal", 2, None, True, ConfigurationError, "Grouped, Interleaved, Sequential"),
        ("Grouped", 1, None, True, ConfigurationError, "at least 2 stages"),
        ("Grouped", 3, [0, 1], True, ConfigurationError, "Each stage must be mapped to an IPU"),
        ("Grouped", 2, [0, []], True, ConfigurationError, "Each stage must be mapped to an IPU"),
        ("Grouped", 2, [0, -1], True, ConfigurationError, "0 and above"),
        ("Interleaved", 2, [0, 0], True, UnsupportedOperation, "stages on different IPUs"),
        ("Interleaved", 3, [0, [1, 2], 2], True, NotImplementedError, "device_mapping="),
    ],
)
def test_what_is_refused(kind, stages, mapping, training, error, message) -> None:
    with pytest.raises(error, match=message):
        check_pipeline(kind, stages, devices_of(stages, mapping), training=training)


def test_recomputation_modes() -> None:
    assert recomputation_of(None, "Grouped") == "none"
    assert recomputation_of("Auto", "Grouped") == recomputation_of("Auto", "Interleaved") == "then_backpropagate"
    assert recomputation_of("Auto", "Sequential") == "with_backpropagation"
    assert recomputation_of("RecomputeAndBackpropagateInterleaved", "Grouped") == "with_backpropagation"
    with pytest.raises(UnsupportedOperation, match="Use RecomputeAndBackpropagateInterleaved or Auto"):
        recomputation_of("RecomputeThenBackpropagate", "Sequential")
    with pytest.raises(UnsupportedOperation, match="Use RecomputeThenBackpropagate or Auto"):
        recomputation_of("RecomputeAndBackpropagateInterleaved", "Interleaved")
    with pytest.raises(ConfigurationError, match="Received: 'Never'"):
        recomputation_of("Never", "Grouped")
