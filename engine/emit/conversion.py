"""convert, bitcast-convert and reduce-precision in LLVM IR."""

from __future__ import annotations

from engine.codelets.language.lanes import (
    F32,
    HALF,
    HALF_TYPES,
    I1,
    I16,
    I64,
    ITEM_BYTES,
    MEMORY_TYPES,
    PART_TYPES,
    REGISTER_TYPES,
    Lanes,
    intrinsic_suffix,
    is_complex,
    is_float,
    is_signed,
)
from engine.emit.registry import complex_emitter, emitter
from engine.emit.rounding import limited
from engine.machine_code.llvm import ir
from engine.program.nest import Operation


@emitter("convert")
@complex_emitter("convert")
def emit_convert(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Converts to another element type; `overflow` says how finite floats beyond the range of f16 are replaced."""
    x, source = operands[0], op.operand_types[0]
    overflow = dict(op.attributes).get("overflow")
    if overflow is not None:
        x = limited(lanes, x, source, str(overflow))
    return convert(lanes, x, source, op.element_type)


def convert(lanes: Lanes, x: ir.Value, source: str, target: str) -> ir.Value:
    """Converts lanes: float to integer saturates, with NaN as 0; conversion to pred tests for "is not zero"."""
    builder, result = lanes.builder, lanes.type(target)
    if source == target:
        return x
    if is_complex(source) or is_complex(target):
        return _convert_complex(lanes, x, source, target)
    if target == "pred":
        zero = ir.Constant(x.type, None) if not is_float(source) else lanes.constant(source, 0)
        return builder.fcmp_unordered("!=", x, zero) if is_float(source) else builder.icmp_unsigned("!=", x, zero)
    if is_float(source) and is_float(target):
        return _convert_floats(lanes, x, target)
    if is_float(target):
        if target == "bf16" and REGISTER_TYPES[source].width > MANTISSA_BITS["f32"]:
            return builder.fptrunc(_with_last_bit_odd(lanes, _wide_to_double(lanes, x, source)), result)
        return (builder.sitofp if is_signed(source) else builder.uitofp)(x, result)
    if is_float(source):
        name = "fptosi" if is_signed(target) else "fptoui"
        return lanes.call(f"llvm.{name}.sat.{intrinsic_suffix(result)}.{intrinsic_suffix(x.type)}", result, [x])
    have, want = REGISTER_TYPES[source].width, REGISTER_TYPES[target].width
    if have == want:
        return x
    if have > want:
        return builder.trunc(x, result)
    return (builder.sext if is_signed(source) else builder.zext)(x, result)


def _convert_complex(lanes: Lanes, x: ir.Value, source: str, target: str) -> ir.Value:
    """Converts a real number to one with imaginary part 0, and a complex one to its real part in a real type."""
    part = PART_TYPES.get(target, target)
    if not is_complex(source):
        return lanes.paired(convert(lanes, x, source, part), lanes.constant(part, 0))
    real, imaginary = (convert(lanes, value, PART_TYPES[source], part) for value in lanes.parts(x))
    if target == "pred":
        return lanes.builder.or_(real, imaginary)
    return lanes.paired(real, imaginary) if is_complex(target) else real


def _convert_floats(lanes: Lanes, x: ir.Value, target: str) -> ir.Value:
    result = lanes.type(target)
    if x.type == result:
        return x
    if target == "f64":
        return lanes.builder.fpext(x, result)
    if target == "f16":
        if x.type == lanes.type("f64"):  # few processors convert directly; for others LLVM calls a missing function
            x = lanes.builder.fptrunc(_with_last_bit_odd(lanes, x), lanes.of(F32))
        return lanes.builder.fpext(lanes.builder.fptrunc(x, lanes.of(HALF)), result)
    return lanes.builder.fptrunc(_with_last_bit_odd(lanes, x) if target == "bf16" else x, result)


def _with_last_bit_odd(lanes: Lanes, x: ir.Value) -> ir.Value:
    """Cuts an f64 to 16 bits of mantissa, with the last one set if bits were lost: a second rounding finds no tie."""
    cut = _cut_off(lanes, lanes.builder.bitcast(x, lanes.of(I64)), MANTISSA_BITS["f64"] - 15)
    return lanes.builder.bitcast(cut, x.type)


def _wide_to_double(lanes: Lanes, x: ir.Value, source: str) -> ir.Value:
    """Converts an integer to f64 without rounding: beyond 53 bits, the last bit kept is set if bits were cut off."""
    builder = lanes.builder
    if REGISTER_TYPES[source].width == 64:
        size = lanes.call(f"llvm.abs.{intrinsic_suffix(x.type)}", x.type, [x, ir.Constant(I1, 0)])
        size = size if is_signed(source) else x
        exact = builder.icmp_unsigned("<=", size, lanes.splat_constant(I64, 1 << 53))
        x = builder.select(exact, x, _cut_off(lanes, x, 64 - 53))
    return (builder.sitofp if is_signed(source) else builder.uitofp)(x, lanes.type("f64"))


def _cut_off(lanes: Lanes, bits: ir.Value, count: int) -> ir.Value:
    """Clears the last `count` bits of an i64, and sets the next one if any of them was set."""
    builder = lanes.builder
    rest = builder.and_(bits, lanes.splat_constant(I64, (1 << count) - 1))
    some = builder.icmp_unsigned("!=", rest, lanes.splat_constant(I64, 0))
    kept = builder.and_(bits, lanes.splat_constant(I64, -(1 << count)))
    return builder.or_(kept, builder.select(some, lanes.splat_constant(I64, 1 << count), lanes.splat_constant(I64, 0)))


@emitter("bitcast-convert")
def emit_bitcast_convert(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Reinterprets bits in a type of the same width; other widths change the shape and are not elementwise."""
    x, source, target = operands[0], op.operand_types[0], op.element_type
    if source in HALF_TYPES:
        x = lanes.to_memory(x, source)
    if target in HALF_TYPES:
        return lanes.from_memory(lanes.builder.bitcast(x, lanes.of(I16)), target)
    return lanes.builder.bitcast(x, lanes.type(target))


MANTISSA_BITS = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


@emitter("reduce-precision")
def emit_reduce_precision(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Rounds on the bits, as XLA does: mantissa to nearest even, then infinity or zero outside the exponent range."""
    kind, x = op.element_type, operands[0]
    integer = ir.IntType(8 * ITEM_BYTES[kind])
    bits = lanes.builder.bitcast(lanes.to_memory(x, kind), lanes.of(integer))
    exponent_bits, mantissa_bits = int(str(op["exponent_bits"])), int(str(op["mantissa_bits"]))
    kept = _with_mantissa(lanes, integer, bits, MANTISSA_BITS[kind] - mantissa_bits)
    kept = _within_exponents(lanes, integer, kept, MANTISSA_BITS[kind], exponent_bits)
    result = lanes.from_memory(lanes.builder.bitcast(kept, lanes.of(MEMORY_TYPES[kind])), kind)
    # Without a mantissa there is no NaN.
    infinity = lanes.intrinsic("copysign", lanes.constant(kind, float("inf")), x)
    return lanes.builder.select(lanes.builder.fcmp_unordered("uno", x, x), x if mantissa_bits else infinity, result)


def _with_mantissa(lanes: Lanes, integer: ir.IntType, bits: ir.Value, dropped: int) -> ir.Value:
    if dropped <= 0:
        return bits
    builder = lanes.builder
    last = builder.lshr(bits, lanes.splat_constant(integer, dropped))
    odd = builder.and_(last, lanes.splat_constant(integer, 1))
    bias = builder.add(odd, lanes.splat_constant(integer, (1 << (dropped - 1)) - 1))
    return builder.and_(builder.add(bits, bias), lanes.splat_constant(integer, -(1 << dropped)))


def _within_exponents(
    lanes: Lanes, integer: ir.IntType, bits: ir.Value, mantissa_bits: int, exponent_bits: int
) -> ir.Value:
    have = integer.width - 1 - mantissa_bits
    if exponent_bits >= have:
        return bits
    builder = lanes.builder
    bias, reduced = (1 << (have - 1)) - 1, (1 << (exponent_bits - 1)) - 1
    sign = builder.and_(bits, lanes.splat_constant(integer, -(1 << (integer.width - 1))))
    all_ones = ((1 << have) - 1) << mantissa_bits
    exponent = builder.and_(bits, lanes.splat_constant(integer, all_ones))
    highest, lowest = (lanes.splat_constant(integer, e << mantissa_bits) for e in (bias + reduced, bias - reduced))
    infinity = builder.or_(sign, lanes.splat_constant(integer, all_ones))
    bits = builder.select(builder.icmp_unsigned(">", exponent, highest), infinity, bits)
    return builder.select(builder.icmp_unsigned("<=", exponent, lowest), sign, bits)
