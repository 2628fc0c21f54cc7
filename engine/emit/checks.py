"""Floating-point exceptions of a nest: detected as values arise, classified by their operands, counted for each node.

In the normal case a point costs one test of the few values through which every infinity and NaN must propagate. Only
after that test does the code determine which operation raised the exception: IEEE 754's invalid operation gives NaN
from operands that are not NaN; a division by zero and an overflow give infinity from finite ones. Propagated values
are no exceptions.
"""

from __future__ import annotations

from engine.codelets.language.lanes import I32, I64, Lanes, intrinsic_suffix, is_float
from engine.emit.loops import word
from engine.emit.point import Point, element_type_of
from engine.emit.registry import emit_operation
from engine.ir.floating_point import DIVISION_BY_ZERO, EXCEPTIONS, INVALID, LARGEST_HALF, OVERFLOW
from engine.ir.opcodes import OPCODES
from engine.machine_code.abi import Scratch
from engine.machine_code.llvm import ir
from engine.program.exception_counters import SUMMED, ExceptionCounters, is_limited, raises
from engine.program.nest import Apply, Nest, Operation

NAN, INFINITE = 0x3, 0x204
"""Classes of floats, in the bits of `llvm.is.fpclass`."""
Masks = dict[str, ir.Value]


class Checks:
    """Emits the checks of one nest; `record` is the address of its Record, `scratch` of the worker's scratch."""

    def __init__(self, nest: Nest, builder: ir.IRBuilder, record: ir.Value, scratch: ir.Value) -> None:
        self.nest, self.builder, self.record, self.scratch = nest, builder, record, scratch
        self._tested = _tested(nest)
        self._summed = [
            (number, reduction.values[0])
            for number, reduction in enumerate(nest.reductions)
            if reduction.combine in SUMMED and is_float(reduction.element_types[0])
        ]

    def point(self, point: Point) -> None:
        """Checks the values of a point, in the lanes of its mask. Called after they are computed."""
        lanes = point.lanes
        found = [self._non_finite(point, number) for number in self._tested if point.has(number)]
        for _, value in self._summed:
            if value not in self._tested:
                found.append(_is(lanes, point.value(value), NAN | INFINITE))
        if not found:
            return
        with self.builder.if_then(self._any(lanes, _either(self.builder, found), point.mask), likely=False):
            self._explain(point)

    def sum(self, number: int, lanes: Lanes, value: ir.Value, element_type: str, mask: ir.Value | None) -> None:
        """Checks a reduction's result: infinite or NaN although no value was. Called after the result is computed."""
        if number not in (summed for summed, _ in self._summed) or not is_float(element_type):
            return
        non_finite = _is(lanes, value, NAN | INFINITE)
        with self.builder.if_then(self._any(lanes, non_finite, mask), likely=False):
            nan_seen, infinity_seen = (self._was_seen(number, kind) for kind in range(2))
            builder, nan = self.builder, _is(lanes, value, NAN)
            none_seen = builder.not_(builder.or_(nan_seen, infinity_seen))
            invalid = builder.and_(infinity_seen, builder.not_(nan_seen))
            masks = {
                INVALID: builder.and_(nan, lanes.splat(invalid)),
                OVERFLOW: builder.and_(non_finite, lanes.splat(none_seen)),
            }
            self._count(lanes, masks, mask, ExceptionCounters.of_reduction(self.nest, number))

    def _non_finite(self, point: Point, number: int) -> ir.Value:
        """The lanes in which a node may have raised an exception."""
        node, lanes = self.nest.nodes[number], point.lanes
        if isinstance(node, Apply) and is_limited(node.operation):
            magnitude = lanes.intrinsic("fabs", point.value(node.operands[0]))
            limit = lanes.constant(node.operation.operand_types[0], LARGEST_HALF)
            return self.builder.fcmp_unordered(">", magnitude, limit)
        return _is(lanes, point.value(number), NAN | INFINITE)

    def _explain(self, point: Point) -> None:
        """Counts the exceptions of each node, and records the non-finite values that sums have read."""
        for number, node in enumerate(self.nest.nodes):
            if isinstance(node, Apply) and raises(node.operation) and point.has(number):
                self._count(
                    point.lanes, self._raised(point, number, node), point.mask, ExceptionCounters.of_node(number)
                )
        for number, value in self._summed:
            for kind, classes in enumerate((NAN, INFINITE)):
                lanes = point.lanes
                with self.builder.if_then(self._any(lanes, _is(lanes, point.value(value), classes), point.mask)):
                    self.builder.store(self._step(), self._word(ExceptionCounters.seen(self.nest, number, kind)))

    def _raised(self, point: Point, number: int, node: Apply) -> Masks:
        lanes, builder, operation = point.lanes, self.builder, node.operation
        operands = [point.value(operand) for operand in node.operands]
        floats = [o for o, t in zip(operands, operation.operand_types, strict=True) if is_float(t)]
        none = lanes.splat_constant(ir.IntType(1), 0)
        nan_before = _either(builder, [_is(lanes, o, NAN) for o in floats], none)
        non_finite_before = _either(builder, [_is(lanes, o, NAN | INFINITE) for o in floats], none)
        value = point.value(number)
        if is_limited(operation):
            attributes = {**dict(operation.attributes), "overflow": "infinity"}
            plain = Operation(
                *(operation.opcode, operation.element_type, operation.operand_types), tuple(sorted(attributes.items()))
            )
            value = emit_operation(lanes, plain, operands)
        infinite = builder.and_(_is(lanes, value, INFINITE), builder.not_(non_finite_before))
        invalid = builder.and_(_is(lanes, value, NAN), builder.not_(nan_before))
        zero = OPCODES[operation.opcode].pole
        if zero is None:
            return {INVALID: invalid, OVERFLOW: infinite}
        at, pole = zero
        constant = lanes.constant(operation.operand_types[at], pole)
        divided = builder.fcmp_ordered("==", operands[at], constant)
        return {
            INVALID: invalid,
            DIVISION_BY_ZERO: builder.and_(infinite, divided),
            OVERFLOW: builder.and_(infinite, builder.not_(divided)),
        }

    def _count(self, lanes: Lanes, masks: Masks, mask: ir.Value | None, first: int) -> None:
        """Adds to three counters, and requests the end of the call at the next step if there is anything to add."""
        wanted = {kind: found for kind, found in masks.items() if kind in self.nest.exceptions}
        if not wanted:
            return
        builder = self.builder
        with builder.if_then(self._any(lanes, _either(builder, list(wanted.values())), mask), likely=False):
            for kind, found in wanted.items():
                position = self._word(first + EXCEPTIONS.index(kind))
                builder.atomic_rmw("add", position, self._number(lanes, found, mask), "monotonic")
            stop = builder.load(self._word(ExceptionCounters.STOP))
            with builder.if_then(builder.icmp_unsigned("!=", stop, word(0))):
                builder.store_atomic(word(1), builder.inttoptr(stop, I64.as_pointer()), "release", 8)

    def _bits(self, lanes: Lanes, found: ir.Value, mask: ir.Value | None) -> ir.Value:
        """One bit for each lane, as an i64."""
        found = found if mask is None else self.builder.and_(found, mask)
        if lanes.width > 1:
            found = self.builder.bitcast(found, ir.IntType(lanes.width))
        return self.builder.zext(found, I64)

    def _any(self, lanes: Lanes, found: ir.Value, mask: ir.Value | None) -> ir.Value:
        return self.builder.icmp_unsigned("!=", self._bits(lanes, found, mask), word(0))

    def _number(self, lanes: Lanes, found: ir.Value, mask: ir.Value | None) -> ir.Value:
        return Lanes(self.builder, 1).intrinsic("ctpop", self._bits(lanes, found, mask))

    def _word(self, number: int) -> ir.Value:
        return self.builder.gep(self.builder.inttoptr(self.record, I64.as_pointer()), [word(number)])

    def _step(self) -> ir.Value:
        """The number of the step, from 1 on."""
        scratch = self.builder.inttoptr(self.scratch, I64.as_pointer())
        step = self.builder.load(self.builder.gep(scratch, [word(Scratch.STEP)]))
        return self.builder.add(step, word(1))

    def _was_seen(self, number: int, kind: int) -> ir.Value:
        seen = self.builder.load(self._word(ExceptionCounters.seen(self.nest, number, kind)))
        return self.builder.icmp_unsigned("==", seen, self._step())


