"""Python's garbage collector during a compilation is paused, and new objects count as old afterwards."""

import gc
import threading

import pytest

from engine import garbage
from engine.garbage import collector_paused


@pytest.fixture(autouse=True)
def few_objects(monkeypatch):
    monkeypatch.setattr(garbage, "MANY", 100)
    monkeypatch.setattr(garbage, "_promoted", 0)
    monkeypatch.setattr(garbage, "_frozen", False)
    gc.unfreeze()  # what the suite has frozen
    yield
    gc.freeze()


def _cycles(count):
    made = [[] for _ in range(count)]
    for each in made:
        each.append(each)
    return made


def _generation(wanted):
    return next(k for k in range(3) if any(each is wanted for each in gc.get_objects(generation=k)))


def test_objects_are_old_and_the_collector_runs_again():
    with collector_paused():
        with collector_paused():
            made = _cycles(2000)
        assert not gc.isenabled()
    assert gc.isenabled() and _generation(made) == 2 and gc.get_freeze_count() == 0
    del made
    assert gc.collect() >= 2000  # cycles are still found


def test_all_objects_are_scanned_when_there_are_twice_as_many(monkeypatch):
    monkeypatch.setattr(garbage, "HEAP", 1000)
    before = gc.get_stats()[2]["collections"]
    with collector_paused():
        made = _cycles(2000)
    assert made and gc.get_stats()[2]["collections"] == before + 1


def test_a_disabled_collector_and_frozen_objects_stay_so():
    gc.disable()
    try:
        with collector_paused():
            made = _cycles(2000)
        assert not gc.isenabled() and _generation(made) == 0
    finally:
        gc.enable()
    gc.freeze()
    for _ in range(2):  # frozen objects are counted once
        with collector_paused():
            more = _cycles(2000)
        assert more and gc.get_freeze_count() > 0


def test_what_another_thread_freezes_meanwhile_is_not_the_programs(monkeypatch):
    freeze, counts = gc.freeze, []

    def freeze_while_another_promotes():
        freeze()
        made = _cycles(2000)
        other = threading.Thread(target=garbage._promote)
        other.start()
        other.join()
        counts.append((len(made), gc.get_freeze_count() > 0))

    monkeypatch.setattr(gc, "freeze", freeze_while_another_promotes)
    with collector_paused():
        made = _cycles(2000)
    assert made and counts == [(2000, True)]
    assert not garbage._frozen and not garbage._promoting.locked() and gc.get_freeze_count() == 0
