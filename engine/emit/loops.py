"""Codelets, counted loops and branches in LLVM IR."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

from engine.codelets.language.lanes import I64, VOID, Lanes
from engine.codelets.language.loops import EmittedLoop
from engine.machine_code.abi import ARGUMENTS
from engine.machine_code.llvm import ir

Carried = list[ir.Value]
Range = tuple[ir.Value, ir.Value]
LaneBody = Callable[[ir.Value, int, ir.Value | None, Carried], Carried]
MOST_NESTED = 6
"""Most loops that are nested in one another. LLVM's time grows with the depth: 6 s for 18 loops, minutes for 24."""


def begun(name: str) -> ir.IRBuilder:
    """A builder in the one function of a module, a codelet of this name."""
    function = ir.Function(ir.Module(name), ir.FunctionType(VOID, [I64] * ARGUMENTS), name)
    return ir.IRBuilder(function.append_basic_block("entry"))


def word(value: int) -> ir.Constant:
    """An int64 constant."""
    return ir.Constant(I64, value)


def counted_loop(
    builder: ir.IRBuilder,
    start: ir.Value,
    stop: ir.Value,
    step: int,
    carried: Carried,
    body: Callable[[ir.Value, Carried], Carried],
) -> Carried:
    """for i in range(start, stop, step): carried = body(i, carried); the builder is left behind the loop."""
    loop = EmittedLoop(builder, "loop", start, stop, word(step), carried, may_be_empty=True)
    loop.close(body(loop.at, list(loop.carried)))
    return loop.carried


def last_lanes(lanes: Lanes, start: ir.Value, stop: ir.Value) -> ir.Value | None:
    """The mask of the elements of a range that fill no whole vector; None if vectors have one lane."""
    builder = lanes.builder
    return lanes.first(builder.and_(builder.sub(stop, start), word(lanes.width - 1))) if lanes.width > 1 else None


def lane_loop(
    lanes: Lanes,
    start: ir.Value,
    stop: ir.Value,
    mask: ir.Value | None,
    carried: Carried,
    body: LaneBody,
    together: tuple[int, ...] = (),
) -> Carried:
    """carried = body(index, vectors, mask, carried) over a range: whole vectors, then the remainder with its `mask`.

    `together` has numbers of vectors that are computed at a time while there are so many left.
    """
    builder, width = lanes.builder, lanes.width
    for count in (*together, 1):
        length = builder.and_(builder.sub(stop, start), word(-count * width))
        end = stop if count * width == 1 else builder.add(start, length)
        carried = counted_loop(builder, start, end, count * width, carried, partial(_unmasked, body, count))
        start = end
    return carried if width == 1 else if_less(builder, start, stop, carried, partial(body, start, 1, mask))


def _unmasked(body: LaneBody, count: int, index: ir.Value, carried: Carried) -> Carried:
    return body(index, count, None, carried)


def loops_of(dimensions: list[int]) -> list[tuple[int, ...]]:
    """Assigns the dimensions to at most MOST_NESTED loops; the first loop takes several where there are more."""
    outer = max(0, len(dimensions) - MOST_NESTED + 1)
    return [tuple(dimensions[:outer]), *((d,) for d in dimensions[outer:])] if outer > 1 else [(d,) for d in dimensions]


def joint_loop(
    builder: ir.IRBuilder, ranges: list[Range], carried: Carried, body: Callable[[Carried, Carried], Carried]
) -> Carried:
    """One loop over all indices of several ranges, the last one fastest: carried = body(indices, carried)."""
    if len(ranges) == 1:
        return counted_loop(builder, *ranges[0], 1, carried, lambda index, held: body([index], held))
    lengths = [builder.sub(stop, start) for start, stop in ranges]

    def at(count: ir.Value, held: Carried) -> Carried:
        indices: Carried = []
        for (start, _), length in zip(reversed(ranges), reversed(lengths), strict=True):
            indices.append(builder.add(start, builder.srem(count, length)))
            count = builder.sdiv(count, length)
        return body(indices[::-1], held)

    return counted_loop(builder, word(0), reduce(builder.mul, lengths), 1, carried, at)


def if_less(
    builder: ir.IRBuilder, a: ir.Value, b: ir.Value, carried: Carried, body: Callable[[Carried], Carried]
) -> Carried:
    """if a < b: carried = body(carried)."""
    return if_true(builder, builder.icmp_signed("<", a, b), carried, body)


def if_any(lanes: Lanes, mask: ir.Value, carried: Carried, body: Callable[[Carried], Carried]) -> Carried:
    """if mask is true in any lane: carried = body(carried)."""
    builder, bits = lanes.builder, ir.IntType(lanes.width)
    return if_true(
        builder, builder.icmp_unsigned("!=", builder.bitcast(mask, bits), ir.Constant(bits, 0)), carried, body
    )


def if_true(
    builder: ir.IRBuilder, condition: ir.Value, carried: Carried, body: Callable[[Carried], Carried]
) -> Carried:
    """if condition: carried = body(carried)."""
    before = builder.block
    then = builder.append_basic_block("then")
    after = builder.append_basic_block("after")
    builder.cbranch(condition, then, after)
    builder.position_at_end(then)
    results = body(carried)
    last = builder.block
    builder.branch(after)
    builder.position_at_end(after)
    joined = []
    for initial, result in zip(carried, results, strict=True):
        phi = builder.phi(initial.type)
        phi.add_incoming(initial, before)
        phi.add_incoming(result, last)
        joined.append(phi)
    return joined
