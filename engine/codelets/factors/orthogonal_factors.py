"""QR factors by Householder reflections. R's diagonal has LAPACK's signs. Unit: one matrix."""

from __future__ import annotations

from functools import cache

import numpy as np

from engine.codelets.factors.reflections import (
    BETA,
    NUMBA_TYPES,
    NUMBERS,
    TAU,
    fill_nan,
    make_reflection,
    reflect_rows,
    scale_of,
    set_identity,
)
from engine.codelets.language.build import Codelet
from engine.codelets.language.memory import pointer
from engine.codelets.language.record import Address, Record, word
from engine.machine_code.abi import RESERVED_SCRATCH


class OrthogonalFactors(Record):
    """Parameters of a codelet of `orthogonal_factors`."""

    source: Address = 0  # [rows, columns]
    q: Address = 0  # [rows, width]
    r: Address = 0  # [width, columns]
    rows: int
    columns: int
    width: int  # the lesser of both, or `rows` for all of Q


@cache
def orthogonal_factors(element_type: str) -> Codelet:
    """The codelet for f32 or f64."""
    type_name, item = NUMBA_TYPES[element_type], np.dtype(NUMBA_TYPES[element_type]).itemsize

    def factorize(parameters: int, lo: int, hi: int, scratch: int) -> None:
        rows, columns = word(parameters, OrthogonalFactors.ROWS), word(parameters, OrthogonalFactors.COLUMNS)
        width, count = word(parameters, OrthogonalFactors.WIDTH), min(rows, columns)
        base = scratch + RESERVED_SCRATCH
        numbers, v = pointer(base, type_name), pointer(base + NUMBERS * item, type_name)
        sums = pointer(base + (NUMBERS + rows) * item, type_name)
        a = pointer(base + (NUMBERS + 2 * rows + columns) * item, type_name)
        taus = pointer(base + (NUMBERS + 2 * rows + columns + rows * columns) * item, type_name)
        for unit in range(lo, hi):
            source = pointer(word(parameters, OrthogonalFactors.SOURCE) + unit * rows * columns * item, type_name)
            q = pointer(word(parameters, OrthogonalFactors.Q) + unit * rows * width * item, type_name)
            r = pointer(word(parameters, OrthogonalFactors.R) + unit * width * columns * item, type_name)
            scale = scale_of(source, rows * columns)
            if scale != scale:
                fill_nan(q, rows * width)
                fill_nan(r, width * columns)
                continue
            for i in range(rows * columns):
                a[i] = source[i] * scale
            for k in range(count):
                for i in range(k, rows):
                    v[i - k] = a[i * columns + k]
                make_reflection(v, rows - k, numbers)
                taus[k] = numbers[TAU]
                reflect_rows(a, k * columns + k + 1, columns, rows - k, columns - k - 1, v, sums, numbers[TAU])
                a[k * columns + k] = numbers[BETA]
                for i in range(k + 1, rows):
                    a[i * columns + k] = v[i - k]
            set_identity(q, rows, width)
            for step in range(count):
                k = count - 1 - step
                v[0] = 1
                for i in range(k + 1, rows):
                    v[i - k] = a[i * columns + k]
                reflect_rows(q, k * width + k, width, rows - k, width - k, v, sums, taus[k])
            for i in range(width):
                for j in range(columns):
                    r[i * columns + j] = a[i * columns + j] / scale if j >= i else 0.0

    return Codelet(factorize, f"orthogonal_factors_{element_type}")


def orthogonal_factors_scratch_bytes(rows: int, columns: int, element_type: str) -> int:
    """The bytes of scratch for matrices of these sizes."""
    elements = NUMBERS + 2 * rows + columns + rows * columns + min(rows, columns)
    return elements * np.dtype(NUMBA_TYPES[element_type]).itemsize
