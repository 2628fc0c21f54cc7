"""`get_pipeline_schedule` and `plot_pipeline`: the schedule that the engine executed, as rows and as a chart."""

from __future__ import annotations

from os import PathLike

from engine.partition.pipeline import Pipelined
from engine.partition.pipeline_report import PipelineReport
from engine.partition.schedule import Row, Schedule
from engine.partition.schedule_table import ScheduleRows
from ipu._internal.compiler.program import TracedProgram
from keras_ext.extension import Extension
from keras_ext.pipelining.chart import PipelineChart, write_chart
from keras_ext.pipelining.errors import StageAssignmentError
from keras_ext.types import KerasModel

_LATEST = "_ipu_latest_schedules"


class PipelineSchedules(Extension):
    """The methods about schedules."""

    def get_pipeline_schedule(self: KerasModel, mode: str | None = None) -> list[Row]:
        """The work of each IPU in each slot of one execution of the pipeline that ran last.

        Args:
            mode: "train", "test" or "predict" for the last `fit`, `evaluate` or `predict`; None for the last
                of all.

        Returns:
            A list of rows (slot, ipu, stage, kind, micro_batch), which prints as a table with a line for each IPU and
            which notebooks draw.

        Raises:
            RuntimeError: a model that has not run as a pipeline.
        """
        return ScheduleRows.of(schedule_of(self, mode))

    def plot_pipeline(
        self: KerasModel, path: str | PathLike[str] = "pipeline.svg", mode: str | None = None
    ) -> PipelineChart:
        """Draws the schedule that ran last as a Gantt chart, a row for each IPU, to a file.

        Args:
            path: a file of SVG or HTML, by its ending.
            mode: "train", "test" or "predict" for the last `fit`, `evaluate` or `predict`; None for the last
                of all.

        Returns:
            The chart, which notebooks show, with its `path`.

        Raises:
            RuntimeError: a model that has not run as a pipeline.
            ValueError: a path that does not end in .svg or .html.
        """
        return write_chart(schedule_of(self, mode), self.name, path)


def note_pipeline(model: KerasModel, mode: str, program: TracedProgram) -> None:
    """Notes the pipeline that the model is about to run: a PipelineProgram."""
    from ipu._internal.compiler.pipelining import PipelineProgram  # a model without stages does not need it

    assert isinstance(program, PipelineProgram)
    latest = vars(model).setdefault(_LATEST, {})
    latest.pop(mode, None)
    latest[mode] = program.pipelined


def schedule_of(model: KerasModel, mode: str | None = None) -> Schedule:
    """The schedule that ran last, in a mode or in any. Raises StageAssignmentError where there is none."""
    return _latest_pipeline(model, mode).schedule


def pipeline_report(model: KerasModel, mode: str | None = None) -> PipelineReport:
    """Storage of the pipeline that ran last on each IPU, and the IPUs' waiting times. Raises as `schedule_of`."""
    return _latest_pipeline(model, mode).report


def _latest_pipeline(model: KerasModel, mode: str | None) -> Pipelined:
    latest = vars(model).get(_LATEST, {})
    if mode is None and latest:
        mode = next(reversed(latest))
    if mode not in latest:
        asked = "a pipeline" if mode is None else f"a pipeline in mode {mode!r}"
        raise StageAssignmentError(
            f"Expected a model that has run as {asked}. Received: {model.name!r}, which has not. Assign its layers to "
            "pipeline stages and call fit, evaluate or predict first."
        )
    return latest[mode]
