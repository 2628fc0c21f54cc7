"""Calls of functions of the host in a program: where they run, how they are interrupted, the errors they leave."""

from __future__ import annotations

from engine.errors import HostFunctionError
from engine.program.program import ComputeSet, Program
from engine.program.work.custom_calls import HostCall
from engine.runtime.value_checks import ValueChecks


class HostCalls:
    """The calls of host functions in the compute sets of a program."""

    def __init__(self, program: Program) -> None:
        self._functions = [each.work.function for each in program.compute_sets if isinstance(each.work, HostCall)]
        self._running = False
        self.checks = ValueChecks(program)
        self.run_c = any(not each.function.needs_gil and each.codelet is None for each in self._functions)
        """Whether C code runs, during which no signal is handled."""
        self.take_the_caller = (
            any(each.function.needs_gil for each in self._functions)
            and not program.queues
            and all(
                any(map(_runs_python, program.compute_sets[region.begin : region.end]))
                for region in program.regions
                if region.long
            )
        )
        """Whether the calling thread should run host functions, because it handles signals and has thread-local data.

        Not in programs that may run for long without calling Python: it would not see a signal.
        """

    @property
    def are_any(self) -> bool:
        """Whether the program calls the host."""
        return bool(self._functions)

    def check_idle(self) -> None:
        """Raises HostFunctionError if a host function calls the program that is calling it."""
        if self._running:
            raise HostFunctionError(
                f"Expected host functions ({', '.join(map(str, self._functions))}) to leave the program that calls "
                f"them alone. Received: a call of it. Write what is to be repeated as a loop in the program."
            )

    def begin(self) -> None:
        """Prepares for a call of the program; `end` must follow, also after an error."""
        self._running = bool(self._functions)
        for each in self._functions:
            each.begin()

    def end(self) -> None:
        """Ends a call, however it ended."""
        for each in self._functions:
            each.function.end()
        self._running = False

    def interrupt(self) -> None:
        """Asks the function that is running to end."""
        for each in self._functions:
            each.interrupt()

    def raise_failure(self, step: int, steps: int) -> None:
        """Raises the error of the function, or of the check of values, that has ended `step` of a call."""
        self.checks.raise_failure(step, steps)
        for each in self._functions:
            each.raise_failure()


def _runs_python(compute_set: ComputeSet) -> bool:
    return isinstance(compute_set.work, HostCall) and compute_set.work.function.function.needs_gil
