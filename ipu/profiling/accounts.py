"""The account of a program of TensorFlow's: what a chip, or the IPUs of a pipeline, would make of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ipu.compiler.pipelining import InferencePipelineProgram, PipelineProgram
from ipu.compiler.program import build_program
from ipu.profiling.chip import configured_assumptions, configured_target

if TYPE_CHECKING:
    from engine.profile import Account
    from engine.profile.options import Assumptions
    from engine.target import Target
    from ipu.compiler.program import Program


def account_of(program: Program, target: Target | None = None, assumptions: Assumptions | None = None) -> Account:
    """What a step of `program` would take, on the chip and with the library options of the present configuration.

    A program that has been made a pipeline is accounted for on all its IPUs, and a step is one execution of it.
    Raises ConfigurationError for a program on the definitions alone.
    """
    return accountant_of(program, assumptions)(target or configured_target())


def accountant_of(program: Program, assumptions: Assumptions | None = None) -> Callable[[Target], Account]:
    """What makes the accounts of a program on one chip after another. Raises as `account_of`."""
    # The engine's account needs its passes, which load Numba: not before somebody asks for it.
    from engine.profile import account
    from engine.profile.pipeline_account import PipelineStep, pipeline_accountant

    assumed = program.with_storage(assumptions or configured_assumptions())
    if isinstance(program, PipelineProgram | InferencePipelineProgram):
        made = program.pipelined
        streams = bool(program.storage.offload_activations)
        step = PipelineStep(made.module.name, made.source, made.schedule, program.constants, streams)
        return pipeline_accountant(step, build_program, program.replicas, assumed)
    engine_program = program.chip_program()
    return lambda target: account(engine_program, target, assumptions=assumed)
