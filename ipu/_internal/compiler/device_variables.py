"""Variables that programs read and update: the strategy's own, and those from outside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from tensorflow.python.ops import resource_variable_ops

from engine.runtime.buffers import DeviceBuffer
from ipu._internal.compiler.handles import HostValue, present_values
from ipu._internal.types import Variable


class DeviceVariable(Protocol):
    """A variable that a program reads and updates on the device."""

    escaped: bool
    """Whether its `host` may have been written since the last execution, by the handle."""

    @property
    def name(self) -> str:
        """A name for messages and reports."""

    @property
    def lock_holder(self) -> Any:
        """The object whose lock executions with the variable hold."""

    def device_buffer(self) -> DeviceBuffer:
        """The device's copy, with the present value."""

    def device_written(self, run: object = None) -> None:
        """Notes that an execution, that of `run`, has written the device's copy."""


class HostVariable:
    """A variable from outside the strategy, with IPUVariable's interface: executions look for writes by its handle."""

    escaped = True

    def __init__(self, handle: Any, variable: Variable = None) -> None:
        self.variable = variable
        self._handle, self.host = handle, HostValue(handle)
        self._buffer: DeviceBuffer | None = None

    @property
    def name(self) -> str:
        """The variable's name."""
        return "variable" if self.variable is None else self.variable.name

    @property
    def lock_holder(self) -> Any:
        """The object whose lock executions with the variable hold."""
        return self._handle

    def numpy(self) -> np.ndarray:
        """The present value."""
        return present_values([self.host])[0].numpy()

    def device_buffer(self, present: Any = None) -> DeviceBuffer:
        """A device copy of the variable's present value; `present` as for `HostValue.copied_to`."""
        self._buffer = self.host.copied_to(self._buffer, present)
        return self._buffer

    def device_written(self, run: object = None) -> None:
        """Copies the updated value back."""
        assert self._buffer is not None
        if self.variable is None or isinstance(self.variable, resource_variable_ops.BaseResourceVariable):
            self.host.replace(self._buffer.value)
        else:  # a strategy's, which may keep it several times
            self.variable.assign(self._buffer.read())


def device_buffers(variables: Iterable[DeviceVariable]) -> list[DeviceBuffer]:
    """The device's copies of a program's variables, with the present values; the caller holds the locks."""
    for each in variables:
        if each.escaped:
            return _compared(variables)
    return [each.device_buffer() for each in variables]


def _compared(variables: Iterable[DeviceVariable]) -> list[DeviceBuffer]:
    escaped: list[Any] = [each for each in variables if each.escaped]
    present = zip(escaped, present_values([each.host for each in escaped]), strict=True)
    found = {id(each): each.device_buffer(tensor) for each, tensor in present}
    return [found.get(id(each)) or each.device_buffer() for each in variables]


def written_meanwhile(variables: Iterable[DeviceVariable]) -> list[DeviceVariable]:
    """Variables of a program that were written by their handles since it began."""
    escaped: list[Any] = [each for each in variables if each.escaped]
    return [each for each in escaped if each.host.was_written()]
