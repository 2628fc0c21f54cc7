"""The table of definitions, in NumPy, by HLO opcode."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.ir import Instruction
from engine.ir.opcodes import registering

Value = np.ndarray | tuple["Value", ...]
Definition = Callable[[Instruction, list[np.ndarray]], Value]

DEFINITIONS: dict[str, Definition] = {}
CUSTOM_CALLS: dict[str, Definition] = {}
definition, custom_call = registering(DEFINITIONS), registering(CUSTOM_CALLS)
"""Decorators: a function is the definition of the opcodes, or of the targets of custom calls.

A definition gets the instruction and its operands' values and returns the result: an array of the instruction's dtype
and dimensions, or a tuple of values for a tuple shape. The definition of an elementwise opcode accepts operands of any
common shape, whatever the instruction's shape is.
"""
