"""Arithmetic, logic, comparison and selection in LLVM IR, with HLO's rules for NaN, overflow and zero."""

from __future__ import annotations

from engine.codelets.language.lanes import F32, F64, I64, REGISTER_TYPES, Lanes, is_complex, is_float, is_signed
from engine.emit import estimates
from engine.emit.loops import if_any
from engine.emit.registry import complex_emitter, emitter, numbers_in
from engine.ir.floating_point import EXPONENTS
from engine.machine_code.llvm import ir
from engine.program.nest import Operation

BITS = 48
"""Bits of a quotient computed at a time. The quotient of two f32 is below 2**277."""
ABOVE_ALL = 2.0**400


def remainder(lanes: Lanes, x: ir.Value, y: ir.Value) -> ir.Value:
    """x - trunc(x / y) y, with the sign of x; NaN for infinite x and for y = 0."""
    builder, wide = lanes.builder, lanes.of(F64)
    a, b = (lanes.intrinsic("fabs", builder.fpext(each, wide)) for each in (x, y))
    infinity = lanes.constant("f64", float("inf"))
    b = builder.select(builder.fcmp_ordered("==", b, infinity), lanes.constant("f64", ABOVE_ALL), b)
    huge = builder.fcmp_ordered(">=", a, builder.fmul(b, lanes.constant("f64", 2.0**BITS)))
    (a,) = if_any(lanes, huge, [a], lambda held: [_reduced(lanes, held[0], b)])
    return lanes.intrinsic("copysign", builder.fptrunc(_step(lanes, a, b), lanes.of(F32)), x)


def _reduced(lanes: Lanes, a: ir.Value, b: ir.Value) -> ir.Value:
    """The remainder of a by 2**BITS b: the rare case is a function of the module, which LLVM compiles once."""
    module, name = lanes.builder.module, f"reduced_{lanes.width}"
    if name not in module.globals:
        function = ir.Function(module, ir.FunctionType(a.type, [a.type, b.type]), name)
        function.linkage = "internal"
        function.attributes.update(("cold", "noinline", "nounwind"))
        inside = Lanes(ir.IRBuilder(function.append_basic_block("entry")), lanes.width)
        rest, divisor = function.args
        for bits in range(5 * BITS, 0, -BITS):
            rest = _step(inside, rest, inside.builder.fmul(divisor, lanes.constant("f64", 2.0**bits)))
        inside.builder.ret(rest)
    return lanes.builder.call(module.globals[name], [a, b])


def _step(lanes: Lanes, a: ir.Value, b: ir.Value) -> ir.Value:
    """The remainder of a by b for a quotient below 2**48, corrected where the rounded quotient is one too large."""
    builder = lanes.builder
    whole = lanes.intrinsic("trunc", builder.fdiv(a, b))
    rest = lanes.intrinsic("fma", builder.fneg(whole), b, a)
    below = builder.fcmp_ordered("<", rest, lanes.constant("f64", 0.0))
    return builder.select(below, builder.fadd(rest, b), rest)


FLOAT_NAMES = {"add": "fadd", "subtract": "fsub", "multiply": "fmul", "divide": "fdiv"}
INTEGER_NAMES = {"add": "add", "subtract": "sub", "multiply": "mul"}


