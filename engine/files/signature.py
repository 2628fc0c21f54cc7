"""Inputs and outputs of a program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.ir.shape import Shape


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output: its name, its whole shape (including the batch), and its dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Signature:
    """A program's inputs, one per fed parameter in order, and outputs, one per result that updates no variable."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


def tensor_info(name: str, shape: Shape) -> TensorInfo:
    """A TensorInfo of that shape and element type."""
    return TensorInfo(name, shape.dimensions, shape.dtype)
