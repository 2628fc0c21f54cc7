"""What a program is to do where a half float cannot hold a result, and what counts as an exception."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StochasticRounding = Literal["off", "on", "replica-identical"]
Overflow = Literal["infinity", "nan", "clip"]
INVALID, DIVISION_BY_ZERO, OVERFLOW = EXCEPTIONS = ("inv", "div0", "oflo")
"""IEEE 754's invalid operation, division by zero and overflow, by the names that IPUConfig has for them."""
LARGEST_HALF = 65504.0
ROUNDING_SCOPE = "STOCHASTIC_ROUNDING"
"""The frontend attribute of operations in `ipu.scopes.stochastic_rounding`."""
SCOPE_ON, SCOPE_OFF = "THREESTATE_ON", "THREESTATE_OFF"
REPLICAS, VARYING = "REPLICAS", "VARYING"
"""A frontend attribute and its value: of instructions that one replica has for itself."""

# What the definitions and the emitters of stochastic rounding have in common.
INDEX_MIXING = (0x9E3779B1, 15)
KEY_MIXING = (0x85EBCA6B, 16)
"""Odd factors, and by how much the product is then shifted and xored with itself."""
LAST_FACTOR = 0xC2B2AE35
UNUSED_BITS = 9
"""Of the 32 random bits: 23 decide, which is exact for any f32 that becomes a normal half."""
EXPONENT = 0x7F800000
LEAST_EXPONENT = 113 << 23
"""The exponent of the smallest normal half; halves below lie as far apart as there."""
STEP = 10 << 23
"""How far an exponent lies above that of the distance between neighbouring halves."""
RECIPROCAL = 254 << 23
"""The exponents of a power of two and of its reciprocal add up to this."""


@dataclass(frozen=True, slots=True)
class FloatingPoint:
    """The floating-point behaviour that a program is compiled for. The default is IEEE 754's: to nearest, silently.

    `stochastic_rounding` acts where results become f16: everywhere, or only where all replicas have the same values.
    `exceptions` are those of EXCEPTIONS that end a call with an error.
    """

    stochastic_rounding: StochasticRounding = "off"
    nan_on_overflow: bool = False
    exceptions: frozenset[str] = frozenset()

    @property
    def overflow(self) -> Overflow:
        """What a finite number beyond the halves becomes: as on the chip once its rounding or its NaNs are asked for.

        The chip's unit clips to the largest half unless told to give NaN; without either wish it is IEEE's infinity.
        """
        if self.nan_on_overflow:
            return "nan"
        return "infinity" if self.stochastic_rounding == "off" else "clip"


IEEE = FloatingPoint()
