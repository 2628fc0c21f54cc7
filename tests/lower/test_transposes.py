"""Transposing copies agree with NumPy, for any permutation, in blocks where that is worth it."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.ir import Module
from engine.ir.builder import Builder
from engine.program.work.copy import TransposeWork
from tests.engine.running import check


def transposed(element_type: str, dimensions: tuple[int, ...], permutation: tuple[int, ...]) -> Module:
    b = Builder("transposed")
    return b.module(b.transpose(b.parameter(element_type, dimensions), permutation))


def in_blocks(module: Module) -> bool:
    program = build_program(module, ["feed"], {})
    return any(isinstance(each.work, TransposeWork) for each in program.compute_sets)


@pytest.mark.parametrize(
    ("dimensions", "permutation"),
    [
        ((64, 64), (1, 0)),
        ((65, 130), (1, 0)),
        ((513, 17), (1, 0)),
        ((16, 1031), (1, 0)),
        ((3, 3, 40, 33), (0, 1, 3, 2)),
        ((3, 3, 40, 33), (3, 1, 0, 2)),
        ((5, 40, 3, 33), (3, 2, 0, 1)),
        ((2, 128, 64), (0, 2, 1)),
        ((128, 2, 64), (2, 1, 0)),
    ],
)
@pytest.mark.parametrize("element_type", ["f32", "s32"])
def test_in_blocks(element_type: str, dimensions: tuple[int, ...], permutation: tuple[int, ...]) -> None:
    module = transposed(element_type, dimensions, permutation)
    assert in_blocks(module)
    x = np.arange(np.prod(dimensions), dtype=module.entry.parameters[0].array_shape.dtype).reshape(dimensions)
    check(module, [x], tolerance=0.0)


@pytest.mark.parametrize(
    ("element_type", "dimensions", "permutation"),
    [
        ("f32", (20, 20), (1, 0)),
        ("f32", (4000, 3), (1, 0)),
        ("f32", (8, 30, 40), (1, 0, 2)),
        ("f64", (100, 100), (1, 0)),
        ("f16", (100, 100), (1, 0)),
    ],
)
def test_one_by_one(element_type: str, dimensions: tuple[int, ...], permutation: tuple[int, ...]) -> None:
    module = transposed(element_type, dimensions, permutation)
    assert not in_blocks(module)
    x = np.random.default_rng(0).normal(size=dimensions).astype(module.entry.parameters[0].array_shape.dtype)
    check(module, [x], tolerance=0.0)


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(40))
def test_any_permutation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(2, 5))
    dimensions = tuple(int(n) for n in rng.choice([1, 2, 7, 16, 33, 64], rank))
    permutation = tuple(int(d) for d in rng.permutation(rank))
    module = transposed("f32", dimensions, permutation)
    check(module, [rng.normal(size=dimensions).astype(np.float32)], tolerance=0.0)
