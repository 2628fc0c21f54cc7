"""The cost report of a TensorFlow program on a chip, or on the IPUs of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.shown import draw_with
from ipu._internal.compiler.fit import with_storage
from ipu._internal.compiler.pipelining import PipelineProgram, estimator_of_pipeline, estimator_of_stages
from ipu._internal.compiler.program import build_program
from ipu._internal.config.chip import configured_assumptions, configured_target

if TYPE_CHECKING:
    import numpy as np

    from engine.ir import Module
    from engine.profile.options import Assumptions
    from engine.profile.program_estimate import Estimate
    from engine.program.program import Program as EngineProgram
    from engine.target import Target
    from ipu._internal.compiler.program import TracedProgram


def _pictures(shown: Any) -> str:
    # Drawing loads much: only where a notebook shows something.
    from engine.report.notebook import pictures_of

    return pictures_of(shown)


draw_with(_pictures)


def estimate_of(
    program: TracedProgram, target: Target | None = None, assumptions: Assumptions | None = None
) -> Estimate:
    """Cost report of a step of `program`, on the chip and with the library options of the present configuration.

    For a pipeline, and for a function that calls one, it covers all IPUs, and a step is one execution of the pipeline;
    it leaves out what the function computes outside of it. Raises ConfigurationError for a program that runs on the
    definitions.
    """
    return estimator_of(program, assumptions)(target or configured_target())


def estimator_of(program: TracedProgram, assumptions: Assumptions | None = None) -> Callable[[Target], Estimate]:
    """A function that returns the cost report of a program on a chip. Raises as `estimate_of`."""
    # The engine's cost report needs its passes, which load Numba: on demand only.
    from engine.profile.program_estimate import estimate

    assumed = assumptions or configured_assumptions()
    if isinstance(program, PipelineProgram):
        return estimator_of_pipeline(program, assumed)
    if len(program.traced_pipelines) == 1:
        (made,) = program.traced_pipelines
        replicas, storage = program.traced_replicas, made.pipelining.storage
        assumed = with_storage(assumed, storage, replicas if storage.replicated_optimizer_state_sharding else 1)
        return estimator_of_stages(made, {}, _build_of_one_replica, replicas, assumed)
    engine_program, assumed = program.chip_program(), program.with_storage(assumed)
    return lambda target: replace(estimate(engine_program, target, assumptions=assumed), shards=program.traced_ipus)


def _build_of_one_replica(module: Module, roles: list[str], constants: dict[int, np.ndarray]) -> EngineProgram:
    """The program of a part for one replica: the cost report adds the sum of gradients over replicas."""
    from engine.partition.replicate import replicate

    return build_program(replicate(module, roles, 1).module, roles, constants)
