"""Codelets and parameter blocks of factors of matrices, and of linear systems."""

from __future__ import annotations

from engine.codelets.factors.eigenvalues import eigenvalues, eigenvalues_scratch_bytes
from engine.codelets.factors.elimination import solution, solution_scratch_bytes, triangular_factors
from engine.codelets.factors.matrices import Matrices
from engine.codelets.factors.orthogonal_factors import orthogonal_factors, orthogonal_factors_scratch_bytes
from engine.codelets.factors.singular_values import singular_values, singular_values_scratch_bytes
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.record import block
from engine.ir.factorizations import EIGH, LU, QR, SOLVE, SVD
from engine.program.work.factors import FactorizationWork

CODELETS = {
    SVD: singular_values,
    EIGH: eigenvalues,
    QR: orthogonal_factors,
    LU: triangular_factors,
    SOLVE: solution,
}


def encoded_factorization(work: FactorizationWork) -> Encoded:
    """The codelet of a target, with its parameters and scratch."""
    kind, rows, columns = work.element_type, work.rows, work.columns
    scratch = {
        SVD: singular_values_scratch_bytes(rows, columns, kind),
        EIGH: eigenvalues_scratch_bytes(rows, kind),
        QR: orthogonal_factors_scratch_bytes(rows, columns, kind),
        SOLVE: solution_scratch_bytes(rows, work.right_sides, kind),
    }
    width = work.right_sides if work.target == SOLVE else rows if work.full else min(rows, columns)
    arrays = zip(("a", "b"), work.operands, strict=False), zip(("first", "second", "third"), work.results, strict=False)
    parameters = Matrices(
        **dict(arrays[0]), **dict(arrays[1]), rows=rows, columns=columns, width=width, with_vectors=int(work.vectors)
    )
    return Encoded.of(CODELETS[work.target](kind), block(parameters), scratch.get(work.target, 0))
