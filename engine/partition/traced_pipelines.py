"""Construction of pipelines from traced loops: the body, one micro-batch, becomes the execution of a schedule.

The body holds a mark of the target PIPELINE_ITERATION whose configuration is the pipeline's. The elements of the loop's
state are variables of the pipeline; those that change once in each execution are marked too.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from engine.errors import ConfigurationError
from engine.ir import Computation, Instruction, Module, Shape, TupleShape
from engine.ir.builder import Builder
from engine.ir.device_operations import PIPELINE_ITERATION, UPDATED_ONCE, config_of, target_of
from engine.partition.instruction_copies import copied
from engine.partition.marks import cut
from engine.partition.pipeline import Pipelined, Pipelining, pipelined
from engine.partition.repeat import BEFORE_STAGES
from engine.partition.shared_variables import check_shared_variables
from engine.partition.stage_options import stage_options_from
from engine.partition.storage import Storage
from engine.passes.inline_calls import inline_calls
from engine.passes.loops.rebuilding import with_own_names
from engine.passes.rewriting import changed, rewrite
from engine.passes.run_passes import run_passes


def pipeline_config(pipelining: Pipelining, training: bool) -> str:
    """The backend_config of the mark of a loop that is to become a pipeline of one replica."""
    return json.dumps({"pipelining": asdict(pipelining), "training": training})


def with_pipelines(module: Module) -> tuple[Module, list[Pipelined]]:
    """The module with its pipelines, and a list of them in the module's order.

    Raises ConfigurationError for loops that cannot be cut into their stages, or are inside another pipeline, and the
    errors of `Pipelining.make_schedule`.
    """
    if not any(_is_iteration(i) for i in module.instructions()):
        return module, []
    module = run_passes(module, (inline_calls,))
    made: list[Pipelined] = []

    def visit(before: Instruction, loop: Instruction) -> Instruction | None:
        iterations = [i for i in loop.called[0].instructions if _is_iteration(i)] if loop.opcode == "while" else []
        if not iterations:
            return None
        pipeline, numbers = _pipeline(loop, iterations[0])
        made.append(pipeline)
        body, condition = loop.called
        return changed(loop, called=(_new_body(body, pipeline.module, numbers), condition))

    return rewrite(module, visit), made


def _is_iteration(instruction: Instruction) -> bool:
    return target_of(instruction) == PIPELINE_ITERATION


def _new_body(old: Computation, module: Module, numbers: list[int]) -> Computation:
    """The body of a loop as a pipeline's module, which changes the elements `numbers` of the state."""
    builder = Builder(old.name)
    state = builder.parameter_of(old.parameters[0].shape)
    elements = builder.elements(state)
    stands = dict(zip(module.entry.parameters, elements, strict=True))
    for number, result in zip(numbers, module.results, strict=True):
        elements[number] = copied(builder, stands, result)
    return with_own_names(builder.build(builder.tuple(*elements)))


def _pipeline(loop: Instruction, iteration: Instruction) -> tuple[Pipelined, list[int]]:
    """The pipeline of a loop, and the numbers of the state's elements that it changes, in the order of its results."""
    config = config_of(iteration)
    given, training = config["pipelining"], bool(config["training"])
    options = {"storage": Storage(**given["storage"]), "options": stage_options_from(given["options"])}
    pipelining = Pipelining(**{**given, **options})
    schedule = pipelining.make_schedule(training)
    module = run_passes(_as_module(loop.called[0]), BEFORE_STAGES)
    new = dict(enumerate(module.results))
    numbers = [k for k, parameter in enumerate(module.entry.parameters) if new[k] is not parameter]
    once = {k for k in numbers if target_of(new[k]) == UPDATED_ONCE}
    module = _with_results(module, numbers)
    roles = ["variable"] * len(module.entry.parameters)
    names = {k: each.op_name or each.name for k, each in enumerate(loop.operands[0].operands)}
    parts = cut(module, roles, once, names, training=training)
    made = pipelined(
        *(module, roles, pipelining),
        schedule=schedule,
        parts=parts,
        outputs="last",
        metrics=(),
        random=(),
        names=names,
    )
    check_shared_variables(made, names)
    return made, numbers


def _as_module(body: Computation) -> Module:
    """The body with a parameter and a result for each element of the state."""
    state = body.parameters[0]
    builder = Builder(body.name)
    assert isinstance(state.shape, TupleShape)
    shapes = [shape for shape in state.shape.elements if isinstance(shape, Shape)]
    if len(shapes) < len(state.shape.elements):
        raise ConfigurationError(
            "Expected a pipeline whose state consists of arrays. Received: one with tuples. Use no TensorArray from "
            "outside of the stages."
        )
    parameters = [builder.parameter_of(shape) for shape in shapes]
    root = copied(builder, {state: builder.tuple(*parameters)}, body.root)
    results = builder.elements(root)
    aliases = {k: k for k in range(len(shapes))}
    return Module(body.name, with_own_names(builder.build(builder.tuple(*results))), aliases)


def _with_results(module: Module, numbers: list[int]) -> Module:
    """The module with only the new values of the variables `numbers` as results, without marks of pipelines."""
    entry = module.entry
    root = Builder().tuple(*(module.results[k] for k in numbers))
    instructions = [i for i in entry.instructions if i is not entry.root]
    kept = Computation(entry.name, [*instructions, root], root)
    aliases = {number: position for position, number in enumerate(numbers)}
    return _without_marks(Module(module.name, with_own_names(kept), aliases))


def _without_marks(module: Module) -> Module:
    inner = [i for c in module.computations() if c is not module.entry for i in c.instructions if _is_iteration(i)]
    if inner:
        raise ConfigurationError(
            "Expected one pipeline for each loop of a program. Received: a pipeline inside a stage of another. Call "
            "pipeline() outside of stages."
        )
    marks = (PIPELINE_ITERATION, UPDATED_ONCE)
    return rewrite(module, lambda _, each: each.operands[0] if target_of(each) in marks else None)
