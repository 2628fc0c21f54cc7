"""Winograd's convolutions of stride 2, transposed ones, and gradients of both: where they pay, results, workers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from engine.host.convolutions import winograd
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import ConvolutionDimensionNumbers, Module, WindowDimension
from engine.ir.builder import Builder
from engine.program.run_passes import run_passes
from engine.program.work.copy import Copy
from tests.exploring import more_seeds
from tests.program.test_winograd_wide import KINDS, ROUNDING, is_transformed, made, operands, run

Pair = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """A convolution of `images` of `size` from `inputs` to `outputs` features; the sizes of its two gradients follow.

    `low` and `high` are the padding before and after rows and columns; a negative one cuts the image.
    """

    images: int
    size: Pair
    inputs: int
    outputs: int
    taps: Pair = (4, 4)
    steps: Pair = (2, 2)
    low: Pair = (1, 1)
    high: Pair = (1, 1)

    @property
    def field(self) -> Pair:
        rows, columns = (
            (n + low + high - t) // s + 1
            for n, low, high, t, s in zip(self.size, self.low, self.high, self.taps, self.steps, strict=True)
        )
        return rows, columns


def module(kind: str, case: Case, element_type: str = "f32") -> Module:
    """The convolution, or its gradient by input (a transposed convolution) or kernel, as TensorFlow writes it."""
    b = Builder()
    along = list(zip(case.size, case.field, case.taps, case.steps, case.low, strict=True))
    x, g = (case.images, *case.size, case.inputs), (case.images, *case.field, case.outputs)
    kernel = (*case.taps, case.inputs, case.outputs)
    if kind == "forward":
        sides = zip(case.taps, case.steps, case.low, case.high, strict=True)
        window = tuple(WindowDimension(t, s, low, high) for t, s, low, high in sides)
        numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
        return b.module(b.convolution(b.parameter(element_type, x), b.parameter(element_type, kernel), window, numbers))
    if kind == "by input":
        window = tuple(
            WindowDimension(t, 1, t - 1 - low, n - (out - 1) * s - 1 + low, base_dilation=s, window_reversal=True)
            for n, out, t, s, low in along
        )
        numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), 3, 2, (0, 1), 0, 3, (1, 2))
        return b.module(b.convolution(b.parameter(element_type, g), b.parameter(element_type, kernel), window, numbers))
    window = tuple(
        WindowDimension(out, 1, low, t + (out - 1) * s - n - low, window_dilation=s) for n, out, t, s, low in along
    )
    numbers = ConvolutionDimensionNumbers(3, 0, (1, 2), 0, 3, (1, 2), 2, 3, (0, 1))
    return b.module(b.convolution(b.parameter(element_type, x), b.parameter(element_type, g), window, numbers))


def exact(kind: str, case: Case, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The convolution in float64, by definition: tap t of output o reads input o * step + t - low."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    image = left if kind != "by input" else np.zeros((case.images, *case.size, case.inputs))
    room = [(max(low, 0), max(high, 0)) for low, high in zip(case.low, case.high, strict=True)]
    wide = np.pad(image, [(0, 0), *room, (0, 0)])
    begin = [max(-low, 0) for low in case.low]
    result = np.zeros(
        (*case.taps, case.inputs, case.outputs) if kind == "by kernel" else (*left.shape[:1], *case.field, case.outputs)
    )
    for i, j in product(*map(range, case.taps)):
        rows, columns = (
            slice(b + t, b + t + (n - 1) * s + 1, s)
            for b, t, n, s in zip(begin, (i, j), case.field, case.steps, strict=True)
        )
        with np.errstate(invalid="ignore"):
            if kind == "forward":
                result += wide[:, rows, columns] @ right[i, j]
            elif kind == "by input":
                wide[:, rows, columns] += left @ right[i, j].T
            else:
                result[i, j] = np.tensordot(wide[:, rows, columns], right, ((0, 1, 2), (0, 1, 2)))
    if kind != "by input":
        return result
    (top, _), (first, _) = room
    return wide[:, top : top + case.size[0], first : first + case.size[1]]


def half_units(kind: str, case: Case) -> np.ndarray:
    """Errors of normal numbers, in half units of the last place of the sum of magnitudes."""
    built = module(kind, case)
    left, right = operands(built)
    return (run(built, [left, right]) - exact(kind, case, left, right)) / last_place(kind, case, left, right)


def last_place(kind: str, case: Case, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Half units of the last place of the sums of magnitudes in float32.

    The sum counts as at least a quarter of the mean sum: outputs that read few elements have errors of their tiles.
    """
    scale = exact(kind, case, abs(left), abs(right)) * 2.0**-24
    return np.maximum(scale, scale[scale > 0].mean() / 4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (Case(32, (16, 16), 64, 128), True),
        (Case(64, (8, 8), 128, 256), True),
        (Case(8, (64, 64), 64, 128), True),
        (Case(32, (16, 16), 64, 128, (5, 5), low=(1, 1), high=(2, 2)), True),
        (Case(32, (16, 16), 2, 128), False),  # few features: transforms would take longer than what they save
        (Case(1, (4, 4), 512, 512), False),  # the same for the kernel's transform
        (Case(32, (16, 16), 64, 128, (2, 2), low=(0, 0), high=(0, 0)), False),  # phases have one tap
    ],
)
def test_where_it_pays(kind: str, case: Case, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    program = made(module(kind, case))
    assert is_transformed(program) == expected
    monkeypatch.setenv("SOFTWARE_IPU_WINOGRAD", "0")
    assert not is_transformed(program)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "case",
    [
        Case(2, (16, 16), 19, 24),
        Case(1, (17, 13), 16, 72),  # an odd size: no tap reads the last row, or its phase ends one earlier
        Case(2, (18, 22), 40, 20, low=(0, 0), high=(0, 0)),
        Case(2, (13, 12), 16, 33, low=(0, 2), high=(3, 1)),
        Case(2, (16, 15), 24, 16, low=(-1, 3), high=(2, -2)),
        Case(2, (12, 12), 16, 24, (5, 5), low=(1, 1), high=(2, 2)),
        Case(1, (14, 14), 16, 24, (7, 7), low=(2, 2), high=(3, 3)),
        Case(2, (12, 9), 20, 40, (4, 4), (2, 1), (1, 1), (1, 2)),  # phases of rows alone
        Case(2, (1, 40), 16, 24, (1, 4), (1, 2), (0, 1), (0, 1)),
        Case(2, (15, 14), 16, 24, (6, 6), (3, 3), (2, 1), (1, 2)),
    ],
)
def test_results_are_those_of_the_definition(kind: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few features have the largest errors."""
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    assert is_transformed(made(module(kind, case)))
    error = half_units(kind, case)
    assert 0 < np.sqrt(np.square(error).mean()) < 8 * ROUNDING
    assert np.abs(error).max() < 100 * ROUNDING


def random_case(rng: np.random.Generator) -> Case:
    """A random case with at least two positions along both dimensions."""
    while True:
        taps, steps, size = rng.integers(2, 8, 2), rng.integers(1, 4, 2), rng.integers(4, 20, 2)
        low, high = rng.integers(-2, taps), rng.integers(-2, taps)
        images, inputs, outputs = int(rng.integers(1, 4)), *map(int, rng.integers(1, 50, 2))
        pairs = [(int(a), int(b)) for a, b in (size, taps, steps, low, high)]
        case = Case(images, pairs[0], inputs, outputs, *pairs[1:])
        if min(case.field) > 1 and min(size + np.minimum(low, 0) + np.minimum(high, 0)) > 0:
            return case


@pytest.mark.parametrize("seed", more_seeds(range(16), 60))
def test_random_sizes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    case = random_case(np.random.default_rng(seed))
    for kind in KINDS:
        assert np.abs(half_units(kind, case)).max() < 200 * ROUNDING, (kind, case)


@pytest.mark.parametrize("element_type", ["f16", "bf16"])
@pytest.mark.parametrize("seed", more_seeds(range(6), 60))
def test_half_is_rounded_once(seed: int, element_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are those of float32 and of one rounding: half a unit of the last place of 11 or 8 bits."""
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    case, bits = random_case(np.random.default_rng(seed)), {"f16": 11, "bf16": 8}[element_type]
    for kind in KINDS:
        built = module(kind, case, element_type)
        left, right = operands(built)
        expected = exact(kind, case, left, right)
        error = abs(run(built, [left, right]).astype(np.float64) - expected)
        most = 200 * ROUNDING * last_place(kind, case, left, right)
        assert (error <= most + 2.0**-bits * (abs(expected) + most) + 2.0**-25).all(), (kind, case)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_of_many_features(kind: str) -> None:
    error = half_units(kind, Case(8, (16, 16), 64, 128))
    assert np.sqrt(np.square(error).mean()) < 2 * ROUNDING
    assert np.abs(error).max() < 40 * ROUNDING


@pytest.mark.parametrize("kind", KINDS)
def test_padding_with_zeros_is_not_copied(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    program = made(module(kind, Case(2, (16, 18), 16, 24)))
    assert not any(isinstance(each.work, Copy) for each in run_passes(program, HOST_PASSES).compute_sets)


@pytest.mark.parametrize(("value", "row", "column"), [(np.inf, 3, 4), (-np.inf, 0, 0), (np.nan, 31, 32)])
@pytest.mark.parametrize("kind", ["forward", "by input"])
def test_infinite_inputs_make_what_reads_them_non_finite(
    kind: str, value: float, row: int, column: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    case = Case(3, (32, 33) if kind == "forward" else (64, 66), 16, 24)
    built = module(kind, case)
    left, kernel = operands(built)
    usual = run(built, [left, kernel])
    left[1, row, column, 5] = value
    changed, expected = run(built, [left, kernel]), exact(kind, case, left, kernel)
    assert not np.isfinite(changed[~np.isfinite(expected)]).any()
    # Outputs of the same phase, up to four away from one that reads the special input.
    near = [4, 0.5] if kind == "forward" else [8, 2]
    outside = np.ones_like(changed, bool)
    far = [
        np.abs(np.arange(n) - at * near[1]) <= near[0] + 2
        for n, at in zip(changed.shape[1:3], (row, column), strict=True)
    ]
    outside[1] = ~np.logical_and.outer(*far)[..., None]
    np.testing.assert_array_equal(changed[outside], usual[outside])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", [Case(3, (17, 10), 24, 72), Case(2, (16, 16), 16, 32, (5, 5), high=(2, 2))])
def test_same_bits_for_any_number_of_workers(kind: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    built = module(kind, case)
    assert is_transformed(made(built))
    results = set()
    for workers in (1, 2, 3, 5):
        monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=workers: count)
        results.add(run(built, operands(built)).tobytes())
    assert len(results) == 1
