"""Changes a module in one place or a few, so that it stays well typed: opcodes, operands, bodies, dimensions, types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from engine.errors import InternalError
from engine.files.checks import check_module
from engine.ir import Computation, Instruction, Module, Shape

FLOAT_UNARY = (
    "negate abs sign exponential exponential-minus-one log log-plus-one logistic sqrt rsqrt cbrt sine cosine tanh erf "
    "ceil floor round-nearest-even round-nearest-afz copy"
).split()
INTEGER_UNARY = "negate abs sign not popcnt count-leading-zeros copy".split()
FLOAT_BINARY = "add subtract multiply divide remainder maximum minimum power atan2".split()
INTEGER_BINARY = (
    "add subtract multiply divide remainder maximum minimum and or xor "
    "shift-left shift-right-logical shift-right-arithmetic"
).split()
PRED_BINARY = "and or xor".split()
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, np.inf, -np.inf, np.nan, 1e-6, 1000.0)
INTEGERS = (0, 1, 2, 3, 5, 7, 100, -1)
KINDS = ("f32", "f32", "f16", "bf16", "f64", "s32", "u8", "s64", "pred")


def families(shape: Shape, count: int) -> list[str]:
    """The elementwise opcodes of `count` operands of one shape, with a result of that shape."""
    kind = shape.element_type
    if kind in ("c64", "c128"):
        return (["negate", "copy"], ["add", "subtract", "multiply"])[count - 1]
    if kind == "pred":
        return (["not", "copy"], PRED_BINARY)[count - 1]
    is_float = kind in ("f16", "bf16", "f32", "f64")
    return ((FLOAT_UNARY, FLOAT_BINARY) if is_float else (INTEGER_UNARY, INTEGER_BINARY))[count - 1]


def cloned(module: Module) -> Module:
    """A copy with computations and instructions of its own."""
    computations: dict[int, Computation] = {}
    for old in module.computations():
        made: dict[Instruction, Instruction] = {}
        for i in old.instructions:
            called = tuple(computations[id(c)] for c in i.called)
            operands = tuple(made[o] for o in i.operands)
            made[i] = Instruction(i.name, i.opcode, i.shape, operands, dict(i.attributes), called, i.op_name)
        computations[id(old)] = Computation(old.name, list(made.values()), made[old.root])
    return Module(module.name, computations[id(module.entry)], dict(module.aliases))


class Mutation:
    """Changes a clone, one change after another; a change that the verifier refuses is undone."""

    def __init__(self, module: Module, rng: np.random.Generator) -> None:
        self.module, self.rng, self.names = module, rng, 0
        self.changes: tuple[Callable[[Computation, Instruction], bool], ...] = (
            *(self.opcode, self.operand, self.operand, self.swapped, self.body, self.body, self.dimensions),
            *(self.dimensions, self.literal, self.through_type, self.moved_and_back, self.called, self.branch),
        )

    def change(self) -> Module:
        """Changes the module until the verifier accepts it. The module is unchanged where no change was found."""
        for _ in range(30):
            before, self.module = self.module, cloned(self.module)
            all_of_them = [(c, i) for c in self.module.computations() for i in c.instructions]
            computation, instruction = all_of_them[self.rng.integers(len(all_of_them))]
            try:
                if self.one_of(self.changes)(computation, instruction):
                    check_module(self.module)
                    return self.module
            except (InternalError, KeyError, IndexError, ValueError):
                pass
            self.module = before
        return self.module

    def one_of(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def opcode(self, _: Computation, instruction: Instruction) -> bool:
        """Another operation on as many operands."""
        if instruction.opcode == "compare":
            instruction.attributes["direction"] = self.one_of(DIRECTIONS)
            return True
        shapes = {i.shape for i in (instruction, *instruction.operands)}
        count, shape = len(instruction.operands), instruction.shape
        if len(shapes) != 1 or count not in (1, 2) or not isinstance(shape, Shape):
            return False
        choices = families(shape, count)
        if instruction.opcode not in choices:
            return False
        instruction.opcode = self.one_of(choices)
        return True

    def operand(self, computation: Computation, instruction: Instruction) -> bool:
        """Another operand of the same shape, of those that come before."""
        if not instruction.operands:
            return False
        place = int(self.rng.integers(len(instruction.operands)))
        before = computation.instructions[: computation.instructions.index(instruction)]
        others = [i for i in before if i.shape == instruction.operands[place].shape]
        operands = list(instruction.operands)
        operands[place] = self.one_of(others)
        instruction.operands = tuple(operands)
        return True

    def swapped(self, _: Computation, instruction: Instruction) -> bool:
        """Operands in another order."""
        if len(instruction.operands) < 2:
            return False
        order = self.rng.permutation(len(instruction.operands))
        instruction.operands = tuple(instruction.operands[int(k)] for k in order)
        return True

    def body(self, _: Computation, instruction: Instruction) -> bool:
        """Another root, or other operands, of a computation that is called."""
        if not instruction.called:
            return False
        callee = self.one_of(instruction.called)
        inside = self.one_of(callee.instructions)
        if self.rng.random() < 0.3:
            roots = [i for i in callee.instructions if i.shape == callee.root.shape]
            callee.root = self.one_of(roots)
            return True
        return bool(self.one_of((self.opcode, self.operand, self.swapped, self.literal))(callee, inside))

    def called(self, _: Computation, instruction: Instruction) -> bool:
        """Another computation of the same signature, or the same ones in another order."""
        if not instruction.called:
            return False
        place = int(self.rng.integers(len(instruction.called)))
        callees = list(instruction.called)
        callees[place] = self.one_of([c for i in self.module.entry.instructions for c in i.called] or callees)
        order = list(self.module.computations())
        if any(c not in order for c in callees):
            return False
        instruction.called = tuple(callees)
        return True

    def literal(self, _: Computation, instruction: Instruction) -> bool:
        """Other values of a constant: one for all elements, or one element."""
        if instruction.opcode != "constant":
            return False
        literal = np.array(instruction["literal"])
        value = self.one_of(SPECIAL if literal.dtype.kind in "fcV" else INTEGERS)
        if not np.isfinite(value) and any(i.opcode == "fft" for i in self.module.entry.instructions):
            return False  # grouping decides whether a spectrum of infinities has NaN or infinities
        value = np.asarray(value % 128 if literal.dtype.kind == "u" else value).astype(literal.dtype)
        if self.rng.random() < 0.5 or not literal.size:
            literal[...] = value
        else:
            literal.reshape(-1)[int(self.rng.integers(literal.size))] = value
        instruction.attributes["literal"] = literal
        return True

    def dimensions(self, computation: Computation, instruction: Instruction) -> bool:
        """Changes numbers in an attribute; a result of another shape is converted into the old shape."""
        changed = [name for name in instruction.attributes if name in CHANGERS]
        if not changed:
            return False
        name = self.one_of(changed)
        instruction.attributes[name] = CHANGERS[name](self, instruction.attributes[name])
        return self._in_old_shape(computation, instruction)

    def number(self, value: int, least: int = 0) -> int:
        """A number near by."""
        return max(least, value + int(self.rng.integers(-2, 3)))

    def through_type(self, computation: Computation, instruction: Instruction) -> bool:
        """The operation in another type, between conversions."""
        shape, kind = instruction.shape, self.one_of(KINDS)
        if not isinstance(shape, Shape) or not instruction.operands or instruction.opcode in ("convert", "compare"):
            return False
        if any(o.shape != shape for o in instruction.operands) or shape.element_type in ("c64", "c128"):
            return False
        at = computation.instructions.index(instruction)
        wide = shape.with_type(kind)
        inside = [self.made(computation, at, "convert", wide, (o,)) for o in dict.fromkeys(instruction.operands)]
        by_operand = dict(zip(dict.fromkeys(instruction.operands), inside, strict=True))
        operands = tuple(by_operand[o] for o in instruction.operands)
        at = computation.instructions.index(instruction)
        middle = self.made(computation, at, instruction.opcode, wide, operands, **instruction.attributes)
        middle.called = instruction.called
        instruction.opcode, instruction.operands, instruction.called = "convert", (middle,), ()
        instruction.attributes = {}
        return True

    def moved_and_back(self, computation: Computation, instruction: Instruction) -> bool:
        """Gives readers the result through moves: reshaped, transposed, reversed, padded and sliced, or gathered."""
        if not isinstance(instruction.shape, Shape) or instruction is computation.root:
            return False
        at, shape = computation.instructions.index(instruction) + 1, instruction.shape
        users = [i for i in computation.instructions if instruction in i.operands]
        order = tuple(int(d) for d in self.rng.permutation(shape.rank))
        kind = self.one_of(("reshape", "transpose", "reverse", "optimization-barrier"))
        if kind == "reshape":
            middle = self.made(computation, at, kind, shape.with_dimensions((1, shape.elements)), (instruction,))
            last = self.made(computation, at + 1, kind, shape, (middle,))
        elif kind == "transpose":
            turned = shape.with_dimensions(tuple(shape.dimensions[d] for d in order))
            middle = self.made(computation, at, kind, turned, (instruction,), dimensions=order)
            back = tuple(order.index(d) for d in range(shape.rank)) if self.rng.random() < 0.7 else order
            last = self.made(computation, at + 1, kind, shape, (middle,), dimensions=back)
        elif kind == "reverse":
            last = self.made(computation, at, kind, shape, (instruction,), dimensions=order[:1])
        else:
            last = self.made(computation, at, kind, shape, (instruction,))
        for user in users:
            user.operands = tuple(last if o is instruction else o for o in user.operands)
        return True

    def branch(self, computation: Computation, instruction: Instruction) -> bool:
        """Moves an elementwise operation into its own computation: one that is called, or a branch."""
        shapes = [o.shape for o in instruction.operands]
        if len(shapes) not in (1, 2) or not all(isinstance(s, Shape) for s in (*shapes, instruction.shape)):
            return False
        if instruction.called or instruction.opcode in ("custom-call", "parameter"):
            return False
        callee = _outlined(instruction)
        preds = [i for i in computation.instructions if i.shape == Shape("pred")]
        before = computation.instructions[: computation.instructions.index(instruction)]
        preds = [p for p in preds if p in before]
        if len(shapes) == 1 and preds and self.rng.random() < 0.5:
            other = _outlined(instruction)
            other.instructions[-1].opcode = callee.root.opcode
            instruction.operands = (self.one_of(preds), instruction.operands[0], instruction.operands[0])
            instruction.opcode, instruction.called = "conditional", (callee, other)
        else:
            instruction.opcode, instruction.called = "call", (callee,)
        instruction.attributes = {}
        return True

    def made(
        self,
        computation: Computation,
        at: int,
        opcode: str,
        shape: Shape,
        operands: tuple[Instruction, ...],
        **attributes: Any,
    ) -> Instruction:
        """Inserts a new instruction into the computation, at that place."""
        taken = {i.name for i in computation.instructions}
        while (name := f"new.{self.names}") in taken:
            self.names += 1
        instruction = Instruction(name, opcode, shape, operands, dict(attributes))
        computation.instructions.insert(at, instruction)
        return instruction

    def _in_old_shape(self, computation: Computation, instruction: Instruction) -> bool:
        from engine.ir.opcodes import inferred_shape

        old, new = instruction.shape, inferred_shape(instruction)
        if new == old:
            return True
        if not isinstance(old, Shape) or not isinstance(new, Shape) or new.elements > 4096:
            return False
        at = computation.instructions.index(instruction)
        twin = self.made(computation, at, instruction.opcode, new, instruction.operands, **instruction.attributes)
        twin.called = instruction.called
        flat = new.with_dimensions((new.elements,))
        row = self.made(computation, at + 1, "reshape", flat, (twin,))
        missing = old.elements - new.elements
        if missing:
            zero = self.made(computation, at, "constant", new.with_dimensions(()), (), literal=np.zeros((), new.dtype))
            from engine.ir import PaddingDimension

            config = (PaddingDimension(0, missing),)
            at = computation.instructions.index(row) + 1
            sized = old.with_dimensions((old.elements,))
            row = self.made(computation, at, "pad", sized, (row, zero), padding_config=config)
        instruction.opcode, instruction.operands, instruction.called = "reshape", (row,), ()
        instruction.attributes = {}
        return True


def _outlined(instruction: Instruction) -> Computation:
    parameters = [
        Instruction(f"p.{k}", "parameter", o.shape, (), {"parameter_number": k})
        for k, o in enumerate(instruction.operands)
    ]
    attributes = dict(instruction.attributes)
    root = Instruction("inside", instruction.opcode, instruction.shape, tuple(parameters), attributes)
    return Computation(f"outlined.{instruction.name}", [*parameters, root], root)


def _permuted(m: Mutation, value: tuple[int, ...]) -> tuple[int, ...]:
    if m.rng.random() < 0.5:
        return tuple(value[int(k)] for k in m.rng.permutation(len(value)))
    return tuple(m.number(v) if m.rng.random() < 0.5 else v for v in value)


def _subset(m: Mutation, value: tuple[int, ...]) -> tuple[int, ...]:
    pool = sorted({*value, 0, 1, 2})
    return tuple(d for d in pool if m.rng.random() < 0.5)


def _window(m: Mutation, value: Any) -> Any:
    dimensions = list(value)
    at = int(m.rng.integers(len(dimensions)))
    d = dimensions[at]
    name = m.one_of(("size", "stride", "padding_low", "padding_high", "window_dilation", "base_dilation"))
    least = -2 if name.startswith("padding") else 1
    dimensions[at] = replace(d, **{name: m.number(getattr(d, name), least)})
    return tuple(dimensions)


def _slices(m: Mutation, value: Any) -> Any:
    slices = list(value)
    at = int(m.rng.integers(len(slices)))
    s = slices[at]
    shift = int(m.rng.integers(-2, 3))
    slices[at] = (
        replace(s, start=s.start + shift, limit=s.limit + shift)
        if m.rng.random() < 0.5
        else replace(s, stride=m.number(s.stride, 1))
    )
    return tuple(slices)


def _padding(m: Mutation, value: Any) -> Any:
    config = list(value)
    at = int(m.rng.integers(len(config)))
    p = config[at]
    name = m.one_of(("edge_padding_low", "edge_padding_high", "interior_padding"))
    config[at] = replace(p, **{name: m.number(getattr(p, name), 0 if name == "interior_padding" else -3)})
    return tuple(config)


def _fields(m: Mutation, value: Any) -> Any:
    """Permutes or changes one field of dimension numbers, or exchanges two of a pair."""
    name = m.one_of([n for n in value.__dataclass_fields__ if getattr(value, n) != ()])
    old = getattr(value, name)
    return replace(value, **{name: m.number(old) if isinstance(old, int) else _permuted(m, old)})


CHANGERS: dict[str, Callable[[Mutation, Any], Any]] = {
    "dimensions": lambda m, v: m.one_of((_permuted, _subset))(m, v),
    "window": _window,
    "slice_dimensions": _slices,
    "padding_config": _padding,
    "iota_dimension": lambda m, v: m.number(v),
    "dot_dimension_numbers": _fields,
    "convolution_dimension_numbers": _fields,
    "gather_dimension_numbers": _fields,
    "scatter_dimension_numbers": _fields,
    "dynamic_slice_sizes": lambda m, v: tuple(m.number(n, 1) for n in v),
    "gather_slice_sizes": lambda m, v: tuple(m.number(n, 1) for n in v),
    "feature_group_count": lambda m, v: m.number(v, 1),
    "batch_group_count": lambda m, v: m.number(v, 1),
    "tuple_index": lambda m, v: m.number(v),
    "is_stable": lambda m, v: not v,
    "lower": lambda m, v: not v,
    "left_side": lambda m, v: not v,
    "unit_diagonal": lambda m, v: not v,
    "fft_type": lambda m, v: m.one_of(("FFT", "IFFT", "RFFT", "IRFFT")),
}
"""Functions that change an attribute's value, by its name."""
