"""batch-norm-training, -inference and -grad as sums, products and broadcasts.

16-bit floats are computed in f32. The variance is the mean square of the centred operand (two passes
over the data), so that a large mean costs no precision.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.ir import Instruction, Module, TupleShape
from engine.ir.builder import binary_computation
from engine.passes import construct
from engine.passes.inline_calls import inline_calls
from engine.passes.rewriting import RuleSet, make, rewrite

RULES = RuleSet()


def expand_batch_norm(module: Module) -> Module:
    """The module without the three operations."""
    expanded = rewrite(module, RULES)
    return module if expanded is module else inline_calls(expanded)


class Normalization:
    """Builds instructions in place of one batch-norm instruction, in the type that it is computed in."""

    def __init__(self, instruction: Instruction) -> None:
        self.like = instruction
        shape = instruction.operands[0].array_shape
        self.element_type = "f32" if shape.element_type in ("f16", "bf16") else shape.element_type
        self.feature = instruction["feature_index"] % shape.rank
        self.shape = shape.with_type(self.element_type)
        self.features = self.shape.with_dimensions((shape.dimensions[self.feature],))
        self.count = shape.elements // max(1, self.features.elements)

    def widened(self, operand: Instruction) -> Instruction:
        return construct.convert(self.like, operand, self.element_type)

    def apply(self, opcode: str, *operands: Instruction) -> Instruction:
        return construct.elementwise(self.like, opcode, *operands)

    def spread(self, vector: Instruction) -> Instruction:
        """A vector with a value for each feature, broadcast to all elements of the feature."""
        return construct.broadcast(self.like, vector, self.shape.dimensions, (self.feature,))

    def number(self, value: float) -> Instruction:
        """A constant vector with a value for each feature."""
        return construct.splat_of(self.like, value, self.features)

    def sum(self, operand: Instruction) -> Instruction:
        """The sum over all dimensions but the features."""
        zero = construct.constant(self.like, 0, self.shape.with_dimensions(()))
        dimensions = tuple(d for d in range(self.shape.rank) if d != self.feature)
        body = binary_computation("add", self.element_type)
        return make(self.like, "reduce", self.features, (operand, zero), (body,), dimensions=dimensions)

    def together(self, own: Instruction) -> Instruction:
        """The sum of a statistic over all that is normalised together, from the sum over the operand."""
        return own

    def mean(self, operand: Instruction) -> Instruction:
        return self.apply("divide", self.together(self.sum(operand)), self.number(self.count))

    def centred(self, operand: Instruction, mean: Instruction) -> Instruction:
        return self.apply("subtract", operand, self.spread(mean))

    def deviation(self, variance: Instruction) -> Instruction:
        """sqrt(variance + epsilon)."""
        return self.apply("sqrt", self.apply("add", variance, self.number(self.like["epsilon"])))

    def normalized(
        self, centred: Instruction, scale: Instruction, offset: Instruction, variance: Instruction
    ) -> Instruction:
        factor = self.apply("divide", scale, self.deviation(variance))
        return self.apply("add", self.apply("multiply", centred, self.spread(factor)), self.spread(offset))

    def results(self, *values: Instruction) -> Instruction:
        """The tuple of the values, converted to the types of the instruction's results."""
        assert isinstance(self.like.shape, TupleShape)
        types = [shape.element_type for shape in self.like.tuple_shapes]
        parts = [construct.convert(self.like, value, kind) for value, kind in zip(values, types, strict=True)]
        return make(self.like, "tuple", self.like.shape, parts)


Kind = Callable[[Instruction], Normalization]


@RULES.on("batch-norm-training")
def training(instruction: Instruction, kind: Kind = Normalization) -> Instruction:
    """(normalised operand, mean, biased variance)."""
    made = kind(instruction)
    operand, scale, offset = (made.widened(o) for o in instruction.operands)
    mean = made.mean(operand)
    centred = made.centred(operand, mean)
    variance = made.mean(made.apply("multiply", centred, centred))
    return made.results(made.normalized(centred, scale, offset, variance), mean, variance)


@RULES.on("batch-norm-inference")
def expand_inference(instruction: Instruction) -> Instruction:
    """The operand, normalised with a given mean and variance."""
    made = Normalization(instruction)
    operand, scale, offset, mean, variance = (made.widened(o) for o in instruction.operands)
    result = made.normalized(made.centred(operand, mean), scale, offset, variance)
    return construct.convert(instruction, result, instruction.array_shape.element_type)


@RULES.on("batch-norm-grad")
def gradients(instruction: Instruction, kind: Kind = Normalization) -> Instruction:
    """The gradients of operand, scale and offset, of (operand, scale, mean, variance, gradient).

    Those of scale and offset are of the operand alone.
    """
    made = kind(instruction)
    operand, scale, mean, variance, gradient = (made.widened(o) for o in instruction.operands)
    inverse = made.apply("divide", made.number(1), made.deviation(variance))
    centred = made.centred(operand, mean)
    of_offset = made.sum(gradient)
    of_scale = made.apply("multiply", made.sum(made.apply("multiply", gradient, centred)), inverse)
    count = made.number(made.count)
    slope = made.apply("divide", made.apply("multiply", made.together(of_scale), inverse), count)
    level = made.spread(made.apply("divide", made.together(of_offset), count))
    inner = made.apply("subtract", gradient, level)
    inner = made.apply("subtract", inner, made.apply("multiply", centred, made.spread(slope)))
    of_operand = made.apply("multiply", made.spread(made.apply("multiply", scale, inverse)), inner)
    return made.results(of_operand, of_scale, of_offset)
