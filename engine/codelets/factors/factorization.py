"""Codelets and parameter blocks of factors of matrices, and of linear systems."""

from __future__ import annotations

from engine.codelets.factors.eigenvalues import Eigenvalues, eigenvalues, eigenvalues_scratch_bytes
from engine.codelets.factors.elimination import (
    Factors,
    LinearSystem,
    solution,
    solution_scratch_bytes,
    triangular_factors,
)
from engine.codelets.factors.orthogonal_factors import (
    OrthogonalFactors,
    orthogonal_factors,
    orthogonal_factors_scratch_bytes,
)
from engine.codelets.factors.singular_values import SingularValues, singular_values, singular_values_scratch_bytes
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.record import block
from engine.ir.factorizations import EIGH, LU, QR, SVD
from engine.program.work.factors import FactorizationWork


def encoded_factorization(work: FactorizationWork) -> Encoded:
    """The codelet of a target, with its parameters and scratch."""
    kind, rows, columns = work.element_type, work.rows, work.columns
    a, *others = work.operands
    first, *rest = work.results
    if work.target == SVD:
        high, low = max(rows, columns), min(rows, columns)
        left, right = rest or (0, 0)
        if rows < columns:
            left, right = right, left
        values = SingularValues(
            source=a,
            values=first,
            left=left,
            right=right,
            rows=high,
            columns=low,
            transposed=int(rows < columns),
            with_vectors=int(work.vectors),
        )
        return Encoded.of(singular_values(kind), block(values), singular_values_scratch_bytes(high, low, kind))
    if work.target == EIGH:
        vectors = rest[0] if rest else 0
        own = Eigenvalues(source=a, values=first, vectors=vectors, size=rows, with_vectors=int(work.vectors))
        return Encoded.of(eigenvalues(kind), block(own), eigenvalues_scratch_bytes(rows, kind))
    if work.target == QR:
        width = rows if work.full else min(rows, columns)
        factors = OrthogonalFactors(source=a, q=first, r=rest[0], rows=rows, columns=columns, width=width)
        scratch = orthogonal_factors_scratch_bytes(rows, columns, kind)
        return Encoded.of(orthogonal_factors(kind), block(factors), scratch)
    if work.target == LU:
        triangles = Factors(source=a, factors=first, order=rest[0], sign=rest[1], size=rows)
        return Encoded.of(triangular_factors(kind), block(triangles))
    system = LinearSystem(a=a, b=others[0], x=first, size=rows, right_sides=work.right_sides)
    return Encoded.of(solution(kind), block(system), solution_scratch_bytes(rows, work.right_sides, kind))
