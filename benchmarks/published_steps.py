"""The programs of a Keras model's training step and of its forward pass, from one trace. Nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import keras
import tensorflow as tf

from engine.compile import build_program
from engine.ir import Computation, Instruction, Module, TupleShape
from engine.profile.options import Assumptions
from engine.profile.program_estimate import Estimate, estimate
from engine.program.program import Program
from engine.target import target
from ipu._internal.compiler.trace import TracedStep, trace_step


@dataclass(frozen=True)
class Step:
    """Cost reports of a training step and of the forward pass alone, and the training step's multiply-adds."""

    train: Estimate
    forward: Estimate
    multiply_adds: int

    @property
    def recomputed(self) -> float:
        """Cycles of a step that runs the forward pass twice."""
        return self.train.cycles + self.forward.cycles


@dataclass(frozen=True)
class Programs:
    """The programs of a training step and of the forward pass alone."""

    train: Program
    forward: Program

    def on(self, chip: str, assumptions: Assumptions) -> Step:
        """The cost reports of both on a chip."""
        train, forward = (estimate(each, target(chip), assumptions=assumptions) for each in (self.train, self.forward))
        return Step(train, forward, multiply_adds(self.train))


def traced(model: keras.Model, specs: list[tf.TensorSpec]) -> Programs:
    """Trace the step of a model that maps its inputs to one loss. Its update is one addition, as in accumulation.

    The forward pass is the same trace without updates of trainable variables, which saves a second trace of the model.
    """

    def train(*inputs: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = model(list(inputs) if len(inputs) > 1 else inputs[0], training=True)
        variables = [v.value for v in model.trainable_variables]
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            if isinstance(gradient, tf.IndexedSlices):
                variable.scatter_sub(gradient)
            elif gradient is not None:
                variable.assign_sub(gradient)
        return loss

    trace, trainable = trace_step(train, specs), {id(v.value) for v in model.trainable_variables}
    numbers = [number for number, role in enumerate(trace.roles) if role == "variable"]
    updates = {n for n, v in zip(numbers, trace.variables, strict=True) if id(v.variable) in trainable}
    forward = replace(trace, module=_without_updates(trace.module, updates))
    return Programs(_built(trace), _built(forward))


def _without_updates(module: Module, parameters: set[int]) -> Module:
    """The module without updates of these parameters, so without all that is computed for them alone."""
    kept = {parameter: result for parameter, result in module.aliases.items() if parameter not in parameters}
    dropped = {result for parameter, result in module.aliases.items() if parameter in parameters}
    numbers = [number for number in range(len(module.results)) if number not in dropped]
    results = tuple(module.results[number] for number in numbers)
    root = Instruction("kept", "tuple", TupleShape(tuple(each.shape for each in results)), results)
    entry = Computation(module.entry.name, [*module.entry.instructions, root], root)
    return Module(module.name, entry, {p: numbers.index(result) for p, result in kept.items()})


def program_of(step: Callable[..., tf.Tensor], specs: list[tf.TensorSpec]) -> Program:
    """The program of a step, which is traced and not run."""
    return _built(trace_step(step, specs))


def _built(trace: TracedStep) -> Program:
    return build_program(trace.module, trace.roles, trace.constants)


def multiply_adds(program: Program) -> int:
    """The multiply-adds of a step."""
    return sum(each.work_estimate.multiply_adds for each in program.compute_sets)
