"""The breakdown of a training step's time: every compute set of a workload, timed on one worker.

python -m benchmarks.hot_spots WORKLOAD [LINES]
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from typing import Any

import numpy as np
from llvmlite import ir

from benchmarks.workloads import EVERY
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.memory import (
    call_code,
    floating_point_state,
    flush_to_zero,
    load_i8,
    load_i64,
    set_floating_point_state,
    store_i64,
)
from engine.codelets.language.record import word
from engine.machine_code.abi import c_function
from engine.runtime import executable as executables
from engine.runtime.executor import COMPUTING, Column, RowKind, another_iteration, is_followed_now

SECONDS = 1.0
"""Duration of a measurement by either clock: long enough for the processor to reach its clock rate for wide vectors."""

LONG = 500.0
"""Microseconds of a call above which other programs may interrupt every call."""
THREAD_TIME = int(time.CLOCK_THREAD_CPUTIME_ID)


@intrinsic
def ticks(builder: ir.IRBuilder) -> ir.Value:
    """The processor's time stamp, int64."""
    function = builder.module.declare_intrinsic("llvm.readcyclecounter", (), ir.FunctionType(ir.IntType(64), ()))
    return builder.call(function, ())


@inner
def now(parameters: int) -> int:
    """The time of the clock that is in the parameters of `timed_steps`."""
    clock, timespec = word(parameters, 5), word(parameters, 6)
    if clock == 0:
        return ticks()
    call_code(clock, THREAD_TIME, timespec, 0, 0)
    return load_i64(timespec) * 1_000_000_000 + load_i64(timespec + 8)


