"""Winograd's convolutions with wide kernels: where they pay, results, errors, special values, workers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from engine.compile import build_program
from engine.host import select
from engine.host.convolutions import winograd
from engine.host.convolutions.winograd_work import WinogradKernel, WinogradSums
from engine.host.passes import split_products
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import ConvolutionDimensionNumbers, Instruction, Module, WindowDimension
from engine.ir import Shape as ArrayShape
from engine.ir.builder import Builder
from engine.machine_code.costs import MEASURED
from engine.machine_code.processor import X86, target
from engine.program.program import Program
from engine.program.run_passes import run_passes
from engine.program.work.contraction import Contraction
from engine.program.work.copy import Copy
from engine.runtime.executable import Executable
from tests.engine.running import buffers
from tests.program.loop_parts import below, loop, next_count

KINDS = ("forward", "by input", "by kernel")
ROUNDING = 1.0 if not X86 or "fma" in target()[1] else 2**0.5
"""A factor on errors: without an instruction for multiply-add, products are rounded, too."""
Shape = tuple[int, int, int, int, int]
Pair = tuple[int, int]


def convolution(kind: str, shape: Shape, taps: Pair, padding: Pair, element_type: str = "f32") -> Module:
    """A convolution of NHWC and HWIO; the gradient by the kernel has the image of output gradients as its window."""
    b, (images, rows, columns, inputs, outputs) = Builder(), shape
    x = b.parameter(element_type, (images, rows, columns, inputs))
    field = tuple(s + 2 * p - t + 1 for s, p, t in zip((rows, columns), padding, taps, strict=True))
    sizes = field if kind == "by kernel" else taps
    window = tuple(
        WindowDimension(size, padding_low=p, padding_high=p, window_reversal=kind == "by input")
        for size, p in zip(sizes, padding, strict=True)
    )
    if kind == "by kernel":
        numbers = ConvolutionDimensionNumbers(3, 0, (1, 2), 0, 3, (1, 2), 2, 3, (0, 1))
        return b.module(b.convolution(x, b.parameter(element_type, (images, *field, outputs)), window, numbers))
    features = (3, 2) if kind == "by input" else (2, 3)
    numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), *features, (0, 1), 0, 3, (1, 2))
    of_kernel = (outputs, inputs) if kind == "by input" else (inputs, outputs)
    return b.module(b.convolution(x, b.parameter(element_type, (*taps, *of_kernel)), window, numbers))


def exact(kind: str, x: np.ndarray, right: np.ndarray, taps: Pair, padding: Pair) -> np.ndarray:
    """The convolution in float64, by definition."""
    wide = np.pad(x.astype(np.float64), ((0, 0), *((p, p) for p in padding), (0, 0)))
    field = tuple(s - t + 1 for s, t in zip(wide.shape[1:3], taps, strict=True))
    right = right.astype(np.float64)
    if kind == "by input":
        right = right[::-1, ::-1].swapaxes(2, 3)
    parts = [[wide[:, i : i + field[0], j : j + field[1]] for j in range(taps[1])] for i in range(taps[0])]
    with np.errstate(invalid="ignore"):
        if kind == "by kernel":
            flat = right.reshape(-1, right.shape[-1])
            return np.array([[p.reshape(len(flat), -1).T @ flat for p in row] for row in parts])
        return np.sum([p @ right[i, j] for i, row in enumerate(parts) for j, p in enumerate(row)], axis=0)


def made(module: Module) -> Program:
    return build_program(module, ["variable"] * 2, {})


def is_transformed(program: Program) -> bool:
    return any(
        isinstance(each.work, WinogradKernel | WinogradSums) for each in run_passes(program, HOST_PASSES).compute_sets
    )


def operands(module: Module) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = [p.array_shape for p in module.entry.parameters]
    return [rng.normal(size=shape.dimensions).astype(shape.dtype) for shape in shapes]


def run(module: Module, values: list[np.ndarray]) -> np.ndarray:
    return Executable(made(module)).run(1, [], buffers(values))[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "taps", "expected"),
    [
        ((8, 28, 28, 64, 64), (7, 7), True),
        ((8, 14, 14, 64, 64), (5, 5), True),
        ((8, 17, 17, 128, 128), (1, 7), True),
        ((8, 28, 28, 64, 64), (3, 1), True),
        ((8, 28, 28, 4, 16), (5, 5), False),  # the transforms of tiles would take longer than they save
        ((1, 4, 4, 64, 64), (5, 5), False),  # the same for the kernel's transform
        ((8, 28, 28, 64, 64), (1, 1), False),
    ],
)
def test_where_it_pays(kind: str, shape: Shape, taps: Pair, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    padding = taps[0] // 2, taps[1] // 2
    program = made(convolution(kind, shape, taps, padding))
    assert is_transformed(program) == expected
    monkeypatch.setenv("SOFTWARE_IPU_WINOGRAD", "0")
    assert not is_transformed(program)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "taps", "padding"),
    [
        ((2, 9, 11, 19, 24), (7, 7), (3, 3)),  # tiles that end outside of the image, and features that fill no vector
        ((1, 8, 9, 16, 72), (5, 5), (2, 2)),
        ((2, 9, 17, 20, 40), (1, 7), (0, 3)),
        ((2, 17, 9, 20, 40), (7, 1), (3, 0)),
        ((2, 1, 40, 16, 33), (1, 5), (0, 0)),
        ((1, 12, 12, 16, 24), (4, 3), (0, 1)),
        ((1, 13, 12, 16, 24), (9, 3), (4, 1)),  # three parts of the kernel
    ],
)
def test_results_are_those_of_the_definition(
    kind: str, shape: Shape, taps: Pair, padding: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors are in half units of the last place of the sum of magnitudes; few features have the largest ones."""
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    module = convolution(kind, shape, taps, padding)
    assert is_transformed(made(module))
    x, right = operands(module)
    scale = exact(kind, abs(x), abs(right), taps, padding) * 2.0**-24
    error = (run(module, [x, right]) - exact(kind, x, right, taps, padding)) / scale
    assert 0 < np.sqrt(np.square(error).mean()) < 8 * ROUNDING
    assert np.abs(error).max() < 100 * ROUNDING


