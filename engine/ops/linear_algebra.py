"""cholesky, triangular-solve and fft."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.ir import Instruction
from engine.ops.floats import widest
from engine.ops.registry import definition

TRANSFORMS: dict[str, Callable[..., np.ndarray]] = {
    "FFT": np.fft.fftn,
    "IFFT": np.fft.ifftn,
    "RFFT": np.fft.rfftn,
    "IRFFT": np.fft.irfftn,
}


@definition("cholesky")
def _cholesky(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """The other triangle is zero; a matrix that is not positive definite gives NaN."""
    (x,) = operands
    lower = instruction["lower"]
    wide = widest(x) if lower else _adjoint(widest(x))
    factors = np.empty_like(wide)
    for position in np.ndindex(*x.shape[:-2]):
        try:
            factors[position] = np.linalg.cholesky(wide[position])
        except np.linalg.LinAlgError:
            factors[position] = np.nan
    return np.ascontiguousarray(factors if lower else _adjoint(factors)).astype(x.dtype)


def _adjoint(x: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(x, -1, -2))


@definition("triangular-solve")
def _triangular_solve(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """X of op(A) X = B, or of X op(A) = B when not `left_side`; only A's named triangle is read."""
    a, b = (widest(x) for x in operands)
    triangle = np.tril(a) if instruction["lower"] else np.triu(a)
    if instruction["unit_diagonal"]:
        identity = np.eye(a.shape[-1], dtype=a.dtype)
        triangle = triangle * (1 - identity) + identity
    if instruction["transpose_a"] == "TRANSPOSE":
        triangle = np.swapaxes(triangle, -1, -2)
    elif instruction["transpose_a"] == "ADJOINT":
        triangle = _adjoint(triangle)
    if instruction["left_side"]:
        return np.linalg.solve(triangle, b).astype(operands[1].dtype)
    solution = np.linalg.solve(np.swapaxes(triangle, -1, -2), np.swapaxes(b, -1, -2))
    return np.swapaxes(solution, -1, -2).astype(operands[1].dtype)


@definition("fft")
def _fft(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Over the last len(fft_length) dimensions."""
    (x,) = operands
    lengths = instruction["fft_length"]
    axes = tuple(range(x.ndim - len(lengths), x.ndim))
    transform = TRANSFORMS[instruction["fft_type"]]
    return transform(widest(x), lengths, axes).astype(instruction.array_shape.dtype)
