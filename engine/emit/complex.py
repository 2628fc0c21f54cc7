"""Arithmetic and functions of complex lanes in LLVM IR, in terms of real ones on real and imaginary parts."""

from __future__ import annotations

from collections.abc import Callable

from engine.codelets.language.lanes import PART_TYPES, Lanes, is_complex
from engine.emit.registry import complex_emitter, emit_operation, emitter
from engine.machine_code.llvm import ir
from engine.program.nest import Operation

Pair = tuple[ir.Value, ir.Value]


class ComplexParts:
    """Real arithmetic on the parts of complex lanes."""

    def __init__(self, lanes: Lanes, part: str) -> None:
        self.lanes, self.builder, self.part = lanes, lanes.builder, part

    def of(self, opcode: str, *operands: ir.Value) -> ir.Value:
        """A real operation that returns the type of its operands."""
        return emit_operation(self.lanes, Operation(opcode, self.part, (self.part,) * len(operands)), list(operands))

    def constant(self, value: float) -> ir.Constant:
        return self.lanes.constant(self.part, value)

    def magnitude(self, x: Pair) -> ir.Value:
        """|(a, b)| without intermediate overflow; infinite if either part is."""
        builder = self.builder
        a, b = (self.of("abs", v) for v in x)
        large, small = self.of("maximum", a, b), self.of("minimum", a, b)
        ratio = builder.fdiv(small, large)
        length = builder.fmul(large, self.of("sqrt", builder.fadd(self.constant(1), builder.fmul(ratio, ratio))))
        infinity = self.constant(float("inf"))
        length = builder.select(builder.fcmp_ordered("==", large, self.constant(0)), large, length)
        infinite = builder.or_(builder.fcmp_ordered("==", a, infinity), builder.fcmp_ordered("==", b, infinity))
        return builder.select(infinite, infinity, length)

    def multiply(self, x: Pair, y: Pair) -> Pair:
        builder, (a, b), (c, d) = self.builder, x, y
        real = builder.fsub(builder.fmul(a, c), builder.fmul(b, d))
        return real, builder.fadd(builder.fmul(a, d), builder.fmul(b, c))

    def divide(self, x: Pair, y: Pair) -> Pair:
        """Smith's method: divides by the divisor's larger part first, so that its square never overflows."""
        builder, (a, b), (c, d) = self.builder, x, y
        wide = builder.fcmp_ordered(">=", self.of("abs", c), self.of("abs", d))
        large, small = builder.select(wide, c, d), builder.select(wide, d, c)
        p, q = builder.select(wide, a, b), builder.select(wide, b, a)
        ratio = builder.fdiv(small, large)
        scale = builder.fadd(large, builder.fmul(small, ratio))
        real = builder.fdiv(builder.fadd(p, builder.fmul(q, ratio)), scale)
        rotated = builder.fdiv(builder.fsub(q, builder.fmul(p, ratio)), scale)
        imaginary = builder.select(wide, rotated, builder.fneg(rotated))
        zero = self.constant(0)
        by_zero = builder.and_(builder.fcmp_ordered("==", c, zero), builder.fcmp_ordered("==", d, zero))
        nothing = self.of("abs", c)
        return (
            builder.select(by_zero, builder.fdiv(a, nothing), real),
            builder.select(by_zero, builder.fdiv(b, nothing), imaginary),
        )

    def exponential(self, x: Pair) -> Pair:
        """e**x; real for a real number, also where the power is infinite."""
        builder, (a, b) = self.builder, x
        power = self.of("exponential", a)
        flat = builder.fcmp_ordered("==", b, self.constant(0))
        imaginary = builder.fmul(power, self.of("sine", b))
        return builder.fmul(power, self.of("cosine", b)), builder.select(flat, b, imaginary)

    def logarithm(self, x: Pair) -> Pair:
        """ln x; near the unit circle from |x|^2 - 1, because the log of the rounded magnitude has no correct digits."""
        builder = self.builder
        a, b = (self.of("abs", v) for v in x)
        large, small = self.of("maximum", a, b), self.of("minimum", a, b)
        one = self.constant(1)
        excess = builder.fmul(builder.fsub(large, one), builder.fadd(large, one))
        excess = builder.fadd(excess, builder.fmul(small, small))
        near = builder.and_(
            builder.fcmp_ordered(">", excess, self.constant(-0.5)), builder.fcmp_ordered("<", excess, one)
        )
        close = builder.fmul(self.constant(0.5), self.of("log-plus-one", excess))
        return builder.select(near, close, self.of("log", self.magnitude(x))), self.of("atan2", x[1], x[0])

    def square_root(self, x: Pair) -> Pair:
        """The root in the right half plane; a zero is unchanged."""
        builder, (a, b) = self.builder, x
        half, zero = self.constant(0.5), self.constant(0)
        long = builder.fadd(builder.fmul(half, self.of("abs", a)), builder.fmul(half, self.magnitude(x)))
        root = self.of("sqrt", long)
        other = builder.fdiv(self.of("abs", b), builder.fadd(root, root))
        right = builder.fcmp_ordered(">=", a, zero)
        real, imaginary = builder.select(right, root, other), builder.select(right, other, root)
        is_zero = builder.fcmp_ordered("==", root, zero)
        signed = self.lanes.intrinsic("copysign", imaginary, b)
        return builder.select(is_zero, zero, real), builder.select(is_zero, b, signed)

    def hyperbolic(self, x: ir.Value) -> Pair:
        """sinh and cosh of a real number."""
        builder, half = self.builder, self.constant(0.5)
        less_one = self.of("exponential-minus-one", self.of("abs", x))
        power = builder.fadd(less_one, self.constant(1))
        infinite = builder.fcmp_ordered("==", power, self.constant(float("inf")))
        rest = builder.select(infinite, self.constant(1), builder.fdiv(less_one, power))
        sinh = self.lanes.intrinsic("copysign", builder.fmul(half, builder.fadd(less_one, rest)), x)
        return sinh, builder.fmul(half, builder.fadd(power, builder.fdiv(self.constant(1), power)))

    def hyperbolic_tangent(self, x: Pair) -> Pair:
        """(tanh a + i tan b) / (1 + i tanh a tan b)."""
        builder, one = self.builder, self.constant(1)
        t, u = self.of("tanh", x[0]), self.of("tan", x[1])
        square = builder.fmul(u, u)
        scale = builder.fadd(one, builder.fmul(builder.fmul(t, t), square))
        real = builder.fdiv(builder.fmul(t, builder.fadd(one, square)), scale)
        rest = builder.fmul(builder.fsub(one, t), builder.fadd(one, t))
        return real, builder.fdiv(builder.fmul(u, rest), scale)

    def power(self, x: Pair, y: Pair) -> Pair:
        """exp(y log x); for x = 0 it is 0, or 1 with exponent zero."""
        builder, zero = self.builder, self.constant(0)
        real, imaginary = self.exponential(self.multiply(y, self.logarithm(x)))
        base_zero, exponent_zero = (
            builder.and_(*(builder.fcmp_ordered("==", part, zero) for part in value)) for value in (x, y)
        )
        real = builder.select(base_zero, builder.select(exponent_zero, self.constant(1), zero), real)
        return real, builder.select(base_zero, zero, imaginary)


