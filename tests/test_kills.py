"""Trainings that are killed at random moments end with the same bits: a few of `python -m tests.kills`."""

from __future__ import annotations

import pytest

from tests.exploring import seed
from tests.kills import KINDS, Attempt, Tally

pytestmark = pytest.mark.explore


@pytest.mark.explore
@pytest.mark.parametrize("kind", [*KINDS, "processes"])
def test_killed_trainings(kind: str) -> None:
    if kind == "processes":
        pytest.importorskip("mpi4py", exc_type=ImportError)
    tally = Tally(kind, seed() or 0)
    try:
        while tally.kills < 3:
            tally.training(3)
    finally:
        tally.close()
    assert not {"LOST", "FAILED", "trainings with OTHER BITS"} & {*tally.ends}, tally.ends


def test_what_becomes_of_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost epochs and different bits are counted."""
    killed, whole = Attempt(-9, [0, 1, 2], 1.0, None, ""), Attempt(0, [0, 1, 2, 3], 1.0, "bits", "")
    runs = [whole, killed, killed._replace(places=[2, 3]), killed._replace(places=[1]), killed._replace(places=[0])]
    runs += [killed._replace(places=[0, 1]), whole._replace(places=[], digest="others")]
    monkeypatch.setattr("tests.kills.attempted", lambda kind, folder, seconds, choose: runs.pop(0))
    tally = Tally("keras", 0)
    tally.training(5)
    assert tally.ends == {"resumed": 2, "LOST": 1, "restarted whole": 1} | {
        "resumed after the last": 1,
        "trainings with OTHER BITS": 1,
    }
    assert tally.kills == 5 and not runs
    tally.close()
