"""The engine runs every opcode that a census of Keras' models found, and also those that passes rewrite."""

from __future__ import annotations

import pytest

import engine.lower.program  # noqa: F401  the lowerings register when it loads
from engine.emit import EMITTERS
from engine.ir import Instruction, Module, Shape, TupleShape
from engine.ir.builder import Builder, binary_computation
from engine.lower.context import LOWERINGS
from engine.ops import DEFINITIONS
from tests.engine.running import check

CENSUS = frozenset(
    """
    parameter tuple add broadcast reshape dot transpose constant multiply reduce divide convert compare maximum subtract
    select copy and negate get-tuple-element exponential slice concatenate gather logistic minimum pad convolution iota
    log reduce-window dynamic-slice dynamic-update-slice reverse while tanh scatter or abs power sqrt call rsqrt
    bitcast-convert log-plus-one set-dimension-size conditional clamp get-dimension-size shift-right-logical
    rng-bit-generator remainder shift-left xor sort ceil select-and-scatter is-finite rng sign exponential-minus-one not
    batch-norm-inference cosine batch-norm-training batch-norm-grad floor sine round-nearest-even
    """.split()
)
"""The opcodes of 890 traced steps: all layers, losses, metrics, optimizers of Keras 3 and tf_keras, and models."""

PROBES = frozenset(
    """
    erf cbrt tan atan2 fft cholesky triangular-solve optimization-barrier popcnt count-leading-zeros reduce-precision
    complex real imag round-nearest-afz shift-right-arithmetic map after-all
    """.split()
)
"""Opcodes that TensorFlow's mathematical functions add."""

REWRITTEN = frozenset(
    (
        "call batch-norm-training batch-norm-inference batch-norm-grad "
        "set-dimension-size get-dimension-size map after-all"
    ).split()
)
"""Opcodes that passes turn into other operations before lowering."""


def test_engine_runs_them_all() -> None:
    assert CENSUS | PROBES <= {*LOWERINGS, *EMITTERS, *REWRITTEN}
    assert CENSUS | PROBES <= {*DEFINITIONS, "parameter"}


def normalized(opcode: str) -> Module:
    b = Builder()
    x = b.parameter("f32", (4, 3, 5))
    per_feature = [b.parameter("f32", (5,)) for _ in range(3 if opcode == "batch-norm-grad" else 2)]
    operands: list[Instruction] = [x, *per_feature]
    if opcode == "batch-norm-inference":
        operands += [b.parameter("f32", (5,)), b.elementwise("abs", b.parameter("f32", (5,)))]
    if opcode == "batch-norm-grad":
        operands[3] = b.elementwise("abs", per_feature[2])
        operands.append(b.parameter("f32", (4, 3, 5)))
    shape = x.shape
    if opcode != "batch-norm-inference":
        shape = TupleShape((x.array_shape, Shape("f32", (5,)), Shape("f32", (5,))))
    made = b.instruction(opcode, shape, operands, epsilon=1e-3, feature_index=2)
    if opcode == "batch-norm-inference":
        return b.module(made)
    return b.module(b.tuple(*(b.get_tuple_element(made, k) for k in range(3))))


def shorthand(opcode: str) -> Module:
    b = Builder()
    x, y = b.parameter("f32", (4, 3)), b.parameter("f32", (4, 3))
    if opcode == "call":
        inner = Builder("inner")
        p, q = inner.parameter("f32", (4, 3)), inner.parameter("f32", (4, 3))
        b.call(inner.build(inner.subtract(p, q)), y, x)
    elif opcode == "map":
        b.instruction("map", x.shape, (x, y), (binary_computation("subtract", "f32"),), dimensions=(0, 1))
    elif opcode == "after-all":
        b.instruction("after-all", TupleShape(), ())
        b.add(x, y)
    else:
        size = b.instruction("get-dimension-size", Shape("s32"), (x,), dimensions=(1,))
        if opcode == "set-dimension-size":
            size = b.instruction(opcode, x.shape, (x, size), dimensions=(1,))
        b.tuple(size, b.add(x, y))
    return b.module()


@pytest.mark.parametrize("opcode", sorted(REWRITTEN))
def test_rewritten_operations_give_what_their_definitions_give(opcode: str) -> None:
    check(normalized(opcode) if opcode.startswith("batch-norm") else shorthand(opcode))
