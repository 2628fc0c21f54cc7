"""Programs to estimate: a dense layer's training step, and single operations."""

from __future__ import annotations

from engine.compile import build_program
from engine.ir import DotDimensionNumbers, Instruction
from engine.ir.builder import Builder
from engine.program.program import Program


def named(instruction: Instruction, op_name: str) -> Instruction:
    instruction.op_name = op_name
    return instruction


def dense_step(batch: int = 64, inputs: int = 300, units: int = 200, element_type: str = "f32") -> Program:
    """A step of gradient descent on the sum of tanh(x w + b), with momentum for w."""
    b = Builder("dense_step")
    x = b.parameter(element_type, (batch, inputs))
    w, bias = b.parameter(element_type, (inputs, units)), b.parameter(element_type, (units,))
    slot = b.parameter(element_type, (inputs, units))
    product = named(b.dot(x, w), "model/dense/MatMul")
    biased = named(b.add(product, b.broadcast(bias, (batch, units), (1,))), "model/dense/BiasAdd")
    y = named(b.elementwise("tanh", biased), "model/dense/Tanh")
    zero, one = b.constant(0.0, element_type), b.splat(1.0, (batch, units), element_type)
    loss = named(b.reduce(y, zero, (0, 1)), "loss/Sum")
    dy = named(b.subtract(one, b.multiply(y, y)), "gradient_tape/model/dense/TanhGrad")
    dw = b.dot(x, dy, DotDimensionNumbers((0,), (0,)))
    dw = named(dw, "gradient_tape/model/dense/MatMul/MatMul_1")
    db = named(b.reduce(dy, zero, (0,)), "gradient_tape/model/dense/BiasAdd/BiasAddGrad")
    rate = b.splat(0.9, (inputs, units), element_type)
    new_slot = named(b.add(b.multiply(slot, rate), dw), "sgd/Add")
    new_w = named(b.subtract(w, new_slot), "sgd/AssignSubVariableOp")
    new_bias = named(b.subtract(bias, db), "sgd/AssignSubVariableOp_1")
    module = b.module(b.tuple(loss, new_w, new_bias, new_slot), aliases={1: 1, 2: 2, 3: 3})
    return build_program(module, ["feed", "variable", "variable", "variable"], {})


def elementwise(opcode: str, elements: int, element_type: str = "f32") -> Program:
    """One operation on each element of a feed."""
    b = Builder(opcode)
    x = b.parameter(element_type, (elements,))
    return build_program(b.module(b.tuple(b.elementwise(opcode, x))), ["feed"], {})


def product(rows: int, k: int, columns: int, element_type: str = "f32", role: str = "feed") -> Program:
    """A matrix product of a feed and a feed or variable."""
    b = Builder("product")
    x, w = b.parameter(element_type, (rows, k)), b.parameter(element_type, (k, columns))
    return build_program(b.module(b.tuple(b.dot(x, w))), ["feed", role], {})


def small_products(count: int) -> Program:
    """A chain of matrix products of 4 by 4 with tanh between them."""
    b = Builder("small_products")
    y, w = b.parameter("f32", (4, 4)), b.parameter("f32", (4, 4))
    for _ in range(count):
        y = b.elementwise("tanh", b.dot(y, w))
    return build_program(b.module(b.tuple(y)), ["feed", "variable"], {})
