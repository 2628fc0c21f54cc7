"""HLO cholesky: L of A = L L^H, or U of A = U^H U; the other triangle is zero.

Unit: one matrix. U is computed row by row in the target's memory: a row of A minus the rows above it, each times one
number, so that all inner loops run along rows. L is U^H. A matrix that is not positive definite gives NaN.
"""

from __future__ import annotations

from functools import cache
from math import sqrt

from engine.codelets.factors.matrices import Pointer, fill_nan, matrix_type
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.element import conjugate
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.memory import pointer
from engine.codelets.language.record import Address, Record, block
from engine.program.work.factors import CholeskyWork


class Cholesky(Record):
    """The parameters of a codelet of `cholesky`."""

    source: Address = 0
    target: Address = 0
    size: int
    lower: int


@inner
def _load_upper(source: Pointer, target: Pointer, size: int, lower: int) -> None:
    for i in range(size):
        for j in range(i, size):
            target[i * size + j] = conjugate(source[j * size + i]) if lower else source[i * size + j]


@inner
def _subtract_rows(target: Pointer, row: int, size: int) -> None:
    """Subtracts the rows above, each times its element in column `row`, from a row; four at a time."""
    above = 0
    while above + 4 <= row:
        a = conjugate(target[above * size + row])
        b = conjugate(target[(above + 1) * size + row])
        c = conjugate(target[(above + 2) * size + row])
        d = conjugate(target[(above + 3) * size + row])
        at = above * size
        for j in range(row, size):
            first = a * target[at + j] + b * target[at + size + j]
            second = c * target[at + 2 * size + j] + d * target[at + 3 * size + j]
            target[row * size + j] -= first + second
        above += 4
    for k in range(above, row):
        factor = conjugate(target[k * size + row])
        for j in range(row, size):
            target[row * size + j] -= factor * target[k * size + j]


@inner
def _factor(target: Pointer, size: int) -> bool:
    """Replaces A's upper triangle by U; False if a pivot is not positive."""
    for i in range(size):
        _subtract_rows(target, i, size)
        pivot = target[i * size + i].real
        if not pivot > 0:
            return False
        root = sqrt(pivot)
        target[i * size + i] = root
        for j in range(i + 1, size):
            target[i * size + j] /= root
    return True


@inner
def _finish(target: Pointer, size: int, lower: int) -> None:
    """Clears the other triangle; for L, moves U^H there first."""
    for i in range(size):
        for j in range(i + 1, size):
            if lower:
                target[j * size + i] = conjugate(target[i * size + j])
                target[i * size + j] = 0
            else:
                target[j * size + i] = 0


@cache
def cholesky(element_type: str) -> Codelet:
    """The codelet for an element type. Raises UnsupportedOperation for one that is neither float nor complex."""
    type_name, item = matrix_type("cholesky", element_type)

    def factorize(parameters: int, lo: int, hi: int, scratch: int) -> None:
        given = Cholesky.read(parameters)
        for unit in range(lo, hi):
            offset = unit * given.size * given.size * item
            source, target = pointer(given.source + offset, type_name), pointer(given.target + offset, type_name)
            _load_upper(source, target, given.size, given.lower)
            if _factor(target, given.size):
                _finish(target, given.size, given.lower)
            else:
                fill_nan(target, given.size * given.size)

    return Codelet(factorize, f"cholesky_{element_type}")


def encoded_cholesky(work: CholeskyWork) -> Encoded:
    """The fields of `Cholesky`."""
    return Encoded.of(cholesky(work.element_type), block(Cholesky.of(work)))
