"""Units in parts, so that up to 64 workers have even loads: the bits of whole units, for any number of workers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.compile import build_program
from engine.host.passes.divided_units import LEAST_ROWS, divide_units
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import ConvolutionDimensionNumbers, DotDimensionNumbers, Module, WindowDimension
from engine.ir.builder import Builder
from engine.program.program import ComputeSet
from engine.program.run_passes import run_passes
from engine.program.syncs import ranges_of
from engine.program.verifier import verify
from engine.runtime import encode
from engine.runtime import executable as executables
from engine.runtime.executable import Executable
from tests.engine.running import arguments_for, buffers
from tests.program.test_unit_fusion import attention, normalized

MOST_WORKERS, MOST_UNEVEN = 64, 1.1
WHOLE = tuple(each for each in HOST_PASSES if each is not divide_units)


def elementwise(rows: int, columns: int) -> Module:
    b = Builder()
    x, y, row = b.parameter("f32", (rows, columns)), b.parameter("f32", (rows, columns)), b.parameter("f32", (columns,))
    return b.module(b.multiply(b.elementwise("tanh", b.add(x, b.broadcast(row, (rows, columns), (1,)))), y))


def product(rows: int, columns: int, k: int, kind: str = "f32", first: int = 1) -> Module:
    b = Builder()
    left = b.parameter(kind, (rows, k) if first else (k, rows))
    right = b.parameter(kind, (k, columns))
    return b.module(b.elementwise("negate", b.dot(left, right, DotDimensionNumbers((first,), (0,)))))


def update(rows: int, columns: int, k: int) -> Module:
    """weight -= x^T dy"""
    b = Builder()
    weight, x, dy = (b.parameter("f32", shape) for shape in ((rows, columns), (k, rows), (k, columns)))
    return b.module(b.subtract(weight, b.dot(x, dy, DotDimensionNumbers((0,), (0,)))), {0: 0})


def convolution(images: int, side: int, features: int) -> Module:
    b, window = Builder(), WindowDimension(3, padding_low=1, padding_high=1)
    numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    x, kernel = b.parameter("f32", (images, side, side, features)), b.parameter("f32", (3, 3, features, features))
    return b.module(b.convolution(x, kernel, (window, window), numbers))


def pooling(images: int, side: int, features: int) -> Module:
    b = Builder()
    x = b.parameter("f32", (images, side, side, features))
    window = (WindowDimension(1), WindowDimension(2, 2), WindowDimension(2, 2), WindowDimension(1))
    return b.module(b.reduce_window(x, b.constant(-1e9), window, "maximum"))


def running(module: Module) -> list[ComputeSet]:
    program = build_program(module, ["variable"] * len(module.entry.parameters), {}, verify=True)
    made = run_passes(program, HOST_PASSES)
    verify(made)
    return made.compute_sets


def unevenness(compute_set: ComputeSet, workers: int) -> float:
    """The largest worker's share of the units beside the mean."""
    largest = max(end - begin for begin, end in ranges_of(compute_set, workers))
    return largest * workers / compute_set.units


@pytest.mark.parametrize(
    "module",
    [
        elementwise(8192, 320),
        elementwise(1, 1 << 20),
        product(4096, 256, 128),
        product(256, 1024, 1024),  # blocks of columns
        product(160, 128, 16384, first=0),  # partial sums
        product(4096, 256, 128, "f16"),
        update(4096, 512, 64),  # a chain
        convolution(128, 32, 16),  # Winograd's tiles
    ],
    ids=["rows", "line", "product", "columns", "sums", "half", "update", "tiles"],
)
def test_loads_are_even(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products in matrix registers have units of whole registers, which are not divided: loads differ by an eighth."""
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    largest = max(running(module), key=lambda each: each.work_estimate.total)
    for workers in range(1, MOST_WORKERS + 1):
        assert unevenness(largest, workers) <= MOST_UNEVEN, workers


def test_cheap_units_stay_whole() -> None:
    for module in (elementwise(64, 100), product(32, 10, 128)):
        program = build_program(module, ["variable"] * len(module.entry.parameters), {})
        whole = run_passes(program, WHOLE)
        assert [each.units for each in running(module)] == [each.units for each in whole.compute_sets]


def test_parts_have_several_rows() -> None:
    for made in running(product(1000, 64, 64)):
        assert all(span.partition.grain >= LEAST_ROWS for span in made.writes if span.partition is not None)


MODULES: dict[str, Callable[[], Module]] = {
    "rows": lambda: elementwise(520, 37),
    "line": lambda: elementwise(1, 40_000),
    "pixels": lambda: elementwise(12_000, 6),
    "product": lambda: product(410, 70, 90),
    "columns": lambda: product(200, 768, 1024),
    "sums": lambda: product(70, 96, 5000, first=0),
    "half": lambda: product(410, 70, 90, "f16"),
    "half sums": lambda: product(72, 96, 5000, "f16", first=0),
    "few columns": lambda: product(4000, 10, 300),
    "few columns of k": lambda: product(2000, 3, 300, first=0),
    "one column": lambda: product(6000, 1, 130),
    "double": lambda: product(410, 70, 90, "f64"),
    "update": lambda: update(515, 512, 70),
    "tiles": lambda: convolution(20, 26, 16),
    "few features": lambda: convolution(20, 26, 3),
    "pooling": lambda: pooling(32, 32, 8),
    "norms": lambda: normalized(700, 130),
    "attention": lambda: attention(4, 4, 64, 32, True),
}
WHOLE_UNITS = {"norms", "attention", "one column", "few features"}
"""Chains with partial sums for each unit or with whole heads, depthwise products, codelets with units of their own."""


@pytest.mark.parametrize("name", MODULES)
def test_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "inline_work", lambda: 0)
    monkeypatch.setattr(encode, "is_fine_grained", lambda program: False)
    module, found = MODULES[name](), set[tuple[bytes, ...]]()
    arguments, roles = arguments_for(module), ["variable"] * len(module.entry.parameters)
    units = set()
    for passes, counts in ((WHOLE, (1, 2)), (HOST_PASSES, (1, 2, 3, 5, 11, 32))):
        monkeypatch.setattr(encode, "HOST_PASSES", passes)
        executable = Executable(build_program(module, roles, {}))
        units.add(tuple(each.units for each in executable._running.compute_sets))
        for workers in counts:
            monkeypatch.setattr(executables, "worker_count", lambda count=workers: count)
            monkeypatch.setenv("NUMBA_NUM_THREADS", str(workers))
            held = buffers(arguments)
            results = executable.run(2, [], held)
            found.add(tuple(each.tobytes() for each in (*results, *(h.read() for h in held))))
    assert len(found) == 1
    assert len(units) == 2 or name in WHOLE_UNITS