@pytest.mark.parametrize("kind", KINDS)
def test_errors_of_many_features(kind: str) -> None:
    shape, taps, padding = (2, 16, 16, 64, 64), (7, 7), (3, 3)
    module = convolution(kind, shape, taps, padding)
    x, right = operands(module)
    scale = exact(kind, abs(x), abs(right), taps, padding) * 2.0**-24
    error = (run(module, [x, right]) - exact(kind, x, right, taps, padding)) / scale
    assert np.sqrt(np.square(error).mean()) < 3 * ROUNDING
    assert np.abs(error).max() < 30 * ROUNDING


@pytest.mark.parametrize("element_type", ["f16", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "taps", "padding"),
    [
        ((2, 9, 11, 19, 24), (7, 7), (3, 3)),
        ((1, 8, 9, 16, 72), (5, 5), (2, 2)),
        ((2, 1, 41, 24, 33), (1, 5), (0, 0)),
        ((4, 24, 24, 64, 24), (7, 7), (3, 3)),
    ],
)
def test_half_is_rounded_once(
    kind: str, shape: Shape, taps: Pair, padding: Pair, element_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    module = convolution(kind, shape, taps, padding, element_type)
    assert is_transformed(made(module))
    x, right = operands(module)
    check_rounded_once(run(module, [x, right]), exact(kind, x, right, taps, padding))


def check_rounded_once(found: np.ndarray, expected: np.ndarray) -> None:
    """Checks that the error is less than a fiftieth larger than that of a float64 result that is rounded."""
    rounded = expected.astype(found.dtype)
    error, rounding = (np.square(each.astype(np.float64) - expected).mean() for each in (found, rounded))
    assert 0 < error < 1.02 * rounding
    assert (found != rounded).mean() < 0.03


@pytest.mark.parametrize("kind", ["forward", "by input"])
@pytest.mark.parametrize(
    ("taps", "low", "high"),
    [((7, 7), (0, 5), (6, 1)), ((5, 5), (-1, 2), (2, -3)), ((1, 7), (0, -2), (0, 4)), ((7, 1), (6, 0), (0, 0))],
)
def test_padding_that_differs_by_side(
    kind: str, taps: Pair, low: Pair, high: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative padding cuts the image."""
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    b, sizes = Builder(), (2, 13, 14, 19, 32)
    window = tuple(
        WindowDimension(*(t, 1, *p), window_reversal=kind != "forward") for t, *p in zip(taps, low, high, strict=True)
    )
    features = (3, 2) if kind == "by input" else (2, 3)
    numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), *features, (0, 1), 0, 3, (1, 2))
    kernel = b.parameter("f32", (*taps, *((32, 19) if kind == "by input" else (19, 32))))
    module = b.module(b.convolution(b.parameter("f32", sizes[:4]), kernel, window, numbers))
    kernel, x = operands(module)
    assert is_transformed(made(module))
    sides = list(zip(low, high, strict=True))
    padded = np.pad(x, [(0, 0), *[(max(p, 0), max(q, 0)) for p, q in sides], (0, 0)])
    cuts = [slice(max(-p, 0), n - max(-q, 0)) for (p, q), n in zip(sides, padded.shape[1:3], strict=True)]
    expected = exact(kind, padded[:, cuts[0], cuts[1]], kernel, taps, (0, 0))
    np.testing.assert_allclose(run(module, [kernel, x]), expected, atol=2e-5 * np.abs(expected).max())


def test_padding_with_zeros_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    for kind in KINDS:
        program = made(convolution(kind, (2, 9, 11, 16, 24), (7, 7), (3, 3)))
        assert not any(isinstance(each.work, Copy) for each in run_passes(program, HOST_PASSES).compute_sets)


@pytest.mark.parametrize(("value", "row", "column"), [(np.inf, 3, 4), (-np.inf, 0, 0), (np.nan, 15, 16)])
def test_infinite_inputs_make_what_reads_them_non_finite(
    value: float, row: int, column: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    shape, taps, padding = (3, 16, 17, 16, 24), (7, 7), (3, 3)
    module = convolution("forward", shape, taps, padding)
    x, kernel = operands(module)
    usual = run(module, [x, kernel])
    x[1, row, column, 5] = value
    changed, expected = run(module, [x, kernel]), exact("forward", x, kernel, taps, padding)
    assert not np.isfinite(changed[~np.isfinite(expected)]).any()
    # Outputs of a tile of four read its seven inputs, as do those of the next tile.
    far = [[not -3 <= at - (n // 4 * 4) <= 7 for n in range(size)] for at, size in ((row, 16), (column, 17))]
    outside = np.ones_like(changed, bool)
    outside[1] = np.logical_or.outer(*far)[..., None]
    np.testing.assert_array_equal(changed[outside], usual[outside])


def test_large_inputs_stay_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    module = convolution("forward", (1, 8, 9, 16, 24), (7, 7), (3, 3))
    x, kernel = operands(module)
    assert np.isfinite(run(module, [x * np.float32(2.0**100), kernel])).all()


@pytest.mark.parametrize(
    ("shape", "taps"), [((3, 17, 9, 24, 72), (7, 1)), ((2, 16, 16, 16, 32), (5, 5)), ((4, 1, 64, 16, 32), (1, 5))]
)
@pytest.mark.parametrize("kind", KINDS)
def test_same_bits_for_any_number_of_workers(
    kind: str, shape: Shape, taps: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    module = convolution(kind, shape, taps, (taps[0] // 2, taps[1] // 2))
    assert is_transformed(made(module))
    results = set()
    for workers in (1, 2, 3, 5):
        monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=workers: count)
        results.add(run(module, operands(module)).tobytes())
    assert len(results) == 1


@pytest.mark.parametrize("kind", ["forward", "by kernel"])
def test_a_feature_that_is_broadcast(kind: str) -> None:
    b, full, field = Builder(), (4, 20, 20, 64), (14, 14)
    x = b.broadcast(b.parameter("f32", full[:3]), full, (0, 1, 2))
    if kind == "forward":
        window, numbers = (7, 7), ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
        right = b.parameter("f32", (7, 7, 64, 64))
    else:
        window, numbers = field, ConvolutionDimensionNumbers(3, 0, (1, 2), 0, 3, (1, 2), 2, 3, (0, 1))
        right = b.parameter("f32", (4, *field, 64))
    module = b.module(b.convolution(x, right, tuple(WindowDimension(size) for size in window), numbers))
    image, other = operands(module)
    expected = exact(kind, np.broadcast_to(image[..., None], full), other, (7, 7), (0, 0))
    np.testing.assert_allclose(run(module, [image, other]), expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize(("taps", "size", "features"), [(5, 12, 128), (3, 10, 256)])
def test_sums_in_slots_of_a_ring(taps: int, size: int, features: int) -> None:
    b, field = Builder("ring"), size - taps + 1
    given = b.parameter("f32", (3, 2, size, size, features))
    kernel = b.parameter("f32", (taps, taps, features, features))
    numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    window = (WindowDimension(taps), WindowDimension(taps))

    def iteration(s: Builder, state: Sequence[Instruction]) -> list[Instruction]:
        count, data, kernel, ring = state
        zero, one = s.constant(0, "s32"), (1, 2, size, size, features)
        taken = (data, count, zero, zero, zero, zero)
        x = s.instruction("dynamic-slice", ArrayShape("f32", one), taken, dynamic_slice_sizes=one)
        y = s.convolution(s.elementwise("tanh", s.reshape(x, one[1:])), kernel, window, numbers)
        put = (ring, s.reshape(y, (1, 2, field, field, features)), count, zero, zero, zero, zero)
        return [next_count(s, count), data, kernel, s.instruction("dynamic-update-slice", ring.shape, put)]

    state = [b.constant(0, "s32"), given, kernel, b.splat(0.5, (3, 2, field, field, features))]
    module = b.module(b.tuple(loop(b, state, below(3), iteration)[3]))
    x, right = operands(module)
    received = run(module, [x, right])
    for one, image in zip(received, x, strict=True):
        expected = exact("forward", np.tanh(image), right, (taps, taps), (0, 0))
        np.testing.assert_allclose(one, expected, atol=5e-5 * np.abs(expected).max())


def test_products_are_not_split_for_matrix_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (select, split_products):
        monkeypatch.setattr(each, "may_use_matrix_registers", lambda: True)
    monkeypatch.setattr(split_products, "costs", lambda: MEASURED["amx-bf16"])
    program = made(convolution("forward", (8, 56, 56, 128, 128), (5, 5), (2, 2)))
    sets = split_products.split_products(select.select_convolutions(program)).compute_sets
    split = [one for one in sets if isinstance(one.work, Contraction) and one.work.bf16x3]
    assert not (split and any(isinstance(one.work, WinogradKernel) for one in sets))
