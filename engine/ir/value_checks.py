"""Checks of values that TensorFlow's kernels make and HLO does not: custom calls (array, token) -> token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Literal

import numpy as np

from engine.errors import InvalidValue
from engine.frozen import frozen
from engine.ir.module import Instruction, Module
from engine.ir.op_names import layer_of
from engine.ir.shape import Shape

VALUE_CHECK = "ipu.value_check"
"""(array, token s32[]) -> token; the config is a ValueCheck's."""
CHECK_TOKEN = "value_check_token"
"""The name of a token's variable, with which its parameter's name begins."""

CheckKind = Literal["range", "nonzero", "finite"]


@frozen
class ValueCheck:
    """The values that an operation takes.

    - range: low <= value < bound, `lows[e % len(lows)]` and `bounds[e % len(bounds)]` for element e. A float is
      truncated to an integer, NaN is outside.
    - nonzero, finite: as the names say.

    `lows` and `bounds` are equally many. `operation` is TensorFlow's, `message` the beginning of the error, with
    {value}, its {position} (as "[2,1]"), {low} and {bound}.
    """

    kind: CheckKind
    operation: str
    message: str
    lows: tuple[int, ...] = (0,)
    bounds: tuple[int, ...] = (0,)

    def config(self) -> str:
        """The backend_config of the check's custom call."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, instruction: Instruction) -> ValueCheck:
        """The check that a custom call makes."""
        values: dict[str, Any] = json.loads(instruction["backend_config"])
        return cls(**{**values, "lows": tuple(values["lows"]), "bounds": tuple(values["bounds"])})


def is_value_check(instruction: Instruction) -> bool:
    """Whether an instruction checks values."""
    return instruction.opcode == "custom-call" and instruction.get("custom_call_target") == VALUE_CHECK


def value_checks(module: Module) -> Iterator[Instruction]:
    """All checks of a module, including those in loops and branches."""
    return (i for i in module.instructions() if is_value_check(i))


def without_checks(module: Module) -> Module:
    """The module without the checks of TensorFlow's functions, which nothing depends on; it is changed."""
    for computation in module.computations():
        computation.instructions[:] = [each for each in computation.instructions if not is_value_check(each)]
    return module


def invalid_value(
    check: ValueCheck, shape: Shape, op_name: str, element: int, value: object, step: int, steps: int
) -> InvalidValue:
    """The error for an element that fails, in `step` of a call, from 0 on."""
    position = np.unravel_index(element, shape.dimensions) if shape.rank else ()
    where = "[" + ",".join(str(int(each)) for each in position) + "]"
    low, bound = (limits[element % len(limits)] for limits in (check.lows, check.bounds))
    layer = layer_of(op_name)
    said = int(value) if isinstance(value, np.floating) and np.isfinite(value) and value == int(value) else value
    text = check.message.format(value=said, position=where if shape.rank else "", bound=bound, low=low)
    error = InvalidValue(
        f"{text} It comes from {check.operation}{f' of {layer!r}' if layer else ''} ({op_name}), in step {step + 1} of "
        f"the execution's {steps}. Variables have the values from before that step."
    )
    error.operation, error.op_name, error.layer = check.operation, op_name, layer
    error.position, error.value, error.step = tuple(int(each) for each in position), value, step
    return error
