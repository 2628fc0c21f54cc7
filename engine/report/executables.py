"""Cost reports of an executable file, which holds a program for one chip or a pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from engine.compile import build_program
from engine.errors import InvalidFile
from engine.files.executable_file import ExecutableFile
from engine.partition.pipeline import Pipelining, pipeline
from engine.partition.stage_options import StageOptions, library_options_from
from engine.profile.pipeline_estimate import PipelineStep, pipeline_estimator
from engine.profile.program_estimate import Estimate, estimate
from engine.program.program import Program
from engine.target import Target

PIPELINE, ITERATIONS = "pipeline", "iterations"
"""Metadata keys of an exported pipeline: JSON with IPUs, schedule and options of stages; the steps of an execution."""


def estimator_of(executable: ExecutableFile, replicas: int = 1) -> tuple[Callable[[Target], Estimate], Program | None]:
    """A function that returns the cost report of a file's program on a chip, and the program; None for a pipeline.

    Raises InvalidFile if the description of a pipeline cannot be read, and ConfigurationError or StepCountError if it
    is invalid.
    """
    if PIPELINE in executable.metadata:
        return _of_pipeline(executable, replicas), None
    program = build_program(executable.module, executable.roles, executable.constants)
    return lambda chip: estimate(program, chip, replicas), program


def _of_pipeline(executable: ExecutableFile, replicas: int) -> Callable[[Target], Estimate]:
    try:
        pipelining = _pipelining(json.loads(executable.metadata[PIPELINE]), int(executable.metadata[ITERATIONS]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidFile(
            f"Expected the stages of a pipeline as they were written. Received: {error!r}. Export the model again."
        ) from error
    made = pipeline(executable.module, executable.roles, pipelining, training=False)
    step = PipelineStep(
        made.module.name, made.source, made.schedule, executable.constants, options=made.pipelining.options
    )
    return pipeline_estimator(step, build_program, replicas)


def _pipelining(plain: Mapping[str, Any], iterations: int) -> Pipelining:
    mapping = tuple(int(ipu) for ipu in plain["device_mapping"])
    options = tuple(map(library_options_from, plain.get("poplar_options", ())))
    return Pipelining(
        stages=len(mapping),
        steps=iterations,
        schedule=plain["schedule"],
        device_mapping=mapping,
        option=ITERATIONS,
        empty_stages=True,
        options=StageOptions(forward=options),
    )
