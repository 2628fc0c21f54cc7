"""Stockham's passes of Fourier transforms, in LLVM IR: each lane of a vector transforms a line of its own.

An element is a vector of real parts next to a vector of imaginary parts. If `first` is 0, the real parts come first. If
`first` is a vector's bytes, they come second, which makes the transform the inverse one, not divided by its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import cos, pi, sin, sqrt
from typing import NamedTuple

from engine.codelets.language.build import Codelet
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.lanes import I64, ITEM_BYTES, Lanes
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.record import Record
from engine.machine_code.llvm import ir

Complex = tuple[ir.Value, ir.Value]


class FourierLanes(NamedTuple):
    """`width` numbers of type f32 or f64 in a vector."""

    element_type: str
    width: int

    @property
    def bytes(self) -> int:
        """The bytes of a vector."""
        return ITEM_BYTES[self.element_type] * self.width


class Arithmetic:
    """Complex arithmetic on lanes, and their elements in memory."""

    def __init__(self, builder: ir.IRBuilder, lanes: FourierLanes, first: ir.Value) -> None:
        self.builder, self.lanes, self.vectors = builder, lanes, Lanes(builder, lanes.width)
        self.offsets = first, builder.sub(I64(lanes.bytes), first)

    def load(self, address: ir.Value) -> Complex:
        """The element at an address."""
        places = (self.builder.add(address, each) for each in self.offsets)
        real, imaginary = (self.vectors.load(each, self.lanes.element_type) for each in places)
        return real, imaginary

    def store(self, value: Complex, address: ir.Value) -> None:
        """Stores an element."""
        for part, offset in zip(value, self.offsets, strict=True):
            self.vectors.store(part, self.builder.add(address, offset), self.lanes.element_type)

    def constant(self, number: float) -> ir.Constant:
        """The real number in all lanes."""
        return self.vectors.constant(self.lanes.element_type, number)

    def number(self, address: ir.Value) -> ir.Value:
        """The real number at an address, in all lanes."""
        return self.vectors.load_splat(address, self.lanes.element_type)

    def root(self, address: ir.Value) -> Complex:
        """The complex number at an address, in all lanes."""
        following = self.builder.add(address, I64(ITEM_BYTES[self.lanes.element_type]))
        return self.number(address), self.number(following)

    def add(self, a: Complex, b: Complex) -> Complex:
        return self.builder.fadd(a[0], b[0]), self.builder.fadd(a[1], b[1])

    def subtract(self, a: Complex, b: Complex) -> Complex:
        return self.builder.fsub(a[0], b[0]), self.builder.fsub(a[1], b[1])

    def scaled(self, a: Complex, factor: ir.Value) -> Complex:
        """The product with a real number."""
        return self.builder.fmul(a[0], factor), self.builder.fmul(a[1], factor)

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a * b + c of vectors."""
        return self.vectors.intrinsic("fmuladd", a, b, c)

    def multiply(self, a: Complex, b: Complex) -> Complex:
        builder = self.builder
        real = self.multiply_add(a[0], b[0], builder.fneg(builder.fmul(a[1], b[1])))
        return real, self.multiply_add(a[0], b[1], builder.fmul(a[1], b[0]))

    def rotated(self, a: Complex) -> Complex:
        """The product with -i."""
        return a[1], self.builder.fneg(a[0])


def _of_two(math: Arithmetic, x: Sequence[Complex]) -> list[Complex]:
    return [math.add(*x), math.subtract(*x)]


def _of_four(math: Arithmetic, x: Sequence[Complex]) -> list[Complex]:
    even, difference = _of_two(math, x[::2])
    odd, other = _of_two(math, x[1::2])
    (re, im), (a, b) = difference, other
    builder = math.builder
    first, third = (builder.fadd(re, b), builder.fsub(im, a)), (builder.fsub(re, b), builder.fadd(im, a))
    return [math.add(even, odd), first, math.subtract(even, odd), third]


def _of_eight(math: Arithmetic, x: Sequence[Complex]) -> list[Complex]:
    pairs = [_of_two(math, (a, b)) for a, b in zip(x[:4], x[4:], strict=True)]
    builder, half = math.builder, math.constant(sqrt(0.5))
    later = [difference for _, difference in pairs]
    (a, b), (c, d) = later[1], later[3]
    later[1] = math.scaled((builder.fadd(a, b), builder.fsub(b, a)), half)
    later[2] = math.rotated(later[2])
    later[3] = math.scaled((builder.fsub(d, c), builder.fneg(builder.fadd(c, d))), half)
    even, odd = _of_four(math, [total for total, _ in pairs]), _of_four(math, later)
    return [each for pair in zip(even, odd, strict=True) for each in pair]


