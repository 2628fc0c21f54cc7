"""Products as shares of the processor's peak of multiply-adds, and updates as shares of its memory bandwidth.

python -m benchmarks.kernels [NAME ...] [--rounds N]

Kernels run as compute sets of the engine, with one and with two workers. A product is compared with a loop of only
multiply-adds in registers, an update with a plain stream. The fastest run of each kernel counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import peaks
from benchmarks.hot_spots import ticks
from engine.codelets.language.build import codelet
from engine.codelets.language.memory import load_i64, store_i64
from engine.compile import compile_module
from engine.ir import DotDimensionNumbers, Instruction, Module
from engine.ir.builder import Builder
from engine.machine_code.abi import Scratch
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.executor import CONTROL_FLOW, Column, compute_row, new_scratch, new_state, step_table
from engine.runtime.workers import run_table

STEPS = 4_096
CALL_TICKS = 40_000_000
"""Approximate length of a call: much longer than the start of the workers."""
WINDOW_TICKS = 500_000
"""Steps shorter than this are timed several at a time."""
MIB = 1 << 20


@codelet
def stamp(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Store the time at which a step begins."""
    store_i64(load_i64(parameters) + 8 * load_i64(scratch + 8 * Scratch.STEP), ticks())


@codelet
def now(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Store the time."""
    store_i64(load_i64(parameters), ticks())


@dataclass
class Kernel:
    """A timed kernel: a step table for each number of workers, and the work of a step."""

    name: str
    work: float
    """Multiply-adds, or bytes read and written."""
    table: Callable[[int], np.ndarray]
    scratch_bytes: int = 64
    per_worker: bool = False
    """Whether each worker does `work`; otherwise all workers share it."""
    keep: list[object] = field(default_factory=list)
    least: dict[int, float] = field(default_factory=dict)
    """Ticks of a step, by the number of workers."""

    @cached_property
    def stamps(self) -> np.ndarray:
        return np.zeros(STEPS + 1, np.int64)

    def time(self, workers: int) -> None:
        """Run one call; keep the least ticks of a step."""
        ring = np.array([self.stamps.ctypes.data], np.int64)
        ranges = [(0, 1)] + [(1, 1)] * (workers - 1)
        first = step_table([compute_row(stamp.address, ring.ctypes.data, ranges)], workers)
        table = np.concatenate([first, self.table(workers)])
        table[np.isin(table[:, Column.KIND], CONTROL_FLOW), Column.TARGET] += 1
        scratch, state = new_scratch(workers, self.scratch_bytes), new_state(workers)
        expected = self.least.get(workers)
        steps = 4 if expected is None else int(min(STEPS, max(4, CALL_TICKS // expected)))
        run_table(table, steps, workers, scratch, state)
        for _ in range(2 if expected is None else 1):
            window = int(min(steps - 1, max(1, WINDOW_TICKS // (expected or WINDOW_TICKS))))
            took = self.stamps[window:steps] - self.stamps[: steps - window]
            expected = min(self.least.get(workers, np.inf), float(took.min()) / window)
            self.least[workers] = expected

    def rate(self, workers: int) -> float:
        """Work per tick."""
        return self.work / self.least[workers]


def of_codelet(name: str, work: float, address: int, parameters: np.ndarray, units: int, keep: object = None) -> Kernel:
    """A kernel of one codelet. For 0 `units` each worker has one, and `work` is the work of one worker."""

    def table(workers: int) -> np.ndarray:
        total = units or workers
        cuts = [total * worker // workers for worker in range(workers + 1)]
        return step_table(
            [compute_row(address, parameters.ctypes.data, list(zip(cuts, cuts[1:], strict=False)))], workers
        )

    return Kernel(name, work, table, per_worker=not units, keep=[parameters, keep])


def of_module(name: str, work: float, module: Module) -> Kernel:
    """A kernel of a program whose parameters are all variables."""
    parameters = module.entry.parameters
    executable = compile_module(module, ["variable"] * len(parameters), {})
    variables = [DeviceBuffer(each.array_shape) for each in parameters]
    generator = np.random.default_rng(0)
    for variable in variables:
        variable.write(generator.random(variable.shape.dimensions, np.float32))
    executable.run(1, [], variables)
    table = partial(executable._table, False)
    return Kernel(name, work, table, executable._scratch_bytes, keep=[executable, variables])


NUMBERS = {
    "NN": DotDimensionNumbers((1,), (0,)),
    "TN": DotDimensionNumbers((0,), (0,)),
    "NT": DotDimensionNumbers((1,), (1,)),
}


def product(rows: int, columns: int, k: int, form: str = "NN") -> Kernel:
    """C = A B as a variable's new value, float32. A T in `form` is a transposed operand, an N another one."""
    b = Builder()
    left = b.parameter("f32", (k, rows) if form[0] == "T" else (rows, k))
    right = b.parameter("f32", (columns, k) if form[1] == "T" else (k, columns))
    b.parameter("f32", (rows, columns))
    root = b.tuple(b.dot(left, right, NUMBERS[form]))
    return of_module(f"{form} {rows} x {columns} x {k}", rows * columns * k, b.module(root, {2: 0}))


def update(rule: str, floats: int) -> Kernel:
    """Adam's or RMSprop's new weights and slots, in place, float32."""
    b = Builder()
    slots = 2 if rule == "Adam" else 1
    gradient, weight, *means = (b.parameter("f32", (floats,)) for _ in range(2 + slots))
    rate = b.broadcast(b.parameter("f32"), (floats,), ())
    square = _towards(b, means[0], b.multiply(gradient, gradient), 0.1)
    if rule == "Adam":
        direction = _towards(b, means[1], gradient, 0.1)
        root = b.add(b.elementwise("sqrt", square), b.splat(1e-7, (floats,)))
        results = [b.subtract(weight, b.divide(b.multiply(direction, rate), root)), square, direction]
    else:
        root = b.elementwise("sqrt", b.add(square, b.splat(1e-7, (floats,))))
        results = [b.subtract(weight, b.divide(b.multiply(gradient, rate), root)), square]
    module = b.module(b.tuple(*results), {1 + k: k for k in range(len(results))})
    return of_module(f"{rule}, {_size(floats)} weights", 4 * floats * (3 + 2 * slots), module)


def _towards(b: Builder, mean: Instruction, value: Instruction, share: float) -> Instruction:
    """mean + (value - mean) * share."""
    return b.add(mean, b.multiply(b.subtract(value, mean), b.splat(share, mean.array_shape.dimensions)))


def _size(count: int) -> str:
    return f"{count // MIB} Mi" if count >= MIB else f"{count // 1024} Ki"


SQUARES = [(512, 512, 512), (1024, 1024, 1024)]
MASKED = [(256, 12, 512), (128, 250, 784)]
"""Products whose last vector of columns is masked on processors of 8 and of 16 lanes, as in classifiers."""
TRAINING = [(32, 256, 784), (128, 256, 784), (256, 1024, 1024), (1024, 512, 128), (32, 64, 256)]
UPDATES = {4 * MIB: 16 * MIB, 1 << 15: 1 << 17}
"""Weights of an update, and the floats of its reference stream."""


def products() -> list[Kernel]:
    """Square and masked products, and products of layers: forward [batch, units, inputs], and both gradients."""
    kernels = [product(*size) for size in (*SQUARES, *MASKED)]
    for batch, units, inputs in TRAINING:
        kernels += [product(batch, units, inputs), product(inputs, units, batch, "TN")]
        kernels.append(product(batch, inputs, units, "NT"))
    return kernels


def measure(reference: Kernel, kernels: list[Kernel], rounds: int) -> None:
    """Time the reference and all kernels alternately, so that a busy machine affects all alike."""
    for _ in range(rounds):
        for workers in (1, 2):
            for each in (reference, *kernels):
                each.time(workers)


def table_of(title: str, unit: str, factor: float, reference: Kernel, kernels: list[Kernel]) -> Table:
    """A table of rates in `unit`, and shares of the reference's rate."""
    made = Table(title=title, title_justify="left")
    made.add_column("kernel")
    for workers in (1, 2):
        made.add_column(f"{unit}, {workers} worker" + "s" * (workers > 1), justify="right")
        made.add_column("share", justify="right")
    for each in (reference, *kernels):
        cells = [each.name]
        for workers in (1, 2):
            whole = reference.rate(workers) * (workers if reference.per_worker else 1)
            rate = each.rate(workers) * (workers if each.per_worker else 1)
            cells += [f"{rate * factor:.0f}", f"{100 * rate / whole:.0f}%"]
        made.add_row(*cells, style="bold" if each is reference else None)
    return made


def ticks_now() -> int:
    """The processor's time stamp."""
    place = np.zeros(1, np.int64)
    address = np.array([place.ctypes.data], np.int64)
    now(address.ctypes.data, 0, 1, 0)
    return int(place[0])


def ticks_per_second() -> float:
    """The frequency of the time stamp, in ticks per second."""
    ticks_now()  # compiled here
    start, begin = time.perf_counter(), ticks_now()
    time.sleep(0.2)
    return (ticks_now() - begin) / (time.perf_counter() - start)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description="Shares of the processor's peak.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of kernels' names, such as 512 or Adam")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    console = Console(width=110)
    second = ticks_per_second()
    seed = np.array([1], np.int64)
    peak = of_codelet("multiply-adds in registers", peaks.peak_multiply_adds(), peaks.peak.address, seed, 0)
    chosen = _chosen(products(), options.names)
    if chosen:
        measure(peak, chosen, options.rounds)
        console.print(table_of("Products", "GF/s", 2e-9 * second, peak, chosen))
    for floats, streamed in UPDATES.items():
        chosen = _chosen([update(rule, floats) for rule in ("Adam", "RMSprop")], options.names)
        flow = peaks.Stream(streamed)
        name = f"stream, {4 * streamed // MIB or 1} MiB" if streamed >= MIB else f"stream, {4 * streamed // 1024} KiB"
        stream = of_codelet(name, flow.bytes, peaks.stream.address, flow.parameters, flow.units, flow)
        if chosen:
            measure(stream, chosen, options.rounds)
            console.print(table_of("Updates", "GB/s", 1e-9 * second, stream, chosen))


def _chosen(kernels: list[Kernel], names: list[str]) -> list[Kernel]:
    return [each for each in kernels if not names or any(name in each.name for name in names)]


if __name__ == "__main__":
    main()
