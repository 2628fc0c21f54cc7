"""The table of definitions, in NumPy, by HLO opcode."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.ir import Instruction

Value = np.ndarray | tuple["Value", ...]
Definition = Callable[[Instruction, list[np.ndarray]], Value]

DEFINITIONS: dict[str, Definition] = {}


def definition(*opcodes: str) -> Callable[[Definition], Definition]:
    """Registers the decorated function as the definition of the opcodes.

    A definition gets the instruction and its operands' values and returns the result: an array of the
    instruction's dtype and dimensions, or a tuple of values for a tuple shape. The definition of an elementwise opcode
    accepts operands of any common shape, whatever the instruction's shape is.
    """

    def register(function: Definition) -> Definition:
        for opcode in opcodes:
            assert opcode not in DEFINITIONS, opcode
            DEFINITIONS[opcode] = function
        return function

    return register