def _negated(parts: ComplexParts, x: Pair) -> Pair:
    return parts.builder.fneg(x[0]), parts.builder.fneg(x[1])


def _one(parts: ComplexParts) -> Pair:
    return parts.constant(1), parts.constant(0)


def _sine(parts: ComplexParts, x: Pair) -> Pair:
    sinh, cosh = parts.hyperbolic(x[1])
    return parts.builder.fmul(parts.of("sine", x[0]), cosh), parts.builder.fmul(parts.of("cosine", x[0]), sinh)


def _cosine(parts: ComplexParts, x: Pair) -> Pair:
    sinh, cosh = parts.hyperbolic(x[1])
    imaginary = parts.builder.fneg(parts.builder.fmul(parts.of("sine", x[0]), sinh))
    return parts.builder.fmul(parts.of("cosine", x[0]), cosh), imaginary


def _tangent(parts: ComplexParts, x: Pair) -> Pair:
    """-i tanh(i x)."""
    real, imaginary = parts.hyperbolic_tangent((parts.builder.fneg(x[1]), x[0]))
    return imaginary, parts.builder.fneg(real)


def _exponential_minus_one(parts: ComplexParts, x: Pair) -> Pair:
    builder, (a, b) = parts.builder, x
    half = parts.of("sine", builder.fmul(parts.constant(0.5), b))
    less = builder.fmul(parts.constant(2), builder.fmul(half, half))
    real = builder.fsub(builder.fmul(parts.of("exponential-minus-one", a), parts.of("cosine", b)), less)
    return real, parts.exponential(x)[1]


