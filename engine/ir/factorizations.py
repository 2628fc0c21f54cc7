"""Factorizations of matrices, f32 or f64, as custom calls; HLO has none but cholesky. All give a tuple.

The last two dimensions are a matrix [m, n], k is the lesser of both; those before them are a batch.
"""

from __future__ import annotations

from engine.errors import InternalError
from engine.ir.device_operations import config_of, target_of
from engine.ir.module import Instruction
from engine.ir.shape import Shape

SVD = "ipu.svd"
"""(a) -> (s [k], u [m, k], v [n, k]), s descending; config {"vectors": bool}: without them s alone."""
EIGH = "ipu.eigh"
"""(a [n, n]) -> (values [n], vectors [n, n]), ascending, of the lower triangle; config as SVD's."""
QR = "ipu.qr"
"""(a) -> (q [m, k], r [k, n]), or with config {"full": true} q [m, m] and r [m, n]."""
LU = "ipu.lu"
"""(a [n, n]) -> (factors [n, n], order s32 [n], sign []): row i of L U is row order[i] of a, sign is the order's."""
SOLVE = "ipu.solve"
"""(a [n, n], b [n, r]) -> (x [n, r]) of a x = b."""
FACTORIZATIONS = frozenset({SVD, EIGH, QR, LU, SOLVE})
TYPES = frozenset({"f32", "f64"})
SETTINGS: dict[str | None, set[str]] = {SVD: {"vectors"}, EIGH: {"vectors"}, QR: {"full"}, LU: set(), SOLVE: set()}
"""The names in the config of each target."""


def factorization_shapes(instruction: Instruction) -> tuple[Shape, ...]:
    """The shapes of the results, given those of the operands. Raises InternalError for other shapes or settings."""
    target, shapes = target_of(instruction), [each.array_shape for each in instruction.operands]
    a, config = shapes[0], config_of(instruction)
    if config.keys() != SETTINGS[target] or not all(isinstance(each, bool) for each in config.values()):
        raise InternalError(f"Expected true or false for {sorted(SETTINGS[target])}. Received: {config}.")
    square, count = target not in (SVD, QR), 2 if target == SOLVE else 1
    if len(shapes) != count or a.rank < 2 or any(each.element_type not in TYPES for each in shapes):
        raise InternalError(f"Expected {count} operands of f32 or f64 matrices. Received: {shapes}.")
    *batch, m, n = a.dimensions
    if not a.elements or (square and m != n):
        raise InternalError(f"Expected matrices of {'equal' if square else 'some'} rows and columns. Received: {a}.")
    k = min(m, n)

    def of(*dimensions: int) -> Shape:
        return a.with_dimensions((*batch, *dimensions))

    if target == SVD:
        return (of(k), of(m, k), of(n, k)) if config["vectors"] else (of(k),)
    if target == EIGH:
        return (of(n), of(n, n)) if config["vectors"] else (of(n),)
    if target == QR:
        width = m if config["full"] else k
        return of(m, width), of(width, n)
    if target == LU:
        return a, of(n).with_type("s32"), of()
    b = shapes[1]
    if b.element_type != a.element_type or b.dimensions[:-1] != a.dimensions[:-1] or not b.elements:
        raise InternalError(f"Expected right sides of {a}. Received: {b}.")
    return (b,)
