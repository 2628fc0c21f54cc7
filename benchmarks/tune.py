"""Measure the costs of the engine's table of processors on this machine, and say which decisions they would change.

python -m benchmarks.tune [--rounds N] [--only NAME ...] [--models NAME ...] [--write FILE [--results]]

`--write` writes the costs to a file. The engine uses the file only if you set `SOFTWARE_IPU_COSTS=FILE` in the
environment. Costs in the section "schedule" never change the bits of a result. `--results` adds costs that select
another way to compute products. The least of many times counts, so that other load has little effect.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from unittest import mock

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import peaks
from benchmarks.hot_spots import observed_programs
from benchmarks.kernels import Kernel, of_codelet, of_module, product, ticks_per_second
from benchmarks.workloads import WORKLOADS
from engine.host.passes import split_products
from engine.host.passes.pass_list import HOST_PASSES
from engine.host.unit_chain import UnitChain
from engine.host.work_estimates import call_estimate_of, is_fine_grained
from engine.ir.builder import Builder
from engine.machine_code.costs import RESULTS, VARIABLE, costs
from engine.machine_code.processor import may_use_matrix_registers, target
from engine.program.program import Program
from engine.program.run_passes import run_passes
from engine.program.work.contraction import Contraction
from engine.runtime.executable import inline_work
from engine.runtime.executor import RowKind, control_row, new_scratch, new_state, step_table
from engine.runtime.threads import usable_cores
from engine.runtime.workers import run_table
from engine.whole_files import write_whole

BARRIERS = 16
SMALL = 2048
"""Elements of a compute set that takes about as long as a barrier."""
STREAMS = [1 << power for power in range(15, 28)]
"""Bytes of the arrays of a stream."""
FALL = 0.7
"""Share of the cache's bandwidth below which a stream counts as leaving the cache."""
UNSPLIT = (192, 192, 192)
"""Rows, columns and k of a product that is too small for matrix registers."""
SPLIT = [(512, 512, 512, "NN"), (2048, 64, 512, "NN"), (2048, 64, 512, "TN")]
"""Three products: most of the time of the first goes into multiplying, of the second into splits, of the third into
gathering."""