def _log_plus_one(parts: ComplexParts, x: Pair) -> Pair:
    builder, (a, b) = parts.builder, x
    raised = builder.fadd(parts.constant(1), a)
    excess = builder.fadd(builder.fmul(a, builder.fadd(a, parts.constant(2))), builder.fmul(b, b))
    small = builder.fcmp_ordered("<", parts.of("abs", excess), parts.constant(0.5))
    close = builder.fmul(parts.constant(0.5), parts.of("log-plus-one", excess))
    far, angle = parts.logarithm((raised, b))
    return builder.select(small, close, far), angle


def _logistic(parts: ComplexParts, x: Pair) -> Pair:
    real, imaginary = parts.exponential(_negated(parts, x))
    return parts.divide(_one(parts), (parts.builder.fadd(parts.constant(1), real), imaginary))


def _cube_root(parts: ComplexParts, x: Pair) -> Pair:
    return parts.power(x, (parts.constant(1 / 3), parts.constant(0)))


def _sign(parts: ComplexParts, x: Pair) -> Pair:
    """x / |x|; 0 for 0."""
    builder, length, zero = parts.builder, parts.magnitude(x), parts.constant(0)
    is_zero = builder.fcmp_ordered("==", length, zero)
    real, imaginary = (builder.select(is_zero, zero, builder.fdiv(part, length)) for part in x)
    return real, imaginary


FUNCTIONS: dict[str, Callable[..., Pair]] = {
    "multiply": ComplexParts.multiply,
    "divide": ComplexParts.divide,
    "power": ComplexParts.power,
    "exponential": ComplexParts.exponential,
    "exponential-minus-one": _exponential_minus_one,
    "log": ComplexParts.logarithm,
    "log-plus-one": _log_plus_one,
    "sqrt": ComplexParts.square_root,
    "rsqrt": lambda parts, x: parts.divide(_one(parts), parts.square_root(x)),
    "cbrt": _cube_root,
    "sine": _sine,
    "cosine": _cosine,
    "tan": _tangent,
    "tanh": ComplexParts.hyperbolic_tangent,
    "logistic": _logistic,
    "sign": _sign,
}


@complex_emitter(*FUNCTIONS)
def emit_function(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Emits functions for which each part of the result depends on both parts of the operands."""
    parts = ComplexParts(lanes, PART_TYPES[op.element_type])
    return lanes.paired(*FUNCTIONS[op.opcode](parts, *(lanes.parts(x) for x in operands)))


@complex_emitter("abs")
def emit_magnitude(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """The magnitude, which is real."""
    return ComplexParts(lanes, op.element_type).magnitude(lanes.parts(operands[0]))


@complex_emitter("compare")
def emit_equality(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Compares for equality only: complex numbers have no order."""
    builder = lanes.builder
    (a, b), (c, d) = (lanes.parts(x) for x in operands)
    equal = builder.and_(builder.fcmp_ordered("==", a, c), builder.fcmp_ordered("==", b, d))
    return equal if op["direction"] == "EQ" else builder.not_(equal)


@emitter("real", "imag")
@complex_emitter("real", "imag")
def emit_part(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """The real or imaginary part; a real number has the imaginary part 0."""
    if is_complex(op.operand_types[0]):
        return lanes.parts(operands[0])[0 if op.opcode == "real" else 1]
    return operands[0] if op.opcode == "real" else lanes.constant(op.element_type, 0)


@emitter("complex")
@complex_emitter("complex")
def emit_complex(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """A complex number of a real and an imaginary part."""
    return lanes.paired(*operands)
