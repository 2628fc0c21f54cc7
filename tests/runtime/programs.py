"""Small codelets and a machine to run tables of them, shared by the runtime tests."""

from __future__ import annotations

import numpy as np

from engine.codelets.language.build import codelet, make
from engine.codelets.language.memory import load_f64, load_i64, pause, store_f64, store_i64
from engine.runtime.executor import new_scratch, new_state
from engine.runtime.native_threads import codelets_of_calls
from engine.runtime.workers import completed_steps, run_table


@codelet
def count(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """counter[unit] += 1. Parameters: address of the counters."""
    for unit in range(lo, hi):
        address = load_i64(parameters) + 8 * unit
        store_i64(address, load_i64(address) + 1)


@codelet
def rotate(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """target[unit] = source[(unit + 1) % n] + 1, which another unit wrote. Parameters: target, source, n."""
    n = load_i64(parameters + 16)
    for unit in range(lo, hi):
        value = load_i64(load_i64(parameters + 8) + 8 * ((unit + 1) % n))
        store_i64(load_i64(parameters) + 8 * unit, value + 1)


@codelet
def log_call(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Appends (tag, step, lo, hi) to a journal. Parameters: journal (its word 0 is the length), tag."""
    journal = load_i64(parameters)
    length = load_i64(journal)
    place = journal + 8 + 32 * length
    store_i64(place, load_i64(parameters + 8))
    store_i64(place + 8, load_i64(scratch))
    store_i64(place + 16, lo)
    store_i64(place + 24, hi)
    store_i64(journal, length + 1)


@codelet
def halve(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """value[unit] *= 0.5. Parameters: address of float64 values."""
    for unit in range(lo, hi):
        address = load_i64(parameters) + 8 * unit
        store_f64(address, load_f64(address) * 0.5)


@codelet
def dawdle(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Wastes time. Parameters: number of pauses."""
    for _ in range(load_i64(parameters)):
        pause()


@codelet
def stop_at(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Sets a word to 1 in one step. Parameters: address of the word, step."""
    if load_i64(scratch) == load_i64(parameters + 8):
        store_i64(load_i64(parameters), 1)


def words(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


class Machine:
    """State and scratch of `workers` workers."""

    def __init__(self, workers: int) -> None:
        make(codelets_of_calls())  # before a test waits for a call to begin
        self.workers = workers
        self.state = new_state(workers)
        self.scratch = new_scratch(workers, 256)

    def has_completed_steps(self) -> bool:
        return completed_steps(self.state) > 0

    def run(self, table: np.ndarray, steps: int, inline: bool = False) -> int:
        return run_table(table, steps, self.workers, self.scratch, self.state, inline)


class Journal:
    """The calls that `log_call` wrote."""

    def __init__(self, capacity: int = 1000) -> None:
        self.memory = np.zeros(1 + 4 * capacity, np.int64)

    def parameters(self, tag: int) -> np.ndarray:
        return words(self.memory.ctypes.data, tag)

    def entries(self) -> list[tuple[int, ...]]:
        return [tuple(row) for row in self.memory[1:].reshape(-1, 4)[: self.memory[0]].tolist()]
