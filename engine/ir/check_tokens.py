"""Tokens of the checks of values, which keep them alive: parameters of the entry, and elements of loops' states.

Each check of the entry, and each loop or branch with checks, has a token of its own, which it returns: a variable of
the program. So checks stay where they are when a step is repeated for micro-batches, replicated or cut into stages.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.ir.module import Computation, Instruction, Module
from engine.ir.shape import AnyShape, Shape, TupleShape
from engine.ir.value_checks import ValueCheck, is_value_check, value_checks

TOKEN = Shape("s32")


def with_check_tokens(module: Module) -> tuple[Module, list[int]]:
    """The module with a token for each check of TensorFlow's functions, and the tokens' parameter numbers."""
    if not any(value_checks(module)):
        return module, []
    entry = _Entry(module.entry, _Bodies())
    root, results = module.entry.root, [entry.new[each] for each in module.results]
    shape = TupleShape(tuple(each.shape for each in (*results, *entry.given)))
    packed = Instruction(f"{root.name}.with_tokens", "tuple", shape, (*results, *entry.given), op_name=root.op_name)
    first, numbers = len(module.entry.parameters), range(len(entry.given))
    aliases = {**module.aliases, **{first + k: len(results) + k for k in numbers}}
    computation = Computation(module.entry.name, [*entry.instructions, packed], packed)
    return Module(module.name, computation, aliases), [first + k for k in numbers]


def without_checks(module: Module) -> Module:
    """The module without the checks of TensorFlow's functions, which nothing depends on; it is changed."""
    for computation in module.computations():
        computation.instructions[:] = [each for each in computation.instructions if not is_value_check(each)]
    return module


class _Copy:
    """Instructions of a computation whose checks take and give tokens."""

    def __init__(self, bodies: _Bodies) -> None:
        self.bodies = bodies
        self.instructions: list[Instruction] = []
        self.new: dict[Instruction, Instruction] = {}

    def take(self) -> Instruction:
        """The token for the next check."""
        raise NotImplementedError

    def give(self, token: Instruction) -> None:
        """Takes a check's token."""
        raise NotImplementedError

    def make(
        self, like: Instruction, name: str, opcode: str, shape: AnyShape, *operands: Instruction, **attributes: object
    ) -> Instruction:
        """Adds an instruction with the scope of another one."""
        unique = f"{like.name}.{name}.{len(self.instructions)}"
        made = Instruction(unique, opcode, shape, operands, attributes, op_name=like.op_name)
        self.instructions.append(made)
        return made

    def element(self, value: Instruction, index: int) -> Instruction:
        """An element of a tuple."""
        assert isinstance(value.shape, TupleShape)
        if value.opcode == "tuple":
            return value.operands[index]
        return self.make(value, "element", "get-tuple-element", value.shape.elements[index], value, tuple_index=index)

    def elements(self, value: Instruction) -> list[Instruction]:
        """The elements of a tuple; an array alone."""
        if isinstance(value.shape, Shape):
            return [value]
        return [self.element(value, index) for index in range(len(value.shape.elements))]

    def packed(self, like: Instruction, values: Sequence[Instruction]) -> Instruction:
        """Adds a tuple of values."""
        return self.make(like, "packed", "tuple", TupleShape(tuple(each.shape for each in values)), *values)

    def with_token(self, value: Instruction, token: Instruction) -> Instruction:
        """A tuple of the elements of a value, and a token."""
        return self.packed(value, [*self.elements(value), token])

    def without_token(self, value: Instruction, shape: AnyShape) -> Instruction:
        """The value of this shape from which `with_token` has made a tuple."""
        if isinstance(shape, Shape):
            return self.element(value, 0)
        return self.packed(value, [self.element(value, index) for index in range(len(shape.elements))])

    def add(self, instruction: Instruction) -> None:
        """Adds an instruction, with a token if it checks values, or calls computations that check some."""
        operands = tuple(self.new[operand] for operand in instruction.operands)
        if is_value_check(instruction):
            checked = self.new[_before_conversion(instruction)]
            self.new[instruction] = self._changed(instruction, (checked, self.take()), instruction.shape)
            self.give(self.new[instruction])
        elif any(map(self.bodies.have_checks, instruction.called)):
            token = self.take()
            kept = operands[:1] if instruction.opcode == "conditional" else ()
            given = tuple(self.with_token(each, token) for each in operands[len(kept) :])
            is_call = instruction.opcode == "call"
            result = self._changed(
                instruction,
                (*operands, token) if is_call else (*kept, *given),
                _longer(instruction.shape),
                self.bodies.changed(instruction),
            )
            self.give(self.element(result, len(_elements(instruction.shape))))
            self.new[instruction] = self.without_token(result, instruction.shape)
        elif operands == instruction.operands:
            self.instructions.append(instruction)
            self.new[instruction] = instruction
        else:
            self.new[instruction] = self._changed(instruction, operands, instruction.shape, instruction.called)

    def _changed(
        self,
        instruction: Instruction,
        operands: tuple[Instruction, ...],
        shape: AnyShape,
        called: tuple[Computation, ...] = (),
    ) -> Instruction:
        made = Instruction(
            *(instruction.name, instruction.opcode, shape, operands, instruction.attributes, called),
            op_name=instruction.op_name,
        )
        self.instructions.append(made)
        return made


