"""`ipu.profile`: a report on the compiled program of a model, of a function, or in a file."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import ConfigurationError, OutOfTileMemory
from engine.profile.levers import levers
from engine.profile.links import gradient_bytes
from engine.profile.program_estimate import estimate
from engine.program.program import Program as EngineProgram
from engine.report import Feeding, Report, make_report, on_other_chips, report_on
from engine.report.comparison import compare
from engine.report.render import prepare
from ipu._internal.config.chip import configured_assumptions, configured_target
from ipu._internal.profiling.messages import PATH, announce_written
from ipu._internal.profiling.programs import is_model, latest_mode, program_of_model
from ipu._internal.types import Nest

if TYPE_CHECKING:
    from ipu._internal.compiler.program import TracedProgram


def profile(
    subject: object,
    *arguments: Nest,
    path: str | PathLike[str] | None = PATH,
    mode: str | None = None,
    batch_size: int | None = None,
    name: str | None = None,
    baseline: str | PathLike[str] | Report | None = None,
    **keyword_arguments: Nest,
) -> Report:
    """Estimates a compiled program on the configured chip, without running it.

    Writes one self-contained page to `path`, and beside it the same as .json, .trace.json (for Perfetto) and .txt, and
    prints the path (logs it after `keras.utils.disable_interactive_logging()`).
    If the program does not fit into the chip's memory, the files are written before the error is raised.

    Args:
        subject: a Keras model created inside an IPUStrategy: the program that it ran last, or one compiled for the
            shapes of the arguments x and y, or else for those it was built for; a tf.function: the program for
            these arguments, or without any the one compiled last; what ipu_compiler.compile returned in a tf.Graph:
            the program that a session ran last, or would run; or an engine.program.program.Program.
        *arguments: arrays or tensors; for a model also `tf.TensorSpec`s.
        path: the page to write; None to write nothing.
        mode: for a model: "train", "test" or "predict"; None for the first of these that it has run in.
        batch_size: for a model that is compiled by this call; 32 by default.
        name: the program's name in the report; None for the model's or function's name.
        baseline: a report, or the file of one, for a section of comparisons.
        **keyword_arguments: keyword arguments of the function, or x and y of a model.

    Returns:
        The report: `data`, `fits`, `cycles`, `html()`, `json()`, `text()`, `perfetto()`, `save(path)`.

    Raises:
        ConfigurationError: the subject cannot be compiled; or the packages of the extra `report` are
            missing and there is a page to write.
        OutOfTileMemory: the program does not fit, and debug.allowOutOfMemory is not set.
        OSError: `path` cannot be written, or `baseline` cannot be read.
    """
    if path is not None:
        prepare()
    named = name or getattr(subject, "name", None) or getattr(subject, "__name__", "") or "program"
    try:
        report = _report_of(subject, arguments, keyword_arguments, mode, batch_size, named)
    except OutOfTileMemory as error:
        write_failure(error, named, path)
        raise
    if baseline is not None:
        before = baseline if isinstance(baseline, Report) else Report.load(Path(baseline))
        report = compare(before, report).report()
    if path is not None:
        announce_written(report.save(Path(path)))
    return report


def _report_of(
    subject: Any,
    arguments: tuple[Any, ...],
    keyword_arguments: dict[str, Any],
    mode: str | None,
    batch_size: int | None,
    name: str,
) -> Report:
    if isinstance(subject, EngineProgram):
        return report_of_program(subject, name)
    if is_model(subject):
        mode = mode or latest_mode(subject)
        given = {**dict(zip(("x", "y"), arguments, strict=False)), **keyword_arguments}
        if len(arguments) > 2 or not given.keys() <= {"x", "y"} or len(given) < len(arguments) + len(keyword_arguments):
            raise ConfigurationError(
                f"Expected the arguments x and y to profile a model. Received: {len(arguments)} arguments without a "
                f"name, and {', '.join(keyword_arguments) or 'none'} by name. Leave the others out."
            )
        if given or batch_size is not None:
            return report_of_compiled(program_of_model(subject, mode, batch_size=batch_size, **given), name)
        return report_of_model(subject, mode, name)
    from ipu._internal.compiler.calling import program_of_function

    program = program_of_function(subject, arguments, keyword_arguments)
    if program is None:
        from ipu._internal.graphs.program import program_of_results

        program = program_of_results(subject)
    if program is None:
        raise ConfigurationError(
            f"Expected a Keras model, a tf.function, a result of ipu_compiler.compile in a tf.Graph, or a compiled "
            f"program to profile. Received: {subject!r}, which has not run on the IPU. Run it first, in an IPUStrategy "
            f"or a session, or give the arguments a function is called with: ipu.profile(function, x, y)."
        )
    return report_of_compiled(program, name)


def report_of_model(model: object, mode: str, name: str) -> Report:
    """The report on the program that a model ran last, with measurements of its queues; or on the one it would run."""
    measured = vars(model).get("_ipu_queue_reports", {}).get(mode)
    feeding = None if measured is None else Feeding(**vars(measured))
    return report_of_compiled(program_of_model(model, mode), name, feeding)


def report_of_compiled(program: TracedProgram, name: str, feeding: Feeding | None = None) -> Report:
    """The report on a compiled program, for the configured chip and library options."""
    from ipu._internal.profiling.estimates import estimator_of

    on_chip = estimator_of(program)
    found = on_chip(configured_target())
    alone = found.pipeline is None
    helps = levers(program.chip_program(), found, program.recomputing_program) if alone and not found.fits else ()
    gradients = gradient_bytes(program.engine_program) if alone else 0
    return report_on(
        found,
        on_other_chips(found, on_chip),
        name=name,
        feeding=feeding,
        helps=helps,
        gradients=gradients,
        seeds=seeds(),
        source=program.source,
    )


def report_of_program(program: EngineProgram, name: str) -> Report:
    """Makes the report of an engine program."""
    return make_report(program, configured_target(), name=name, assumptions=configured_assumptions(), seeds=seeds())


def write_failure(error: OutOfTileMemory, name: str, path: str | PathLike[str] | None) -> Report | None:
    """Writes the report on a program that does not fit, noted in the error; None without a path or cost report."""
    if error.estimate is None or path is None:
        return None
    found, program = error.estimate, error.program
    again = None if program is None else lambda chip: estimate(program, chip, found.replicas, found.assumptions)
    others = on_other_chips(found, again)
    refusal = {"failure": str(error), "helps": error.levers, "source": error.source}
    report = report_on(found, others, name=name, seeds=seeds(), **refusal)
    report.save(Path(path))
    error.add_note(f"What lies where is in {path}.")
    return report


def seeds() -> dict[str, int]:
    """The known seeds of random generators, by the function that sets them."""
    from tensorflow.python.eager.context import global_seed

    from engine.ops.generators import RNG_STATE

    found = {"ipu.utils.reset_ipu_seed": int(RNG_STATE.read()[0])}
    seed = global_seed()
    return found if seed is None else {**found, "tf.random.set_seed": int(seed)}
