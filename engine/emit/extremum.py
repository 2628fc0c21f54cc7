"""Reductions to the greatest or least value and its first position, as argmax and argmin are traced, in lanes.

Bodies of other reductions take their values in order. This one may take them in any order, because positions decide
between equal values. Only NaN makes the order matter: it replaces all values before it, and the value after it replaces
it. A vector with a NaN, which is rare, therefore resets the accumulators.
"""

from __future__ import annotations

from engine.codelets.language.lanes import I32, Lanes, is_float, is_signed
from engine.emit.loops import Carried, if_any
from engine.emit.reduce import apply_body, halves
from engine.machine_code.llvm import ir
from engine.program.nest import Apply, Argument, Body, Node, Reduction

SIGNS = {"GE": ">", "LE": "<"}


def sign_of(reduction: Reduction) -> str | None:
    """ ">" or "<" for a reduction to the greatest or least value and its first position, None for others."""
    body = reduction.combine
    if not isinstance(body, Body) or len(body.results) != 2 or reduction.element_types[1][0] not in "su":
        return None
    value, position = (_expression(body.nodes, result) for result in body.results)
    for direction, sign in SIGNS.items():
        keeps, ties = (("compare", each, 0, 2) for each in (direction, "EQ"))
        kept = ("select", keeps, 1, 3)
        if value == ("select", keeps, 0, 2) and position == ("select", ties, ("minimum", 1, 3), kept):
            return sign
    return None


def _expression(nodes: tuple[Node, ...], number: int) -> object:
    """Writes a node as nested tuples of opcodes and directions, with the numbers of the body's arguments as leaves."""
    node = nodes[number]
    if isinstance(node, Argument):
        return node.number
    if not isinstance(node, Apply):
        return None
    direction = dict(node.operation.attributes).get("direction")
    head = (node.operation.opcode, *(() if direction is None else (direction,)))
    return (*head, *(_expression(nodes, operand) for operand in node.operands))


def take(lanes: Lanes, reduction: Reduction, held: Carried, values: Carried, mask: ir.Value | None) -> Carried:
    """Updates the accumulators with the values in the lanes of the mask."""
    assert isinstance(reduction.combine, Body)
    body, builder = reduction.combine, lanes.builder
    results = apply_body(lanes, body, held + values)
    if mask is not None:
        results = [builder.select(mask, new, old) for new, old in zip(results, held, strict=True)]
    if not is_float(reduction.element_types[0]):
        return results
    nan = builder.fcmp_unordered("uno", values[0], values[0])
    nan = nan if mask is None else builder.and_(nan, mask)
    return if_any(lanes, nan, results, lambda _: _after_the_last(lanes, nan, values, mask))


def _after_the_last(lanes: Lanes, nan: ir.Value, values: Carried, mask: ir.Value | None) -> Carried:
    """Resets accumulators at a NaN: lanes after the vector's last NaN take their values, other lanes take that NaN."""
    builder = lanes.builder
    bits = builder.zext(builder.bitcast(nan, ir.IntType(lanes.width)), I32)
    last = builder.sub(I32(31), lanes.intrinsic("ctlz", bits, ir.Constant(ir.IntType(1), 0)))
    later = builder.icmp_unsigned(">", lanes.lane_numbers(I32), lanes.splat(last))
    later = later if mask is None else builder.and_(later, mask)
    return [builder.select(later, each, lanes.splat(builder.extract_element(each, last))) for each in values]


def first_of(lanes: Lanes, reduction: Reduction, held: Carried) -> Carried:
    """Combines the accumulators of all lanes into one; a lane that is still NaN has taken no value since."""
    builder, count, sign = lanes.builder, lanes.width, sign_of(reduction)
    value_type, position_type = reduction.element_types
    earlier = builder.icmp_signed if is_signed(position_type) else builder.icmp_unsigned
    while count > 1:
        parts = list(zip(*(halves(lanes, each, count) for each in held), strict=True))
        (value, position), (other, other_position) = parts
        if is_float(value_type):
            more, same = builder.fcmp_ordered(sign, value, other), builder.fcmp_ordered("==", value, other)
            more = builder.or_(more, builder.fcmp_unordered("uno", other, other))
        else:
            compare = builder.icmp_signed if is_signed(value_type) else builder.icmp_unsigned
            more, same = compare(sign, value, other), compare("==", value, other)
        keep = builder.or_(more, builder.and_(same, earlier("<", position, other_position)))
        held = [builder.select(keep, mine, its) for mine, its in zip(*parts, strict=True)]
        count //= 2
    return held