def _tested(nest: Nest) -> list[int]:
    """The nodes to check, last ones first: nodes whose infinities and NaNs do not propagate to another checked node."""
    shown: set[int] = set()
    tested: list[int] = []
    for number in range(len(nest.nodes) - 1, -1, -1):
        node = nest.nodes[number]
        if not isinstance(node, Apply):
            continue
        if raises(node.operation) and number not in shown:
            tested.append(number)
            shown.add(number)
        if number in shown:
            forwarded = (0,) if is_limited(node.operation) else OPCODES[node.operation.opcode].propagates
            shown |= {
                node.operands[at]
                for at in forwarded
                if is_float(element_type_of(nest.nodes, node.operands[at], nest.accesses))
            }
    return tested


def _is(lanes: Lanes, value: ir.Value, classes: int) -> ir.Value:
    """The lanes whose float is of one of these classes."""
    name = f"llvm.is.fpclass.{intrinsic_suffix(value.type)}"
    return lanes.call(name, lanes.of(ir.IntType(1)), [value, ir.Constant(I32, classes)])


def _either(builder: ir.IRBuilder, masks: list[ir.Value], none: ir.Value | None = None) -> ir.Value:
    if not masks:
        assert none is not None
        return none
    found = masks[0]
    for mask in masks[1:]:
        found = builder.or_(found, mask)
    return found
