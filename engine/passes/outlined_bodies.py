"""Prepares the body of each outlined function once, and puts it in the place of its calls after all other passes.

The body of a function and that of its gradient go through the passes together, as if a call of each were inlined; then
they are cut apart: the values that the gradient reads become further results of the function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence

from engine.ir import Computation, Instruction, Module, TupleShape
from engine.ir.builder import Builder
from engine.ir.device_operations import OUTLINED, target_of
from engine.ir.module import reached, topological
from engine.ir.opcodes import AFFINE, CONTROL_FLOW, EFFECTS
from engine.ir.outlining import has_outlined_calls, is_gradient, outlined_call
from engine.passes.common_subexpressions import EqualComputations, common_subexpressions
from engine.passes.inline_calls import inline_calls
from engine.passes.loops.rebuilding import element_of, tuple_of
from engine.passes.rewriting import rewrite, rewrite_each, with_parts

REPEATED = AFFINE | {"constant", "iota"}
"""Opcodes that are repeated in the gradient instead of being stored: they take no work, or no memory."""
UPSTREAM = "ipu.outlined_upstream"
"""The target of custom calls (gradient, results...) -> gradient: an upstream gradient depends on the results."""


def upstream(builder: Builder, parameter: Instruction, results: Sequence[Instruction]) -> Instruction:
    """An upstream gradient, a parameter, as a value that no pass computes before the results."""
    return builder.instruction("custom-call", parameter.shape, (parameter, *results), custom_call_target=UPSTREAM)


def split(
    joint: Computation, parameters: int, results: int, is_tuple: bool
) -> tuple[Computation, Computation, list[Instruction]]:
    """Two computations, of the first `results` results and of the others, and the values that the second reads.

    The first computation returns these values as further elements of its tuple, and has only the first `parameters`
    parameters of `joint`. The second has all of these, then the values. `is_tuple` says whether its result is a tuple.
    """
    ours = joint.root.operands[:results]
    function = set(topological(ours))
    function |= {i for i in joint.instructions if i.opcode == "get-tuple-element" and i.operands[0] in function}
    gradient = set(topological(joint.root.operands[results:]))
    stored = _stored(joint, gradient, function)
    root = tuple_of("results", [*ours, *stored])
    kept = [i for i in joint.instructions if i in function or _is_among(i, parameters)]
    return Computation(joint.name, [*kept, root], root), _rest(joint, results, stored, function, is_tuple), stored


def _stored(joint: Computation, gradient: set[Instruction], function: set[Instruction]) -> list[Instruction]:
    """The function's values that instructions of the gradient read, directly or through those that are repeated."""
    ours = [each for each in gradient if each not in function and target_of(each) != UPSTREAM]
    read = {operand for each in ours for operand in each.operands if operand in function}
    read |= {each for each in joint.root.operands if each in function and each in gradient}
    found = reached(read, lambda each: each.operands if each.opcode in REPEATED else ())
    return [each for each in joint.instructions if each in found and each.opcode not in (*REPEATED, "parameter")]


def _rest(
    joint: Computation, results: int, stored: Sequence[Instruction], function: set[Instruction], is_tuple: bool
) -> Computation:
    """The computation of the results from `results` on."""
    given = [*joint.parameters, *stored]
    new: dict[Instruction, Instruction] = {}
    for number, each in enumerate(given):
        new[each] = Instruction(each.name, "parameter", each.shape, (), {"parameter_number": number}, (), each.op_name)
    instructions = list(new.values())
    new |= {each: new[each.operands[0]] for each in joint.instructions if target_of(each) == UPSTREAM}
    wanted = joint.root.operands[results:]
    needed = set(topological(wanted, lambda each: each not in new))
    for each in joint.instructions:
        if each in needed and each not in new:
            copy = with_parts(each, [new[operand] for operand in each.operands])
            new[each] = copy
            instructions.append(copy)
    root = new[wanted[0]]
    if is_tuple:
        root = tuple_of("gradients", [new[each] for each in wanted])
        instructions.append(root)
    return Computation(f"{joint.name}_gradient", instructions, root)


def _is_among(instruction: Instruction, parameters: int) -> bool:
    return instruction.opcode == "parameter" and instruction["parameter_number"] < parameters


Prepare = Callable[[Module], Module]
INLINED = CONTROL_FLOW | {"custom-call"} | EFFECTS
"""Opcodes that a body cannot have without being inlined."""
BODY = "body"
"""The attribute of a custom call OUTLINED: a prepared body. Other passes do not look into it."""


def with_prepared_bodies(module: Module, prepare: Prepare, order: Prepare) -> Module:
    """The module with custom calls of prepared bodies in place of outlined calls; itself if there are none.

    `prepare` runs passes on a module with one body, `order` puts its instructions in the order in which they run.
    """
    if not has_outlined_calls(module):
        return module
    bodies = _Bodies(prepare, order)
    return rewrite_each(module, lambda computation: _Calls(computation, bodies).visit)


def call_prepared_bodies(module: Module) -> Module:
    """The module with calls in place of the custom calls of prepared bodies.

    Bodies that are called once, and those with control flow, are inlined.
    """
    while inlined := {body for body, count in _bodies(module).items() if count == 1 or not _is_plain(body)}:
        module = inline_calls(_with_calls(module, inlined))
    while called := _bodies(module):
        module = _with_calls(module, called)
    return module


