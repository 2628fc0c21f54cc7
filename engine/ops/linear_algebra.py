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
    """Cholesky factors, zero in the other triangle; a matrix that is not positive definite gives NaN."""
    (x,) = operands
    lower = instruction["lower"]
    wide = widest(x) if lower else _adjoint(widest(x))
    factors = np.empty_like(wide)
    for position in np.ndindex(*x.shape[:-2]):
        try:
            factors[position] = np.linalg.cholesky(wide[position])
        except np.linalg.LinAlgError:
            factors[position] = np.nan
        # LAPACK continues after a pivot that is NaN.
        if not (np.diagonal(factors[position]).real > 0).all():
            factors[position] = np.nan
    return np.ascontiguousarray(factors if lower else _adjoint(factors)).astype(x.dtype)


def _adjoint(x: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(x, -1, -2))


@definition("triangular-solve")
def _triangular_solve(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """X of op(A) X = B, or of X op(A) = B when not `left_side`; only A's lower or upper triangle is read."""
    a, b = (widest(x) for x in operands)
    lower = instruction["lower"]
    if instruction["unit_diagonal"]:
        a = np.where(np.eye(a.shape[-1], dtype=np.bool_), np.ones((), a.dtype), a)
    if instruction["transpose_a"] != "NO_TRANSPOSE":
        a, lower = (_adjoint(a) if instruction["transpose_a"] == "ADJOINT" else np.swapaxes(a, -1, -2)), not lower
    if instruction["left_side"]:
        return _substituted(a, b, lower).astype(operands[1].dtype)
    solution = _substituted(np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not lower)
    return np.swapaxes(solution, -1, -2).astype(operands[1].dtype)


def _substituted(a: np.ndarray, b: np.ndarray, lower: bool) -> np.ndarray:
    """X of A X = B by substitution, from the triangle's row of one element; a zero on the diagonal divides by zero."""
    x = np.array(b)
    rows = range(a.shape[-1])
    for k in rows if lower else reversed(rows):
        known = slice(None, k) if lower else slice(k + 1, None)
        rest = b[..., k, :] - np.einsum("...j,...jc->...c", a[..., k, known], x[..., known, :])
        x[..., k, :] = rest / a[..., k, k, None]
    return x


@definition("fft")
def _fft(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Transforms the last len(fft_length) dimensions."""
    (x,) = operands
    lengths = instruction["fft_length"]
    axes = tuple(range(x.ndim - len(lengths), x.ndim))
    transform = TRANSFORMS[instruction["fft_type"]]
    return transform(widest(x), lengths, axes).astype(instruction.array_shape.dtype)
