"""The transforms of Winograd's F(4 x 4, 3 x 3) along one side of a tile of 6, by the points 0, 1, -1, 2 and -2."""

from __future__ import annotations

from collections.abc import Sequence

from engine.codelets import vector
from engine.codelets.memory import F32
from engine.machine_code.llvm import ir

Vectors = Sequence[ir.Value]


def _times(builder: ir.IRBuilder, factor: float, x: ir.Value) -> ir.Value:
    return builder.fmul(vector.splat(builder, F32(factor)), x)


def _plus(builder: ir.IRBuilder, y: ir.Value, factor: float, x: ir.Value) -> ir.Value:
    """y + factor * x."""
    return vector.multiply_add(builder, vector.splat(builder, F32(factor)), x, y)


def of_wide_input(builder: ir.IRBuilder, d: Vectors) -> list[ir.Value]:
    """B' d, of 6."""
    even, odd = _plus(builder, d[4], -4.0, d[2]), _plus(builder, d[3], -4.0, d[1])
    near, far = builder.fsub(d[4], d[2]), builder.fsub(d[3], d[1])
    return [
        _plus(builder, near, 4.0, builder.fsub(d[0], d[2])),
        builder.fadd(even, odd),
        builder.fsub(even, odd),
        _plus(builder, near, 2.0, far),
        _plus(builder, near, -2.0, far),
        _plus(builder, builder.fsub(d[5], d[3]), -4.0, far),
    ]


def of_wide_kernel(builder: ir.IRBuilder, g: Vectors) -> list[ir.Value]:
    """G g, of 3."""
    ends, middle = _times(builder, -1 / 6, builder.fadd(g[0], g[2])), _times(builder, 1 / 6, g[1])
    even, odd = _plus(builder, _times(builder, 1 / 24, g[0]), 1 / 6, g[2]), _times(builder, 1 / 12, g[1])
    return [
        _times(builder, 0.25, g[0]),
        builder.fsub(ends, middle),
        builder.fadd(ends, middle),
        builder.fadd(even, odd),
        builder.fsub(even, odd),
        g[2],
    ]


def of_wide_products(builder: ir.IRBuilder, m: Vectors) -> list[ir.Value]:
    """A' m, of 6."""
    even, odd = builder.fadd(m[1], m[2]), builder.fsub(m[1], m[2])
    far_even, far_odd = builder.fadd(m[3], m[4]), builder.fsub(m[3], m[4])
    return [
        builder.fadd(m[0], builder.fadd(even, far_even)),
        _plus(builder, odd, 2.0, far_odd),
        _plus(builder, even, 4.0, far_even),
        builder.fadd(_plus(builder, odd, 8.0, far_odd), m[5]),
    ]


def of_wide_gradient(builder: ir.IRBuilder, y: Vectors) -> list[ir.Value]:
    """A y, of 4."""
    even, odd = builder.fadd(y[0], y[2]), builder.fadd(y[1], y[3])
    far_even, far_odd = _plus(builder, y[0], 4.0, y[2]), _plus(builder, y[1], 4.0, y[3])
    return [
        y[0],
        builder.fadd(even, odd),
        builder.fsub(even, odd),
        _plus(builder, far_even, 2.0, far_odd),
        _plus(builder, far_even, -2.0, far_odd),
        y[3],
    ]


def of_wide_sums(builder: ir.IRBuilder, m: Vectors) -> list[ir.Value]:
    """G' m, of 6."""
    even, odd = _times(builder, 1 / 6, builder.fadd(m[1], m[2])), builder.fsub(m[2], m[1])
    far_even, far_odd = builder.fadd(m[3], m[4]), builder.fsub(m[3], m[4])
    return [
        _plus(builder, builder.fsub(_times(builder, 0.25, m[0]), even), 1 / 24, far_even),
        _plus(builder, _times(builder, 1 / 6, odd), 1 / 12, far_odd),
        builder.fadd(_plus(builder, _times(builder, -1.0, even), 1 / 6, far_even), m[5]),
    ]
