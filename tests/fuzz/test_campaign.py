"""A campaign checks each kind in processes of its own, keeps failures, and adds up its counts."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest

from tests.fuzz import campaign, kinds
from tests.fuzz.campaign import COUNTS, Campaign
from tests.fuzz.kinds import KINDS, OUTCOMES, Kind, damaged


def test_a_few_seconds(tmp_path: Path) -> None:
    """Runs two kinds that take little time, for a few seeds each."""
    made = Campaign(tmp_path, ["files", "mutants"], 1000)
    made.run(300, 2)
    assert {kind: found.total() for kind, found in made.found.items()} == {"files": 2, "mutants": 2}
    assert not any(found["FAILED"] for found in made.found.values())
    again = Campaign(tmp_path, ["files"], 1002)
    again.run(300, 1)
    assert {kind: found.total() for kind, found in again.totals().items()} == {"files": 3, "mutants": 2}


@pytest.mark.explore
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind(kind: str, tmp_path: Path) -> None:
    made = Campaign(tmp_path, [kind], 7)
    made.run(600, 2)
    assert made.found[kind].total() == 2 and {*made.found[kind]} <= {*OUTCOMES}


def _faulty(seed: int) -> str:
    if seed == 1:
        os.abort()
    if seed == 2:
        time.sleep(60)
    if seed == 3:
        raise KeyError("no such thing")
    return "same" if seed else "x differs from y"


def test_failures_crashes_and_hangs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "faulty", Kind(_faulty, 1.0, 5.0, "again {seed}"))
    monkeypatch.setattr(campaign, "_serve", _serve_faulty)
    made = Campaign(tmp_path, ["faulty"], 0)
    made.run(300, 5)
    assert made.found["faulty"] == {"FAILED": 4, "same": 1}
    kept = {path.stem: path.read_text().splitlines() for path in tmp_path.glob("*.txt")}
    assert {name: lines[:2] for name, lines in kept.items()} == {
        "faulty-0": ["again 0", "x differs from y"],
        "faulty-1": ["again 1", "crash: the process ended with -6"],
        "faulty-2": ["again 2", "hang: it takes more than 5 s"],
        "faulty-3": ["again 3", "KeyError: 'no such thing'"],
    }
    assert json.loads((tmp_path / COUNTS).read_text()) == {"faulty": {"FAILED": 4, "same": 1}}


_serve = campaign._serve


def _serve_faulty(connection: object, kind: str, log: str) -> None:
    """Serves the faulty kind in the worker, which imports the kinds itself."""
    kinds.KINDS[kind] = Kind(_faulty, 1.0, 5.0, "")
    _serve(connection, kind, log)  # type: ignore[arg-type]


def test_damaged_files_differ_and_a_seed_gives_the_same() -> None:
    content = bytes(range(256)) * 8
    made = [damaged(content, random.Random(seed)) for seed in range(50)]
    assert sum(each != content for each in made) > 45
    assert made == [damaged(content, random.Random(seed)) for seed in range(50)]
