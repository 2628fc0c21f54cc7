"""select-and-scatter that is expanded, for pooling windows in both layouts and for odd ones."""

from __future__ import annotations

import numpy as np
import pytest

from engine.ir.attributes import Window, WindowDimension
from engine.ir.builder import Builder, binary_computation
from engine.ir.module import Module
from engine.ir.pooling import DIRECTIONS
from engine.ir.shape import Shape
from engine.passes.expand_select_and_scatter import expand_select_and_scatter
from tests.codelets.pooling import output_shape
from tests.engine.running import check
from tests.passes.checking import alive, assert_same_results

TRIVIAL = WindowDimension(1)
POOL = WindowDimension(2, 2)
OVERLAP = WindowDimension(3, 2, 1, 1)
NAMED = {
    "NHWC": ((3, 8, 6, 5), (TRIVIAL, POOL, POOL, TRIVIAL)),
    "NHWC many channels": ((2, 4, 5, 300), (TRIVIAL, OVERLAP, OVERLAP, TRIVIAL)),
    "NCHW": ((2, 3, 9, 7), (TRIVIAL, TRIVIAL, OVERLAP, POOL)),
    "one image": ((1, 6, 6, 4), (TRIVIAL, POOL, POOL, TRIVIAL)),
    "NWC": ((4, 11, 3), (TRIVIAL, WindowDimension(4, 3, 0, 2), TRIVIAL)),
    "NDHWC": ((2, 4, 5, 4, 3), (TRIVIAL, POOL, OVERLAP, POOL, TRIVIAL)),
    "window over the batch": ((6, 5), (OVERLAP, TRIVIAL)),
    "everything has a window": ((6, 7), (POOL, OVERLAP)),
    "dilated": ((2, 9, 4), (TRIVIAL, WindowDimension(3, 1, 1, 1, window_dilation=2), TRIVIAL)),
    "windows in the padding": ((2, 3, 2), (TRIVIAL, WindowDimension(2, 2, 4, 4), TRIVIAL)),
    "cropped": ((2, 9, 2), (TRIVIAL, WindowDimension(2, 2, -1, -2), TRIVIAL)),
    "vector": ((13,), (WindowDimension(3, 3, 1, 1),)),
    "no window": ((3, 4), (TRIVIAL, TRIVIAL)),
    "scalar": ((), ()),
    "no images": ((0, 4, 4, 2), (TRIVIAL, POOL, POOL, TRIVIAL)),
    "no channels": ((2, 4, 4, 0), (TRIVIAL, POOL, POOL, TRIVIAL)),
}


def module_of(
    dimensions: tuple[int, ...], window: Window, direction: str = "GE", kind: str = "f32", adds: str = "add"
) -> Module:
    b, select = Builder(), Builder("select")
    kept, candidate = select.parameter(kind), select.parameter(kind)
    body = select.compare(kept, candidate, "LT" if direction == "UGE" else direction)
    if direction == "UGE":
        body = select.elementwise("not", body)
    shapes = dimensions, output_shape(dimensions, window), ()
    operands = [b.parameter(kind, each) for each in shapes]
    called = select.build(body), binary_computation(adds, kind)
    return b.module(b.instruction("select-and-scatter", Shape(kind, dimensions), operands, called, window=window))


def values_of(module: Module, seed: int, choices: np.ndarray | None = None) -> list[np.ndarray]:
    """Few different values, so that ties decide."""
    rng = np.random.default_rng(seed)
    operand, source, initial = (p.array_shape for p in module.entry.parameters)
    chosen = np.arange(-2, 3) if choices is None else choices
    arrays = rng.choice(chosen, operand.dimensions), rng.integers(-4, 5, source.dimensions), np.array(1.5)
    return [np.asarray(a, s.dtype) for a, s in zip(arrays, (operand, source, initial), strict=True)]


@pytest.mark.sample(8)
@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "s32"])
@pytest.mark.parametrize("name", NAMED)
def test_windows(name: str, kind: str) -> None:
    module = module_of(*NAMED[name], kind=kind)
    check(module, values_of(module, 1))
    if kind in ("f64", "s32"):
        after = expand_select_and_scatter(module)
        assert "select-and-scatter" not in alive(after)
        assert_same_results(module, after, tolerance=0.0)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_directions_ties_and_special_values(direction: str) -> None:
    values = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, 3.4e38])
    for window in ((TRIVIAL, POOL, POOL, TRIVIAL), (TRIVIAL, OVERLAP, OVERLAP, TRIVIAL)):
        for kind in ("f32", "f64"):
            module = module_of((3, 9, 8, 6), window, direction, kind)
            check(module, values_of(module, 4, values))
            module = module_of((3, 6, 9, 8), (window[0], window[3], *window[1:3]), direction, kind)
            check(module, values_of(module, 5, values))


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(40))
def test_random_windows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    dimensions = tuple(int(n) for n in rng.integers(1, 8, rank))
    window = tuple(
        TRIVIAL
        if rng.random() < 0.4
        else WindowDimension(int(rng.integers(1, min(n, 3) + 1)), *(int(v) for v in rng.integers([1, 0, 0], [4, 3, 3])))
        for n in dimensions
    )
    module = module_of(dimensions, window, DIRECTIONS[seed % len(DIRECTIONS)], ("f32", "f64")[seed % 2])
    check(module, values_of(module, seed))


def test_gradients_of_pooling_stay() -> None:
    for window in ((TRIVIAL, POOL, POOL, TRIVIAL), (TRIVIAL, OVERLAP, OVERLAP, TRIVIAL)):
        for kind in ("f32", "f16", "bf16"):
            assert "select-and-scatter" in alive(expand_select_and_scatter(module_of((2, 8, 8, 16), window, kind=kind)))
            other = module_of((2, 8, 8, 16), window, kind=kind, adds="maximum")
            assert "select-and-scatter" not in alive(expand_select_and_scatter(other))