class _Entry(_Copy):
    """The entry: a parameter for each token. `given` are the tokens after the checks."""

    def __init__(self, entry: Computation, bodies: _Bodies) -> None:
        super().__init__(bodies)
        self._parameters = len(entry.parameters)
        self.given: list[Instruction] = []
        for each in entry.instructions:
            self.add(each)

    def take(self) -> Instruction:
        """Adds a parameter for a token."""
        number = self._parameters + len(self.given)
        name = f"value_check_token.{number}"
        made = Instruction(name, "parameter", TOKEN, (), {"parameter_number": number}, op_name=name)
        self.instructions.append(made)
        return made

    def give(self, token: Instruction) -> None:
        """Keeps the token as a result."""
        self.given.append(token)


class _Body(_Copy):
    """A body, a branch or a called computation, with a token as last parameter, or as last element of its parameter."""

    def __init__(self, computation: Computation, bodies: _Bodies, is_call: bool, is_condition: bool) -> None:
        super().__init__(bodies)
        if is_call:
            number = len(computation.parameters)
            self._token = Instruction(f"token.{number}", "parameter", TOKEN, (), {"parameter_number": number})
            self.instructions.append(self._token)
        else:
            (old,) = computation.parameters
            parameter = Instruction(old.name, "parameter", _longer(old.shape), (), old.attributes, op_name=old.op_name)
            self.instructions.append(parameter)
            self.new[old] = self.without_token(parameter, old.shape)
            self._token = self.element(parameter, len(_elements(old.shape)))
        for each in computation.instructions:
            # The condition of a loop has no result for a token.
            if each not in self.new and not (is_condition and is_value_check(each)):
                self.add(each)

    def take(self) -> Instruction:
        """The token of the check before."""
        return self._token

    def give(self, token: Instruction) -> None:
        """Keeps the token for the next check."""
        self._token = token

    def build(self, computation: Computation, is_condition: bool) -> Computation:
        """The computation; a loop's condition returns no token."""
        root = self.new[computation.root]
        root = root if is_condition else self.with_token(root, self._token)
        return Computation(computation.name, self.instructions, root)


class _Bodies:
    """A table of computations with tokens, which replace the originals."""

    def __init__(self) -> None:
        self._checking: dict[Computation, bool] = {}
        self._changed: dict[tuple[Computation, bool, bool], Computation] = {}

    def have_checks(self, computation: Computation) -> bool:
        """Whether a computation, or one that it calls, has checks."""
        if computation not in self._checking:
            called = (inner for each in computation.instructions for inner in each.called)
            self._checking[computation] = any(map(is_value_check, computation.instructions)) or any(
                map(self.have_checks, called)
            )
        return self._checking[computation]

    def changed(self, caller: Instruction) -> tuple[Computation, ...]:
        """The computations with tokens that an instruction calls."""
        is_loop = caller.opcode == "while"
        return tuple(
            self._one(each, caller.opcode == "call", is_loop and k == 1) for k, each in enumerate(caller.called)
        )

    def _one(self, computation: Computation, is_call: bool, is_condition: bool) -> Computation:
        key = computation, is_call, is_condition
        if key not in self._changed:
            self._changed[key] = _Body(computation, self, is_call, is_condition).build(computation, is_condition)
        return self._changed[key]


def _before_conversion(check: Instruction) -> Instruction:
    """The operand of a check of a range, before its conversion from floats: NaN is no integer."""
    (operand,), own = check.operands, ValueCheck.of(check)
    current = operand
    while own.kind == "range" and len(own.bounds) == 1:
        if current.opcode != "convert" and current.opcode not in ("reshape", "copy"):
            break
        given = current.operands[0]
        if current.opcode == "convert" and given.array_shape.element_type in ("f32", "f64"):
            return given
        if current.opcode == "convert" and given.array_shape.element_type not in ("s32", "s64"):
            break
        current = given
    return operand


def _elements(shape: AnyShape) -> Sequence[AnyShape]:
    return [shape] if isinstance(shape, Shape) else shape.elements


def _longer(shape: AnyShape) -> TupleShape:
    """The shape of a value with a token behind it."""
    return TupleShape((*_elements(shape), TOKEN))