def _bodies(module: Module) -> Counter[Computation]:
    """The prepared bodies, with the numbers of their custom calls."""
    return Counter(i[BODY] for i in module.instructions() if BODY in i.attributes)


def _is_plain(body: Computation) -> bool:
    return all(i.opcode not in INLINED or (BODY in i.attributes and _is_plain(i[BODY])) for i in body.instructions)


def _with_calls(module: Module, bodies: Collection[Computation]) -> Module:
    def visit(_: Instruction, each: Instruction) -> Instruction | None:
        if each.get(BODY) not in bodies:
            return None
        return Instruction(each.name, "call", each.shape, each.operands, {}, (each[BODY],), each.op_name)

    return rewrite(module, visit)


class _Bodies:
    """Prepared bodies, one for all of equal structure."""

    def __init__(self, prepare: Prepare, order: Prepare) -> None:
        self._prepare, self._order = prepare, order
        self._equal = EqualComputations()
        self._alone: dict[Computation, Computation] = {}
        self._pairs: dict[Hashable, tuple[Computation, Computation, list[Instruction]]] = {}

    def alone(self, body: Computation) -> Computation:
        """The prepared body of a function."""
        body = self._equal.representative(body)
        if body not in self._alone:
            self._alone[body] = self._ordered(self._prepare(Module(body.name, body)).entry)
        return self._alone[body]

    def pair(
        self, function: Computation, gradient: Computation, arguments: Sequence[int]
    ) -> tuple[Computation, Computation, list[Instruction]]:
        """The prepared bodies of a function and of its gradient, and the results that the function returns for the
        gradient.

        The gradient takes, as parameter k, parameter arguments[k] of both together: those of the function come first.
        """
        function, gradient = self._equal.representative(function), self._equal.representative(gradient)
        key = function, gradient, tuple(arguments)
        if key not in self._pairs:
            b = Builder(function.name)
            shapes = {number: p.shape for number, p in zip(arguments, gradient.parameters, strict=True)}
            shapes |= {number: p.shape for number, p in enumerate(function.parameters)}
            parameters = [b.parameter_of(shapes[number]) for number in range(len(shapes))]
            count = len(function.parameters)
            results = b.elements(b.call(function, *parameters[:count]))
            given = [*parameters[:count], *(upstream(b, parameter, results) for parameter in parameters[count:])]
            gradients = b.elements(b.call(gradient, *(given[number] for number in arguments)))
            joint = inline_calls(b.module(b.tuple(*results, *gradients)))
            prepared = self._prepare(common_subexpressions(joint)).entry
            one, other, stored = split(prepared, count, len(results), isinstance(gradient.root.shape, TupleShape))
            self._pairs[key] = self._ordered(one), self._ordered(other), stored
        return self._pairs[key]

    def _ordered(self, body: Computation) -> Computation:
        return self._order(Module(body.name, body)).entry


class _Calls:
    """The rule for the outlined calls of one computation: a function's and its gradient's are replaced together."""

    def __init__(self, computation: Computation, bodies: _Bodies) -> None:
        self.bodies = bodies
        calls = [i for i in computation.instructions if outlined_call(i)]
        functions = {outlined_call(i): i for i in calls if not is_gradient(i)}
        self.gradients = {
            function: call for call in calls if is_gradient(call) and (function := functions.get(outlined_call(call)))
        }
        self.functions = {call: function for function, call in self.gradients.items()}
        self.results: dict[Instruction, list[Instruction]] = {}
        """The results of each function that has a gradient: those of its call, then those for the gradient."""

    def visit(self, before: Instruction, _: Instruction) -> Instruction | None:
        """The custom call in place of an outlined call; of a function with a gradient, its results alone."""
        if not outlined_call(before):
            return None
        function = self.functions.get(before, before)
        if function not in self.gradients:
            return _custom_call(before, self.bodies.alone(before.called[0]), before.operands)
        gradient = self.gradients[function]
        places = _places(function, gradient)
        body, of_gradient, kept = self.bodies.pair(function.called[0], gradient.called[0], places)
        if function not in self.results:
            call = _custom_call(function, body, function.operands)
            self.results[function] = [element_of(call, number) for number in range(len(body.root.operands))]
        results = self.results[function]
        own, stored = results[: len(results) - len(kept)], results[len(results) - len(kept) :]
        if before is function:
            return tuple_of(function.name, own) if isinstance(function.shape, TupleShape) else own[0]
        upstream = [o for o, place in zip(gradient.operands, places, strict=True) if place >= len(function.operands)]
        return _custom_call(gradient, of_gradient, [*function.operands, *upstream, *stored])


def _places(function: Instruction, gradient: Instruction) -> list[int]:
    """Numbers the operands of the gradient's call: those of the function's call keep theirs, new ones follow."""
    places = {operand: number for number, operand in reversed([*enumerate(function.operands)])}
    found, count = [], len(function.operands)
    for operand in gradient.operands:
        found.append(places.get(operand, count))
        count += operand not in places
    return found


def _custom_call(like: Instruction, body: Computation, operands: Sequence[Instruction]) -> Instruction:
    attributes = {"custom_call_target": OUTLINED, BODY: body}
    return Instruction(like.name, "custom-call", body.root.shape, tuple(operands), attributes, (), like.op_name)