def _of_odd(math: Arithmetic, x: Sequence[Complex]) -> list[Complex]:
    """Sums and differences of elements with conjugate roots, which save half of the products."""
    order, builder, constant = len(x), math.builder, math.constant
    pairs = [_of_two(math, (x[k], x[order - k])) for k in range(1, order // 2 + 1)]
    total = x[0]
    for each, _ in pairs:
        total = math.add(total, each)
    made = [total] * order
    for j in range(1, order // 2 + 1):
        angles = [2 * pi * (j * k % order) / order for k in range(1, order // 2 + 1)]
        re, im = x[0]
        across, down = None, None
        for angle, ((a, b), (c, d)) in zip(angles, pairs, strict=True):
            cosine, sine = constant(cos(angle)), constant(sin(angle))
            re, im = math.multiply_add(a, cosine, re), math.multiply_add(b, cosine, im)
            across = builder.fmul(d, sine) if across is None else math.multiply_add(d, sine, across)
            down = builder.fmul(c, sine) if down is None else math.multiply_add(c, sine, down)
        made[j] = builder.fadd(re, across), builder.fsub(im, down)
        made[order - j] = builder.fsub(re, across), builder.fadd(im, down)
    return made


def _butterfly(math: Arithmetic, x: Sequence[Complex]) -> list[Complex]:
    """The transform of a few elements."""
    return {2: _of_two, 4: _of_four, 8: _of_eight}.get(len(x), _of_odd)(math, x)


class Pass(Record):
    """Parameters of `passing`; elements are counted."""

    source: int
    target: int
    first: int
    rest: int
    stride: int
    roots: int


@cache
def passing(radix: int, lanes: FourierLanes) -> Codelet:
    """The codelet of one pass from x to y, called by address; it has no units.

    y[q + stride * (radix * p + j)] is element j of the transform of x[q + stride * (p + rest * k)] over k < radix,
    times the root (p, j), for p < rest and q < stride. Roots are given for 0 < p and 0 < j.
    """

    @intrinsic
    def run_pass(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
        _emit_pass(builder, radix, lanes, *arguments)

    def fourier_pass(parameters: int, lo: int, hi: int, scratch: int) -> None:
        given = Pass.read(parameters)
        run_pass(given.source, given.target, given.first, given.rest, given.stride, given.roots)

    name = f"fourier_pass_{radix}_{lanes.element_type}x{lanes.width}"
    return Codelet(fourier_pass, name, in_vectors=True)


def _emit_pass(
    builder: ir.IRBuilder,
    radix: int,
    lanes: FourierLanes,
    x: ir.Value,
    y: ir.Value,
    first: ir.Value,
    rest: ir.Value,
    stride: ir.Value,
    roots: ir.Value,
) -> None:
    """Emits the pass: without roots for p = 0, then with the roots of each p."""
    math, size = Arithmetic(builder, lanes, first), I64(2 * lanes.bytes)
    run = builder.mul(stride, size)  # the bytes of all q
    apart = builder.mul(rest, run)
    _columns(math, radix, (x, apart), (y, run), run, None)
    wide = builder.mul(run, I64(radix))
    start = [builder.add(x, run), builder.add(y, wide), roots]
    loop = EmittedLoop(builder, "roots", I64(1), rest, I64(1), start, may_be_empty=True)
    source, target, table = loop.carried
    item = 2 * ITEM_BYTES[lanes.element_type]
    factors = [math.root(builder.add(table, I64(item * j))) for j in range(radix - 1)]
    _columns(math, radix, (source, apart), (target, run), run, factors)
    loop.close([builder.add(source, run), builder.add(target, wide), builder.add(table, I64(item * (radix - 1)))])


def _columns(
    math: Arithmetic,
    radix: int,
    source: tuple[ir.Value, ir.Value],
    target: tuple[ir.Value, ir.Value],
    run: ir.Value,
    factors: list[Complex] | None,
) -> None:
    """Emits the butterflies of all q; source and target are the addresses of element 0, and the bytes to the next."""
    builder = math.builder
    loop = EmittedLoop(builder, "columns", I64(0), run, I64(2 * math.lanes.bytes))
    places = [[builder.add(start, loop.at)] for start, _ in (source, target)]
    for place, (_, apart) in zip(places, (source, target), strict=True):
        for _ in range(radix - 1):
            place.append(builder.add(place[-1], apart))
    made = _butterfly(math, [math.load(each) for each in places[0]])
    for number, (value, place) in enumerate(zip(made, places[1], strict=True)):
        rooted = value if factors is None or number == 0 else math.multiply(value, factors[number - 1])
        math.store(rooted, place)
    loop.close()
