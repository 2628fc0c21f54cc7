"""QR factors by Householder reflections. R's diagonal has LAPACK's signs. Unit: one matrix."""

from __future__ import annotations

from functools import cache

from engine.codelets.factors.matrices import Matrices, copy_scaled, fill_nan, scale_of
from engine.codelets.factors.reflections import NUMBERS, product_of_columns, reflect_by_column
from engine.codelets.language.build import Codelet
from engine.codelets.language.element import NUMBA_NAMES
from engine.codelets.language.lanes import ITEM_BYTES
from engine.codelets.language.memory import pointer
from engine.machine_code.abi import RESERVED_SCRATCH


@cache
def orthogonal_factors(element_type: str) -> Codelet:
    """The codelet for f32 or f64."""
    type_name, item = NUMBA_NAMES[element_type], ITEM_BYTES[element_type]

    def factorize(parameters: int, lo: int, hi: int, scratch: int) -> None:
        given, base = Matrices.read(parameters), scratch + RESERVED_SCRATCH
        rows, columns, width, count = given.rows, given.columns, given.width, min(given.rows, given.columns)
        numbers, v = pointer(base, type_name), pointer(base + NUMBERS * item, type_name)
        sums = pointer(base + (NUMBERS + rows) * item, type_name)
        a = pointer(base + (NUMBERS + 2 * rows + columns) * item, type_name)
        taus = pointer(base + (NUMBERS + 2 * rows + columns + rows * columns) * item, type_name)
        for unit in range(lo, hi):
            source = pointer(given.a + unit * rows * columns * item, type_name)
            q = pointer(given.first + unit * rows * width * item, type_name)
            r = pointer(given.second + unit * width * columns * item, type_name)
            scale = scale_of(source, rows * columns)
            if scale != scale:
                fill_nan(q, rows * width)
                fill_nan(r, width * columns)
                continue
            copy_scaled(source, 0, a, 0, rows * columns, scale)
            for k in range(count):
                a[k * columns + k] = reflect_by_column(a, k, rows, columns, v, sums, numbers, taus)
            product_of_columns(a, rows, columns, q, width, count, v, sums, taus)
            for i in range(width):
                for j in range(columns):
                    r[i * columns + j] = a[i * columns + j] / scale if j >= i else 0.0

    return Codelet(factorize, f"orthogonal_factors_{element_type}")


def orthogonal_factors_scratch_bytes(rows: int, columns: int, element_type: str) -> int:
    """The bytes of scratch for matrices of these sizes."""
    elements = NUMBERS + 2 * rows + columns + rows * columns + min(rows, columns)
    return elements * ITEM_BYTES[element_type]
