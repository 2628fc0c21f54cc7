"""Convolutions with few output features: whole groups of positions, and products added where they overlap."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.convolutions.overlap_add import OverlapAdd
from engine.compile import compile_module
from engine.host import select
from engine.host.convolutions import overlapping
from engine.host.convolutions.draft import ConvolutionDraft
from engine.host.convolutions.overlapping import overlap_cycles
from engine.host.convolutions.pixel_groups import PositionGroup
from engine.ir import Module, WindowDimension
from engine.ir.builder import Builder
from engine.ir.structured_shape_rules import window_count
from tests.engine.running import arguments_for, buffers, check, fast
from tests.lower.processors import lowered_for
from tests.lower.test_convolution import HWIO, NHWC, convolve, numbers_for, random_window, ways


def random_orders(rng: np.random.Generator, rank: int) -> list[list[int]] | None:
    return [[int(k) for k in rng.permutation(rank + 2)] for _ in range(3)] if rng.random() < 0.5 else None


def kind_of(seed: int, floats: int) -> str:
    """float32 for the first seeds, and a 16-bit float for all others."""
    return "f32" if seed < floats else ("f16", "bf16")[seed % 2]


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(60))
def test_any_group_of_positions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    sizes = [int(n) for n in rng.integers(3, 13 if rank < 3 else 6, rank)]
    window = [random_window(rng, n, wild=False) for n in sizes]
    low, high = (int(n) for n in rng.integers(-1, 4, 2))
    last = int(rng.integers(1, min(sizes[-1], 7)))
    window[-1] = WindowDimension(last, 1, low, high, window_reversal=bool(rng.random() < 0.5))
    outputs = window_count(sizes[-1], window[-1])
    divisors = [p for p in range(1, outputs + 1) if outputs % p == 0]
    positions = int(rng.choice(divisors)) if divisors else 1
    backward = positions == outputs and bool(rng.random() < 0.7)
    group = PositionGroup(rank - 1, positions, backward)
    monkeypatch.setattr(select, "choose_group", lambda _: group)
    monkeypatch.setattr(select, "contraction_cycles", lambda *_: -1.0)
    batch, features, results = (int(n) for n in rng.integers(1, [4, 6, 21]))
    convolve(batch, features, results, sizes, tuple(window), random_orders(rng, rank), kind=kind_of(seed, 40))


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(90))
def test_any_overlap(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of stride 1 with dilations, reversal and negative padding."""
    met = []

    def cycles(draft: ConvolutionDraft) -> float | None:
        found = overlap_cycles(draft)
        met.append(found is not None)
        return None if found is None else -1.0

    monkeypatch.setattr(select, "overlap_cycles", cycles)
    monkeypatch.setattr(overlapping, "FEW_IMAGES", 0)
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 3))
    sizes = [int(n) for n in rng.integers(1, 10, rank)]
    window = None
    while window is None or any(window_count(n, w) < 1 for n, w in zip(sizes, window, strict=True)):
        made = [random_window(rng, n, wild=True) for n in sizes]
        window = tuple(
            WindowDimension(w.size, 1, w.padding_low, w.padding_high, w.window_dilation, w.base_dilation)
            if rng.random() < 0.5
            else WindowDimension(w.size, 1, w.padding_low, w.padding_high, 1, w.base_dilation, w.window_reversal)
            for w in made
        )
    batch, features, results = (int(n) for n in rng.integers(1, [5, 40, 21]))
    if seed % 10 == 0:
        features += 256  # more than one block of k
    convolve(batch, features, results, sizes, window, random_orders(rng, rank), kind=kind_of(seed, 60))
    assert met and all(met)


def overlap_types(module: Module) -> set[str]:
    """The element types of the products that are added where they overlap."""
    return {each.work.element_type for each in ways(module) if isinstance(each.work, OverlapAdd)}


