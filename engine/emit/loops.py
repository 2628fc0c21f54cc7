"""Counted loops and branches in LLVM IR."""

from __future__ import annotations

from collections.abc import Callable

from engine.emit.lanes import I64, Lanes
from engine.machine_code.llvm import ir

Carried = list[ir.Value]


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
    before = builder.block
    head = builder.append_basic_block("loop")
    after = builder.append_basic_block("after")
    builder.cbranch(builder.icmp_signed("<", start, stop), head, after)
    builder.position_at_end(head)
    index = builder.phi(I64)
    phis = [builder.phi(value.type) for value in carried]
    results = body(index, list(phis))
    following = builder.add(index, word(step))
    last = builder.block
    index.add_incoming(start, before)
    index.add_incoming(following, last)
    for phi, initial, result in zip(phis, carried, results, strict=True):
        phi.add_incoming(initial, before)
        phi.add_incoming(result, last)
    builder.cbranch(builder.icmp_signed("<", following, stop), head, after)
    builder.position_at_end(after)
    joined = []
    for initial, result in zip(carried, results, strict=True):
        phi = builder.phi(initial.type)
        phi.add_incoming(initial, before)
        phi.add_incoming(result, last)
        joined.append(phi)
    return joined


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
