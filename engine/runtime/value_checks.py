"""The checks of values of a program, and the error of a check that has failed in a call."""

from __future__ import annotations

import numpy as np

from engine.ir.value_checks import invalid_value
from engine.program.program import Program
from engine.program.work.custom_calls import ValueCheckWork


class ValueChecks:
    """The checks of values in the compute sets of a program, in order."""

    def __init__(self, program: Program) -> None:
        self._checks = [each.work for each in program.compute_sets if isinstance(each.work, ValueCheckWork)]

    def raise_failure(self, step: int, steps: int) -> None:
        """Raises the error of the first check that has failed in `step`, if any has, and forgets all failures."""
        for each in self._checks:
            found = np.flatnonzero(each.record.words[:, 0])
            if found.size:
                element, bits = each.record.words[found[0]].tolist()
                for other in self._checks:
                    other.record.words[...] = 0
                value = np.array([bits], np.int64).view(np.uint8)[: each.shape.dtype.itemsize].view(each.shape.dtype)[0]
                raise invalid_value(each.check, each.shape, each.op_name, element - 1, value, step, steps)
