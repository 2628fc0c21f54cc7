"""convert and bitcast-convert in LLVM IR."""

from __future__ import annotations

from llvmlite import ir

from engine.emit.lanes import HALF, I16, REGISTER_TYPES, Lanes, intrinsic_suffix, is_float, is_signed
from engine.emit.registry import Operation, emitter


@emitter("convert")
def emit_convert(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """To another element type."""
    return convert(lanes, operands[0], op.operand_types[0], op.element_type)


def convert(lanes: Lanes, x: ir.Value, source: str, target: str) -> ir.Value:
    """Float to integer saturates and sends NaN to 0; to pred means "is not zero"."""
    builder, result = lanes.builder, lanes.type(target)
    if source == target:
        return x
    if target == "pred":
        zero = ir.Constant(x.type, None) if not is_float(source) else lanes.constant(source, 0)
        return builder.fcmp_unordered("!=", x, zero) if is_float(source) else builder.icmp_unsigned("!=", x, zero)
    if is_float(source) and is_float(target):
        return _convert_floats(lanes, x, target)
    if is_float(target):
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


def _convert_floats(lanes: Lanes, x: ir.Value, target: str) -> ir.Value:
    result = lanes.type(target)
    if x.type == result:
        return x
    if target == "f64":
        return lanes.builder.fpext(x, result)
    if target == "f16":
        # Straight from f64: going through f32 would round twice.
        return lanes.builder.fpext(lanes.builder.fptrunc(x, lanes.of(HALF)), result)
    return lanes.builder.fptrunc(x, result)


@emitter("bitcast-convert")
def emit_bitcast_convert(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Same width only: other widths change the shape and are no elementwise operation."""
    x, source, target = operands[0], op.operand_types[0], op.element_type
    if source in ("f16", "bf16"):
        x = lanes.to_memory(x, source)
        if source == "f16":
            x = lanes.builder.bitcast(x, lanes.of(I16))
    if target in ("f16", "bf16"):
        raw = lanes.builder.bitcast(x, lanes.of(HALF if target == "f16" else I16))
        return lanes.from_memory(raw, target)
    return lanes.builder.bitcast(x, lanes.type(target))


@emitter("reduce-precision")
def emit_reduce_precision(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Of f32 and narrower to the precision of f16 or bf16; anything else is refused before it comes here."""
    x, builder = operands[0], lanes.builder
    if (op["exponent_bits"], op["mantissa_bits"]) == (8, 7):
        return lanes.rounded(x, "bf16")
    # What f16 could only hold as a denormal becomes zero.
    tiny = builder.fcmp_ordered("<", lanes.intrinsic("fabs", x), lanes.constant("f32", 2.0**-14 - 2.0**-26))
    zero = lanes.intrinsic("copysign", lanes.constant("f32", 0), x)
    return builder.select(tiny, zero, lanes.rounded(x, "f16"))