@codelet
def timed_steps(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """The executor of steps lo <= s < hi on one worker, which keeps the least time of each row.

    Parameters: the table's address, rows and columns; the addresses of times and of calls, int64 [rows]; the address of
    clock_gettime for nanoseconds of the thread's processor time, or 0 for ticks; the address of a timespec.
    """
    table, rows, columns = word(parameters, 0), word(parameters, 1), word(parameters, 2)
    kept = floating_point_state()
    set_floating_point_state(flush_to_zero(kept))
    for _ in range(lo, hi):
        number = 0
        while number < rows:
            row = table + 8 * columns * number
            kind = word(row, Column.KIND)
            number += 1
            if kind == RowKind.COMPUTE or kind == RowKind.CLAIMED:
                start = now(parameters)
                lo, hi = word(row, Column.RANGES), word(row, Column.RANGES + 1)
                call_code(word(row, Column.CODELET), word(row, Column.PARAMETERS), lo, hi, scratch)
                took = now(parameters) - start
                spent, calls = word(parameters, 3) + 8 * (number - 1), word(parameters, 4) + 8 * (number - 1)
                if took < load_i64(spent) or load_i64(calls) == 0:
                    store_i64(spent, took)
                store_i64(calls, load_i64(calls) + 1)
            elif kind == RowKind.JUMP:
                number = word(row, Column.TARGET)
            elif kind == RowKind.REPEAT:
                number = word(row, Column.TARGET) if another_iteration(row, scratch) else number
            elif kind == RowKind.ITERATION:
                number = word(row, Column.TARGET) if is_followed_now(row, scratch) else number
            elif kind == RowKind.BRANCH:
                taken = (load_i8(word(row, Column.PREDICATE)) != 0) == (word(row, Column.TRUTH) != 0)
                number = word(row, Column.TARGET) if taken else number
    set_floating_point_state(kept)


def observed_programs() -> list[Any]:
    """A list to which every executable created from now on is appended."""
    made: list[Any] = []
    build = executables.Executable.__init__

    def observing(self: Any, *arguments: Any, **named: Any) -> None:
        build(self, *arguments, **named)
        made.append(self)

    executables.Executable.__init__ = observing  # type: ignore[method-assign]
    return made


def microseconds_per_row(executable: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The table for one worker, and the microseconds and calls of each row in a step."""
    table = executable._table(False, 1).copy()
    feeding = len(executable._infeeds)
    table[:feeding, Column.RANGES + 1] = table[:feeding, Column.RANGES]  # the feeds of the last call are freed
    scratch, _ = executable._workspace_for(1)
    return microseconds_of(table, scratch)


def microseconds_of(table: np.ndarray, scratch: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The table, and the microseconds and calls of each row in a step that the table's first worker runs alone.

    The processor's time stamp measures short rows precisely. Other programs interrupt each run of a long row, so its
    processor time counts if that is less.
    """
    (stamped, calls), (processor, _) = (
        _microseconds_by(clock, table, scratch) for clock in (0, c_function("clock_gettime"))
    )
    return table, np.where(stamped > LONG * calls, np.minimum(stamped, processor), stamped), calls


def _microseconds_by(clock: int, table: np.ndarray, scratch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Microseconds and calls of each row in a step."""
    spent, calls, timespec = np.zeros(len(table), np.int64), np.zeros(len(table), np.int64), np.zeros(2, np.int64)
    addresses = table.ctypes.data, len(table), table.shape[1], spent.ctypes.data, calls.ctypes.data
    parameters = np.array([*addresses, clock, timespec.ctypes.data], np.int64)
    begin, start, steps = _now(), time.perf_counter(), 0
    while time.perf_counter() < start + SECONDS:
        timed_steps(parameters.ctypes.data, 0, 5, scratch.ctypes.data)
        steps += 5
    per_tick = 1e-9 if clock else (time.perf_counter() - start) / (_now() - begin)
    return spent * per_tick * 1e6 * calls / steps, calls / steps


def _now() -> int:
    read = np.zeros(1, np.int64)
    store_ticks(read.ctypes.data, 0, 1, 0)
    return int(read[0])


@codelet
def store_ticks(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Store the time stamp. Parameters: the address of its int64."""
    store_i64(parameters, ticks())


def describe(compute_set: Any) -> str:
    """The compute set's name, and the shapes that it writes and reads."""
    written = ", ".join(str(span.buffer.shape) for span in compute_set.writes[:2])
    read = ", ".join(str(span.buffer.shape) for span in compute_set.reads[:3])
    return f"{compute_set.name[:44]:45}{written[:40]} <- {read[:70]}"


def main(name: str, lines: int = 40) -> None:
    """Train for some steps, then time the program with the most compute sets."""
    programs = observed_programs()
    from benchmarks.rivals.keras_fit import prepare

    workload = EVERY[name]
    inputs, labels = workload.data(np.random.default_rng(0), workload.samples)
    prepare(workload, "ipu", [], inputs, labels)
    executable = max(programs, key=lambda each: len(each.program.compute_sets))
    table, spent, calls = microseconds_per_row(executable)
    sets = iter(executable._all_sets)
    rows = [(each, next(sets)) for each in range(len(table)) if table[each, Column.KIND] in COMPUTING]
    print(f"{name}: {spent.sum():.0f} us a step on one worker, {len(rows)} compute sets, {calls.sum():.0f} calls")
    families: dict[str, float] = defaultdict(float)
    for row, compute_set in rows:
        families[compute_set.name.split(".")[0].split(" ")[0]] += spent[row]
    for family, microseconds in sorted(families.items(), key=lambda each: -each[1])[:12]:
        print(f"  {family:40}{microseconds:9.1f} us  {100 * microseconds / spent.sum():5.1f}%")
    print()
    for row, compute_set in sorted(rows, key=lambda each: -spent[each[0]])[:lines]:
        rate = compute_set.work_estimate.multiply_adds * 2e-3 * calls[row] / spent[row] if spent[row] else 0
        gigaflops = f"{rate:6.0f} GF/s" if rate else " " * 11
        print(f"{spent[row]:9.1f} us {calls[row]:5.0f} calls{gigaflops}  {describe(compute_set)}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
