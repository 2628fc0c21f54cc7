"""Transports: a single process is one, too, and the interface has bounds."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import ConfigurationError
from ipu._internal.processes import active
from ipu._internal.processes.transport import SingleProcess


def test_one_process_reduces_gathers_and_broadcasts_by_itself() -> None:
    alone, array = SingleProcess(), np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(alone.all_reduce(array), array)
    assert np.array_equal(alone.all_gather(array), array[None])
    assert np.array_equal(alone.all_gather_rows(array), array)
    assert np.array_equal(alone.reduce_scatter(array), array)
    assert np.array_equal(alone.broadcast(array), array) and not np.shares_memory(alone.broadcast(array), array)
    alone.barrier()
    assert alone.bytes > 0


def test_a_process_has_one_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active, "_active", None)
    for name in active.LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    with pytest.raises(
        ConfigurationError, match="Expected one group of 4 processes, .* Received: 1. .*srun --mpi=pmix"
    ):
        active.initialise()
    monkeypatch.delenv("SLURM_STEP_NUM_TASKS")
    first = active.initialise()
    assert first.size == 1 and active.initialise() is first is active.active()
    two = SingleProcess()
    two.size = 2
    active.activate(two)
    with pytest.raises(ConfigurationError, match="one transport"):
        active.activate(SingleProcess())
    active.shut_down()
    assert active.active() is None
