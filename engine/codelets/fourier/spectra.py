"""Operations of Fourier transforms on each element besides the passes, in LLVM IR; elements are as in `butterflies`.

A real line of 2 m numbers is transformed as m complex ones, of which `untangled` makes its half spectrum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.codelets.fourier.butterflies import Arithmetic, Complex, FourierLanes
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.lanes import I64, ITEM_BYTES, Lanes
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.switched import outlined
from engine.machine_code.llvm import ir

Pair = tuple[Complex, Complex]
Ends = Callable[[Arithmetic, ir.Value, ir.Value], None]
Pairs = Callable[[Arithmetic, Complex, Complex, Complex], Pair]


def _operation(write: Callable[..., None]) -> Callable[[FourierLanes], Any]:
    """Decorator: makes the intrinsic `operation(first, ...)` of int64 for some lanes, with a function of its own."""

    def made(lanes: FourierLanes) -> Any:
        @intrinsic
        def run(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
            def body(inside: ir.IRBuilder, first: ir.Value, *rest: ir.Value) -> None:
                write(Arithmetic(inside, lanes, first), *rest)

            outlined(builder, write.__name__, body, arguments)

        return run

    return made


@_operation
def multiplied(math: Arithmetic, x: ir.Value, table: ir.Value, count: ir.Value) -> None:
    """x[k] *= table[k] for k < count, at least one; complex numbers."""
    builder = math.builder
    loop = EmittedLoop(builder, "elements", I64(0), count, I64(1), [x, table])
    place, root = loop.carried
    math.store(math.multiply(math.load(place), math.root(root)), place)
    item = I64(2 * ITEM_BYTES[math.lanes.element_type])
    loop.close([builder.add(place, I64(2 * math.lanes.bytes)), builder.add(root, item)])


@_operation
def divided(math: Arithmetic, x: ir.Value, factor: ir.Value, count: ir.Value) -> None:
    """Multiplies count elements, at least one, by the real number at `factor`."""
    builder, number = math.builder, math.number(factor)
    loop = EmittedLoop(builder, "elements", I64(0), count, I64(1), [x])
    (place,) = loop.carried
    math.store(math.scaled(math.load(place), number), place)
    loop.close([builder.add(place, I64(2 * math.lanes.bytes))])


@_operation
def untangled(math: Arithmetic, x: ir.Value, roots: ir.Value, half: ir.Value) -> None:
    """Makes the transform of `half` pairs a half spectrum of one number more, in place.

    Root k of half // 2 + 1 is exp(-pi i k / half).
    """

    def pair(math: Arithmetic, total: Complex, difference: Complex, root: Complex) -> Pair:
        half, builder = math.constant(0.5), math.builder
        total, (a, b) = math.scaled(total, half), math.scaled(difference, half)
        one, (re, im) = _both(math, total, (b, builder.fneg(a)), root)
        return one, (re, builder.fneg(im))

    def ends(math: Arithmetic, x: ir.Value, last: ir.Value) -> None:
        builder, zero = math.builder, math.constant(0)
        re, im = math.load(x)
        math.store((builder.fadd(re, im), zero), x)
        math.store((builder.fsub(re, im), zero), last)

    _mirrored(math, x, roots, half, ends, pair)


@_operation
def tangled(math: Arithmetic, x: ir.Value, roots: ir.Value, half: ir.Value) -> None:
    """Reverses `untangled`, and multiplies by 2. Imaginary parts of the first and last number are ignored."""

    def pair(math: Arithmetic, total: Complex, difference: Complex, root: Complex) -> Pair:
        builder, (a, b), (c, d) = math.builder, difference, root
        one, (re, im) = _both(math, total, (builder.fneg(b), a), (c, builder.fneg(d)))
        return one, (re, builder.fneg(im))

    def ends(math: Arithmetic, x: ir.Value, last: ir.Value) -> None:
        builder = math.builder
        (a, _), (b, _) = math.load(x), math.load(last)
        math.store((builder.fadd(a, b), builder.fsub(a, b)), x)

    _mirrored(math, x, roots, half, ends, pair)


def _mirrored(math: Arithmetic, x: ir.Value, roots: ir.Value, half: ir.Value, ends: Ends, pair: Pairs) -> None:
    """Applies `ends` to elements 0 and m, `pair` to sum and difference of each k <= m/2 and the conjugate of m - k."""
    builder, size = math.builder, I64(2 * math.lanes.bytes)
    last = builder.add(x, builder.mul(half, size))
    ends(math, x, last)
    pairs = builder.add(builder.sdiv(half, I64(2)), I64(1))
    item = I64(2 * ITEM_BYTES[math.lanes.element_type])
    start = [builder.add(x, size), builder.sub(last, size), builder.add(roots, item)]
    loop = EmittedLoop(builder, "pairs", I64(1), pairs, I64(1), start, may_be_empty=True)
    low, high, root = loop.carried
    (a, b), (c, d) = math.load(low), math.load(high)
    total, difference = (builder.fadd(a, c), builder.fsub(b, d)), (builder.fsub(a, c), builder.fadd(b, d))
    one, other = pair(math, total, difference, math.root(root))
    math.store(other, high)
    math.store(one, low)
    loop.close([builder.add(low, size), builder.sub(high, size), builder.add(root, item)])


def _both(math: Arithmetic, total: Complex, a: Complex, b: Complex) -> Pair:
    """total + a * b and total - a * b, each part rounded twice."""
    builder, (c, d) = math.builder, a
    minus = builder.fneg(c), builder.fneg(d)
    made = []
    for (re, im), other in ((a, minus), (minus, a)):
        real = math.multiply_add(re, b[0], math.multiply_add(other[1], b[1], total[0]))
        made.append((real, math.multiply_add(re, b[1], math.multiply_add(im, b[0], total[1]))))
    return made[0], made[1]


@_operation
def parted(math: Arithmetic, target: ir.Value, source: ir.Value) -> None:
    """Makes one element of as many neighbouring complex numbers as there are lanes."""
    both = Lanes(math.builder, 2 * math.lanes.width).load(source, math.lanes.element_type)
    math.store(math.vectors.parts(both), target)


@_operation
def paired(math: Arithmetic, source: ir.Value, target: ir.Value) -> None:
    """Stores an element as neighbouring complex numbers: the reverse of `parted`."""
    both = math.vectors.paired(*math.load(source))
    Lanes(math.builder, 2 * math.lanes.width).store(both, target, math.lanes.element_type)