@emitter("add", "subtract", "multiply")
@complex_emitter("add", "subtract")
def emit_arithmetic(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """add, subtract, multiply; integers wrap around."""
    if op.element_type == "pred":
        # XLA's add and multiply of pred are or and and.
        return (lanes.builder.or_ if op.opcode == "add" else lanes.builder.and_)(*operands)
    has_floats = is_float(op.element_type) or is_complex(op.element_type)
    names = FLOAT_NAMES if has_floats else INTEGER_NAMES
    return getattr(lanes.builder, names[op.opcode])(*operands)


def _guarded_integers(lanes: Lanes, op: Operation, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """A safe divisor, and the masks of division by zero and of the one overflow (lowest / -1)."""
    builder, kind = lanes.builder, REGISTER_TYPES[op.element_type]
    zero, one = lanes.splat_constant(kind, 0), lanes.splat_constant(kind, 1)
    by_zero = builder.icmp_unsigned("==", y, zero)
    overflow = lanes.splat_constant(ir.IntType(1), 0)
    if is_signed(op.element_type):
        lowest = lanes.splat_constant(kind, -(1 << (kind.width - 1)))
        minus_one = lanes.splat_constant(kind, -1)
        overflow = builder.and_(builder.icmp_signed("==", x, lowest), builder.icmp_signed("==", y, minus_one))
    return builder.select(builder.or_(by_zero, overflow), one, y), by_zero, overflow


@emitter("divide")
def emit_divide(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Integer division truncates; by zero it gives -1 (all ones), and lowest / -1 gives lowest."""
    if op.is_estimated:
        return estimates.guarded_quotient(lanes, *operands)
    if is_float(op.element_type):
        return lanes.builder.fdiv(*operands)
    x, y = operands
    safe, by_zero, _ = _guarded_integers(lanes, op, x, y)
    divide = lanes.builder.sdiv if is_signed(op.element_type) else lanes.builder.udiv
    ones = lanes.splat_constant(REGISTER_TYPES[op.element_type], -1)
    return lanes.builder.select(by_zero, ones, divide(x, safe))


@emitter("remainder")
def emit_remainder(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """The sign is the dividend's; remainder by zero is the dividend for integers and NaN for floats."""
    x, y = operands
    if is_float(op.element_type):
        return lanes.each_lane("fmod", F64, [x, y]) if op.element_type == "f64" else remainder(lanes, x, y)
    safe, by_zero, overflow = _guarded_integers(lanes, op, x, y)
    rest = (lanes.builder.srem if is_signed(op.element_type) else lanes.builder.urem)(x, safe)
    zero = lanes.splat_constant(REGISTER_TYPES[op.element_type], 0)
    return lanes.builder.select(by_zero, x, lanes.builder.select(overflow, zero, rest))


@emitter("maximum", "minimum")
def emit_extremum(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Minimum or maximum; a NaN on either side is the result."""
    x, y = operands
    builder, sign = lanes.builder, ">" if op.opcode == "maximum" else "<"
    if op.element_type == "pred":
        return (builder.or_ if op.opcode == "maximum" else builder.and_)(x, y)
    if not is_float(op.element_type):
        compare = builder.icmp_signed if is_signed(op.element_type) else builder.icmp_unsigned
        return builder.select(compare(sign, x, y), x, y)
    if isinstance(y, ir.Constant) and not _has_nan(y):
        return builder.select(builder.fcmp_unordered(sign, x, y), x, y)
    if isinstance(x, ir.Constant) and not _has_nan(x):
        return builder.select(builder.fcmp_unordered(sign, y, x), y, x)
    first = builder.or_(builder.fcmp_ordered(sign, x, y), builder.fcmp_unordered("uno", x, x))
    return builder.select(first, x, y)


@emitter("maximum-number")
def emit_maximum_number(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """The greater operand, or the first of equal ones; a number wins over NaN."""
    x, y = operands
    first = lanes.builder.or_(lanes.builder.fcmp_ordered(">=", x, y), lanes.builder.fcmp_unordered("uno", y, y))
    return lanes.builder.select(first, x, y)


def _has_nan(constant: ir.Constant) -> bool:
    return any(not isinstance(n, int | float) or n != n for n in numbers_in(constant))


BITWISE = {"and": "and_", "or": "or_", "xor": "xor", "not": "not_"}


@emitter(*BITWISE)
def emit_bitwise(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Operates bit by bit, and logically on pred."""
    return getattr(lanes.builder, BITWISE[op.opcode])(*operands)


@emitter("shift-left", "shift-right-arithmetic", "shift-right-logical")
def emit_shift(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """A shift by the width or more gives zero, or the sign bit everywhere if it is arithmetic."""
    x, y = operands
    builder, kind = lanes.builder, REGISTER_TYPES[op.element_type]
    inside = builder.icmp_unsigned("<", y, lanes.splat_constant(kind, kind.width))
    if op.opcode == "shift-right-arithmetic":
        return builder.ashr(x, builder.select(inside, y, lanes.splat_constant(kind, kind.width - 1)))
    safe = builder.select(inside, y, lanes.splat_constant(kind, 0))
    shifted = (builder.shl if op.opcode == "shift-left" else builder.lshr)(x, safe)
    return builder.select(inside, shifted, lanes.splat_constant(kind, 0))


@emitter("negate")
@complex_emitter("negate")
def emit_negate(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """-x; the lowest integer is unchanged."""
    has_floats = is_float(op.element_type) or is_complex(op.element_type)
    return (lanes.builder.fneg if has_floats else lanes.builder.neg)(operands[0])


@emitter("abs")
def emit_abs(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """|x|; the lowest integer is unchanged."""
    x = operands[0]
    if is_float(op.element_type):
        return lanes.intrinsic("fabs", x)
    if not is_signed(op.element_type):
        return x
    builder = lanes.builder
    return builder.select(builder.icmp_signed("<", x, ir.Constant(x.type, None)), builder.neg(x), x)


@emitter("sign")
def emit_sign(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """-1, 0 or 1; NaN, 0 and -0 are unchanged."""
    x, builder = operands[0], lanes.builder
    if is_float(op.element_type):
        one = lanes.constant(op.element_type, 1)
        ordinary = builder.fcmp_ordered("!=", x, lanes.constant(op.element_type, 0))
        return builder.select(ordinary, lanes.intrinsic("copysign", one, x), x)
    kind = REGISTER_TYPES[op.element_type]
    zero, one, minus = (lanes.splat_constant(kind, v) for v in (0, 1, -1))
    positive = builder.icmp_unsigned("!=", x, zero)
    result = builder.select(positive, one, zero)
    if is_signed(op.element_type):
        result = builder.select(builder.icmp_signed("<", x, zero), minus, result)
    return result


@emitter("compare")
def emit_compare(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Comparisons with NaN are false but for "not equal", except in the total order."""
    sign = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}[str(op["direction"])]
    kind, builder = op.operand_types[0], lanes.builder
    if is_float(kind):
        if dict(op.attributes).get("comparison_type") == "TOTALORDER":
            return _compare_total_order(lanes, kind, sign, operands)
        compare = builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered
        return compare(sign, *operands)
    compare = builder.icmp_signed if is_signed(kind) else builder.icmp_unsigned
    return compare(sign, *operands)


def _compare_total_order(lanes: Lanes, kind: str, sign: str, operands: list[ir.Value]) -> ir.Value:
    """-NaN < -Inf < ... < -0 < 0 < ... < Inf < NaN, as integers whose negative half is reversed."""
    # 16-bit floats are f32 in registers, in the same order.
    bits = 64 if kind == "f64" else 32
    integer = lanes.of(ir.IntType(bits))

    def key(value: ir.Value) -> ir.Value:
        raw = lanes.builder.bitcast(value, integer)
        negative = lanes.builder.ashr(raw, lanes.splat_constant(ir.IntType(bits), bits - 1))
        mask = lanes.builder.lshr(negative, lanes.splat_constant(ir.IntType(bits), 1))
        return lanes.builder.xor(raw, mask)

    return lanes.builder.icmp_signed(sign, key(operands[0]), key(operands[1]))


@emitter("select")
@complex_emitter("select")
def emit_select(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """The second operand where the first is true, else the third."""
    return lanes.select(*operands)


@emitter("clamp")
def emit_clamp(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """min(max(low, x), high); NaN if any operand is NaN."""
    low, x, high = operands
    kinds = (op.element_type, op.element_type)
    raised = emit_extremum(lanes, Operation("maximum", op.element_type, kinds), [x, low])
    return emit_extremum(lanes, Operation("minimum", op.element_type, kinds), [raised, high])


@emitter("is-finite")
def emit_is_finite(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """True where a value is neither infinite nor NaN."""
    magnitude = lanes.intrinsic("fabs", operands[0])
    return lanes.builder.fcmp_ordered("<", magnitude, lanes.constant(op.operand_types[0], float("inf")))


def is_finite_16(lanes: Lanes, bits: ir.Value, element_type: str) -> ir.Value:
    """Tests the exponent bits of 16-bit floats as they are in memory: true where a value is finite."""
    ones = lanes.constant("u16", EXPONENTS[element_type])
    return lanes.builder.icmp_unsigned("!=", lanes.builder.and_(bits, ones), ones)


@emitter("count-leading-zeros")
def emit_count_leading_zeros(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """The number of leading zero bits; the width for 0."""
    return lanes.intrinsic("ctlz", operands[0], ir.Constant(ir.IntType(1), 0))


@emitter("copy")
@complex_emitter("copy")
def emit_copy(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """The operand itself."""
    return operands[0]


def lane_index(lanes: Lanes, start: ir.Value, step: ir.Value) -> ir.Value:
    """start, start + step, ... as i64 lanes."""
    return lanes.builder.add(lanes.splat(start), lanes.builder.mul(lanes.lane_numbers(I64), lanes.splat(step)))
