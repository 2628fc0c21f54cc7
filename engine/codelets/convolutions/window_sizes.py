"""Sizes of depthwise convolutions in windows, in a file that passes read without loading the compiler."""

from __future__ import annotations

from typing import NamedTuple

from engine.machine_code.processor import lanes, registers

LANES = lanes()
VECTOR = 4 * LANES
"""Bytes of an element of a window: a vector of channels."""
STEPS = (1, 2)
"""Columns between the inputs of neighbouring outputs."""
RUNS = (7, 5, 3, 2)
"""Columns of runs of taps that have kernels; other taps are runs of one."""
MOST_TAPS = 9
"""Most taps of runs of one, whose sums of a gradient are in registers together."""


MOST_PLANES = 16
"""Most inputs of a group."""


class ColumnRun(NamedTuple):
    """Taps of neighbouring columns, of outputs `step` columns apart; sums begin at the last one if `backward`."""

    step: int
    columns: int
    backward: bool = False


class FeatureGroup(NamedTuple):
    """Features of a group of a grouped convolution; a depthwise group has one input and one output.

    A window has a plane for each of the inputs: lane l of a plane has the input in the group of output l.
    """

    inputs: int = 1
    outputs: int = 1

    def before(self, outputs: int) -> int:
        """The inputs of all groups before an output that is the first of its group."""
        return outputs // self.outputs * self.inputs

    @property
    def fills_few_lanes(self) -> bool:
        """Whether one group leaves lanes idle, whole groups fill them, and its planes fit in a near cache."""
        few = 1 <= self.outputs < LANES and LANES % self.outputs == 0
        return few and self != DEPTHWISE and self.inputs <= MOST_PLANES


DEPTHWISE = FeatureGroup()


def most_columns(run: ColumnRun) -> int:
    """Most outputs of a row whose sums are in registers, with the sums of another row and a run's factors."""
    return 8 if registers() == 32 else 4 if run.columns <= 5 else 3


def most_runs(run: ColumnRun) -> int:
    """Runs whose sums of a gradient are in registers at a time, besides columns that the next output reads again."""
    kept = max(0, run.columns - run.step)
    return MOST_TAPS if run.columns == 1 else max(1, (registers() - 3) // (run.columns + kept))
