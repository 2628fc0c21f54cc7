"""Training steps of several layers, whose memory is accounted for: batch, width, depth and element type are free."""

from __future__ import annotations

from engine.compile import build_program
from engine.compiler_options import DEFAULT_OPTIONS, CompilerOptions
from engine.ir import DotDimensionNumbers
from engine.ir.builder import Builder
from engine.program.program import Program
from tests.profile.programs import named


def deep_step(
    batch: int = 256,
    width: int = 64,
    layers: int = 6,
    element_type: str = "f32",
    options: CompilerOptions = DEFAULT_OPTIONS,
) -> Program:
    """One step of momentum on the sum of `layers` times tanh(x w)."""
    b = Builder("deep_step")
    shape = (width, width)
    x = b.parameter(element_type, (batch, width))
    weights = [b.parameter(element_type, shape) for _ in range(layers)]
    slots = [b.parameter(element_type, shape) for _ in range(layers)]
    kept = [x]
    for number, w in enumerate(weights):
        product = named(b.dot(kept[-1], w), f"model/dense_{number}/MatMul")
        kept.append(named(b.elementwise("tanh", product), f"model/dense_{number}/Tanh"))
    loss = named(b.reduce(kept[-1], b.constant(0.0, element_type), (0, 1)), "loss/Sum")
    gradient = b.splat(1.0, (batch, width), element_type)
    results = {}
    for number in reversed(range(layers)):
        y, layer = kept[number + 1], f"gradient_tape/model/dense_{number}"
        slope = b.subtract(b.splat(1.0, (batch, width), element_type), b.multiply(y, y))
        inner = named(b.multiply(gradient, slope), f"{layer}/TanhGrad")
        dw = named(b.dot(kept[number], inner, DotDimensionNumbers((0,), (0,))), f"{layer}/MatMul/MatMul_1")
        if number:
            back = b.dot(inner, weights[number], DotDimensionNumbers((1,), (1,)))
            gradient = named(back, f"{layer}/MatMul/MatMul")
        slot = b.add(b.multiply(slots[number], b.splat(0.9, shape, element_type)), dw)
        results[1 + number] = named(b.subtract(weights[number], slot), f"sgd/AssignSubVariableOp_{number}")
        results[1 + layers + number] = named(slot, f"sgd/AssignVariableOp_{number}")
    roles = ["feed", *["variable"] * (2 * layers)]
    module = b.module(b.tuple(loss, *(results[k] for k in sorted(results))), aliases={k: k for k in results})
    return build_program(module, roles, {}, options=options)
