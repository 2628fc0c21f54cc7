"""The error of a floating-point exception, with its message."""

from __future__ import annotations

from engine.errors import FloatingPointException
from engine.ir.origin import Origin

MEANINGS = {
    "inv": "no invalid operation, as IEEE 754 defines it",
    "div0": "no division by zero",
    "oflo": "no overflow",
}
ADVICE = {
    "inv": "Look for 0/0, infinity - infinity, and roots or logarithms of negative numbers",
    "div0": "Add a small number to the divisor, or keep zeros away from it",
    "oflo": "Scale the values down, or compute in a wider type",
}


def exception(name: str, origin: Origin, elements: int, step: int, steps: int = 1) -> FloatingPointException:
    """The error for exception `name`, raised by `elements` elements of an operation in `step`, from 0 on."""
    where = f" in layer {origin.layer!r}" if origin.layer else ""
    named = f" ({origin.op_name})" if origin.op_name else ""
    of_all = f"{elements} of {origin.elements} elements" if origin.elements else f"{elements} elements"
    error = FloatingPointException(
        f"Expected {MEANINGS[name]}, as IPUConfig.floating_point_behaviour.{name} asks. Received: {of_all} of "
        f"{origin.opcode}{where}{named} in step {step + 1} of {steps}. Variables have the values from before the "
        f"call. {ADVICE[name]}; or set floating_point_behaviour.{name} to False."
    )
    error.exception, error.opcode, error.op_name = name, origin.opcode, origin.op_name
    error.layer, error.step, error.elements = origin.layer, step, elements
    return error
