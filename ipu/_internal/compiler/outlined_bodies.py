"""Bodies of outlined functions: each is compiled to HLO once, and custom calls become calls of its computation."""

from __future__ import annotations

import weakref
from functools import cached_property
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

from engine.ir import Computation, Instruction, Module
from engine.ir.device_operations import OUTLINED, config_of, target_of
from engine.ir.outlining import call_of_body, is_gradient, outlined_call
from ipu._internal.compiler.emission import module_of

_bodies: weakref.WeakValueDictionary[str, OutlinedFunction] = weakref.WeakValueDictionary()


class OutlinedFunction:
    """A function of tensors without side effects, which calls of a program share.

    `handles` are the variables whose values its last parameters take. A custom call names it by `key`; the graph in
    which it is called keeps it alive.
    """

    def __init__(self, name: str, concrete: ConcreteFunction) -> None:
        self.name, self.concrete = name, concrete
        self.handles: list[tf.Tensor] = list(concrete.captured_inputs)
        self.outputs: list[tf.Tensor] = list(concrete.outputs)  # a tape appends intermediate values to the graph's
        self.key = f"{name}.{id(self)}"
        _bodies[self.key] = self

    @cached_property
    def specs(self) -> list[tf.TensorSpec]:
        """Specs of its parameters other than the values of variables."""
        tensors = self.concrete.inputs[: len(self.concrete.inputs) - len(self.handles)]
        return [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]

    @cached_property
    def computation(self) -> Computation:
        """The HLO. Raises UnsupportedOperation for operations that XLA refuses."""
        entry = _with_bodies(module_of(self.concrete, self.specs)).entry
        root = entry.root
        if len(self.outputs) == 1 and root.opcode == "tuple":
            root = root.operands[0]
        return Computation(self.name, entry.instructions, root)


def keep(graph: Any, body: OutlinedFunction) -> None:
    """Keeps a body as long as the outermost traced function around a graph."""
    while isinstance(outer := graph.outer_graph, type(graph)):
        graph = outer
    graph._ipu_outlined = [*getattr(graph, "_ipu_outlined", ()), body]


def with_outlined_bodies(module: Module) -> Module:
    """The module with each custom call of an outlined function as a call of its body.

    Calls are numbered in each module from 0 on: an equal step is found in the cache of prepared modules.
    """
    with_bodies = _with_bodies(module)
    if with_bodies is module:
        return module
    from engine.passes.rewriting import rewrite

    numbers: dict[str, str] = {}
    numbered: set[Instruction] = set()

    def visit(_: Instruction, each: Instruction) -> Instruction | None:
        number = outlined_call(each)
        if number is None or each in numbered:
            return None
        new = call_of_body(each, each.called[0], numbers.setdefault(number, str(len(numbers))), is_gradient(each))
        numbered.add(new)
        return new

    return rewrite(with_bodies, visit)


def _with_bodies(module: Module) -> Module:
    if not any(target_of(i) == OUTLINED for i in module.instructions()):
        return module
    # The engine's passes load Numba, which takes long: imported only for outlined functions.
    from engine.passes.rewriting import rewrite

    def visit(_: Instruction, each: Instruction) -> Instruction | None:
        if target_of(each) != OUTLINED:
            return None
        config = config_of(each)
        return call_of_body(each, _bodies[config["body"]].computation, str(config["call"]), bool(config["gradient"]))

    return rewrite(module, visit)