def layer(features: int, results: int, size: int, taps: int, gradient: str, kind: str = "f32") -> Module:
    """A layer of LeNet's kind: its result, or its gradient by kernel or input."""
    builder = Builder()
    outputs = size - taps + 1
    image, kernel = (16, size, size, features), (taps, taps, features, results)
    if gradient == "none":
        x, y = builder.parameter(kind, image), builder.parameter(kind, kernel)
        builder.convolution(x, y, (WindowDimension(taps),) * 2, numbers_for(2, [NHWC, HWIO, NHWC]))
    elif gradient == "kernel":
        x, y = builder.parameter(kind, image), builder.parameter(kind, (16, outputs, outputs, results))
        numbers = numbers_for(2, [[1, 2, 3, 0], [0, 2, 3, 1], [2, 3, 0, 1]])
        builder.convolution(x, y, (WindowDimension(outputs),) * 2, numbers)
    else:
        x, y = builder.parameter(kind, (16, outputs, outputs, results)), builder.parameter(kind, kernel)
        full = WindowDimension(taps, 1, taps - 1, taps - 1, window_reversal=True)
        builder.convolution(x, y, (full, full), numbers_for(2, [NHWC, [2, 3, 1, 0], NHWC]))
    return builder.module()


@pytest.mark.sample(5)
@pytest.mark.parametrize("gradient", ["none", "kernel", "input"])
@pytest.mark.parametrize(
    "features, results, size, taps", [(1, 6, 28, 5), (6, 16, 14, 5), (3, 5, 30, 4), (4, 16, 24, 3)]
)
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_layers_and_their_gradients(
    features: int, results: int, size: int, taps: int, gradient: str, kind: str
) -> None:
    check(layer(features, results, size, taps, gradient, kind), tolerance=1e-4)


def test_gradient_by_an_input_of_few_features_is_added_where_it_overlaps() -> None:
    """Two vectors of 4 lanes have few zeros beside 6 features, so transforms are faster there."""
    with lowered_for("x86-64-v3"):
        assert overlap_types(layer(6, 16, 14, 5, "input")) == {"f32"}
        assert not overlap_types(layer(6, 16, 14, 5, "none"))
        assert overlap_types(layer(6, 16, 14, 5, "input", "f16")) == {"f16"}


def test_a_layer_of_few_features_is_done_in_groups() -> None:
    """The program's cost report does not count zeros in the kernel either."""
    with lowered_for("x86-64-v4"):  # of 16 lanes
        sets = ways(layer(1, 6, 28, 5, "none"))
    product = next(each for each in sets if each.work_estimate.multiply_adds)
    assert product.work_estimate.multiply_adds == 16 * 24 * 24 * 25 * 6
    assert "kernel" in product.reads[1].buffer.name


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize("gradient", ["none", "kernel", "input"])
def test_same_bits_for_any_number_of_workers(gradient: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    module = layer(6 if gradient == "input" else 1, 6, 18, 5, gradient, kind)
    arguments = arguments_for(module)
    results = []
    for workers in (1, 2, 3):
        monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=workers: count)
        results.append(fast(module, arguments)[0][0].tobytes())
    assert len(set(results)) == 1


def test_a_group_reads_zeros_around_the_kernel_in_every_step() -> None:
    module = layer(1, 6, 18, 5, "none")
    arguments = arguments_for(module)
    executable = compile_module(module, ["variable"] * 2, {})
    (once,) = executable.run(1, [], buffers(arguments))
    (often,) = executable.run(5, [], buffers(arguments))
    assert once.tobytes() == often.tobytes()


@pytest.mark.parametrize("features, results", [(32, 16), (48, 40), (64, 24)])
def test_kernels_of_many_features_are_transposed_by_the_contraction(features: int, results: int) -> None:
    """A gradient by the input reads the kernel in place, with strides and without."""
    for stride in (1, 2):
        builder = Builder()
        x, y = builder.parameter("f32", (3, 6, 6, results)), builder.parameter("f32", (3, 3, features, results))
        window = WindowDimension(3, 1, 2, 2, base_dilation=stride, window_reversal=True)
        builder.convolution(x, y, (window, window), numbers_for(2, [NHWC, [2, 3, 1, 0], NHWC]))
        check(builder.module(), tolerance=1e-4)
        assert not any("kernel" in name for name in buffer_names(builder.module()))


def buffer_names(module: Module) -> set[str]:
    return {span.buffer.name for each in ways(module) for span in each.writes}