def measured(names: Iterable[str], rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """The costs with these names, in nanoseconds or bytes; without those that this machine does not have."""
    nanoseconds = 1e9 / ticks_per_second()
    found: dict[str, float] = {}
    for measure in dict.fromkeys(MEASURES[name] for name in names):
        found |= {each: value for each, value in measure(rounds, nanoseconds).items() if each in names}
        say(f"measured {measure.__name__}")
    return found


def least(kernel: Kernel, rounds: int, workers: int = 1) -> float:
    """The least ticks of a step."""
    for _ in range(rounds):
        kernel.time(workers)
    return kernel.least[workers]


def barrier(rounds: int, nanoseconds: float) -> dict[str, float]:
    rows = Kernel("barriers", 1.0, lambda workers: step_table([control_row(RowKind.SYNC, workers)] * BARRIERS, workers))
    return {"barrier": nanoseconds * least(rows, rounds, 2) / BARRIERS}


def small_element(rounds: int, nanoseconds: float) -> dict[str, float]:
    b = Builder()
    x, y = b.parameter("f32", (SMALL,)), b.parameter("f32", (SMALL,))
    module = b.module(b.tuple(b.add(b.multiply(x, y), y)), {1: 0})
    elements = 2 * SMALL  # work estimates count one for each operation
    return {"small_element": nanoseconds * least(of_module("update", elements, module), rounds) / elements}


def threads(rounds: int, nanoseconds: float) -> dict[str, float]:
    """The time of a call without work with two workers."""
    rows, scratch, state, taken = step_table([control_row(RowKind.SYNC, 2)], 2), new_scratch(2, 64), new_state(2), []
    for _ in range(10 * rounds):
        start = time.perf_counter()
        run_table(rows, 1, 2, scratch, state)
        taken.append(time.perf_counter() - start)
    return {"threads": 1e9 * min(taken)}


def bandwidths(rounds: int, nanoseconds: float) -> dict[int, float]:
    """Bytes per nanosecond of one worker's stream, by the bytes of its arrays."""
    found = {}
    for size in STREAMS:
        flow = peaks.Stream(size // 4)
        kernel = of_codelet(str(size), flow.bytes, peaks.stream.address, flow.parameters, flow.units, flow)
        found[size] = flow.bytes / (nanoseconds * least(kernel, rounds))
    return found


def cache_bytes(rounds: int, nanoseconds: float) -> dict[str, float]:
    """The largest stream with the bandwidth of the second-level cache, into which 256 KiB fit on any processor."""
    found = bandwidths(rounds, nanoseconds)
    inside = [size for size in STREAMS if size >= 1 << 18 and found[size] >= FALL * found[1 << 18]]
    print("stream, one worker: " + ", ".join(f"{size >> 10} KiB {rate:.0f} GB/s" for size, rate in found.items()))
    return {"cache_bytes": float(max(inside))}


def multiply_add(rounds: int, nanoseconds: float) -> dict[str, float]:
    kernel = product(*UNSPLIT)
    return {"multiply_add": nanoseconds * least(kernel, rounds) / kernel.work}


def split(rounds: int, nanoseconds: float) -> dict[str, float]:
    """The three costs of products on matrix registers, from the times of three products; none without the registers."""
    if not may_use_matrix_registers():
        return {}
    with mock.patch.object(split_products, "_pays", lambda _: True):
        times = [nanoseconds * least(product(*size), rounds) for size in SPLIT]
    return solved(times)


def solved(times: list[float]) -> dict[str, float]:
    """The costs of which the products in `SPLIT` consist, from their nanoseconds on one worker."""
    work = [(rows * columns * k, (rows + columns) * k, rows * k * (form[0] == "T")) for rows, columns, k, form in SPLIT]
    return dict(zip(RESULTS[1:], map(float, np.linalg.solve(np.array(work, float), times)), strict=True))


MEASURES = {
    "multiply_add": multiply_add,
    "split_multiply_add": split,
    "split": split,
    "gather": split,
    "barrier": barrier,
    "small_element": small_element,
    "threads": threads,
    "cache_bytes": cache_bytes,
}


@contextmanager
def used(text: str) -> Iterator[None]:
    """A context in which the engine uses the costs of a file with this text."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file, mock.patch.dict(os.environ, {VARIABLE: file.name}):
        file.write(text)
        file.flush()
        forget()
        yield
    forget()


def forget() -> None:
    """Make the engine read the costs again."""
    costs.cache_clear()
    inline_work.cache_clear()


def decisions(program: Program) -> dict[str, str]:
    """The decisions about a program on the host that the costs lead to."""
    host = [each.work for each in run_passes(program, HOST_PASSES).compute_sets]
    return {
        "compute sets": str(len(host)),
        "fused chains": str(sum(isinstance(work, UnitChain) for work in host)),
        "split products": str(sum(isinstance(work, Contraction) and work.bf16x3 for work in host)),
        "workers": "one" if is_fine_grained(program) else "all",
        "steps of a call on one worker": str(int(inline_work() / call_estimate_of(program))),
    }


def programs(names: list[str]) -> Iterator[tuple[str, Program]]:
    """The training steps of workloads, as lowered."""
    from benchmarks.rivals.keras_fit import prepare

    for name in names:
        made, workload = observed_programs(), WORKLOADS[name]
        prepare(workload, "ipu", [], *workload.data(np.random.default_rng(0), workload.batch * workload.execution))
        yield name, max(made, key=lambda each: len(each.program.compute_sets)).program


def text_of(found: dict[str, float], results: bool) -> str:
    """The file of these costs."""
    name, _ = target()
    lines = [f"# {name}, {usable_cores()} cores, {date.today()}: python -m benchmarks.tune", "[schedule]"]
    lines += [f"{each} = {value:.4g}" for each, value in found.items() if each not in RESULTS]
    if results:
        lines += ["[results]", *(f"{each} = {value:.4g}" for each, value in found.items() if each in RESULTS)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Read the command line, measure, print, write the file if it names one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune", description="Costs of this machine.")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--only", nargs="*", default=list(MEASURES), choices=MEASURES, metavar="NAME")
    parser.add_argument("--models", nargs="*", default=["mlp", "lenet", "lstm", "encoder, 2 layers"], metavar="NAME")
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--results", action="store_true", help="also costs that change the last bits of results")
    options = parser.parse_args()
    console, progress, current = Console(width=110), Console(stderr=True), costs()
    found = measured(options.only, options.rounds, progress.print)
    made = Table(title=f"Costs on {target()[0]}, nanoseconds or bytes", title_justify="left")
    for heading in ("cost", "table", "measured", "ratio"):
        made.add_column(heading, justify="left" if heading == "cost" else "right")
    for name in options.only:
        known = getattr(current, name)
        cells = (f"{found[name]:.4g}", f"{found[name] / known:.2f}") if name in found else ("not on this machine", "")
        made.add_row(name, f"{known:.4g}", *cells)
    console.print(made)
    text = text_of(found, options.results)
    for name, program in programs(options.models):
        before = decisions(program)
        with used(text):
            after = decisions(program)
        changes = [f"{each} {before[each]} to {after[each]}" for each in before if before[each] != after[each]]
        console.print(f"{name}: " + ("; ".join(changes) or "nothing would change"))
    print(f"\n{text}")
    if options.write:
        write_whole(options.write, text)
        console.print(f"Use it: {VARIABLE}={options.write}")


if __name__ == "__main__":
    main()
