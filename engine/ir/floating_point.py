"""Rounding and overflow of results in float16, and the floating-point exceptions that a program detects."""

from __future__ import annotations

from typing import Literal

from engine.frozen import frozen

StochasticRounding = Literal["off", "on", "replica-identical"]
Overflow = Literal["infinity", "nan", "clip"]
INVALID, DIVISION_BY_ZERO, OVERFLOW = EXCEPTIONS = ("inv", "div0", "oflo")
"""IEEE 754's invalid operation, division by zero and overflow, by IPUConfig's names."""
LARGEST_HALF = 65504.0
EXPONENTS = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}
"""The bits that are all set in infinities and NaNs only."""
MANTISSAS = {"f16": 0x03FF, "bf16": 0x007F, "f32": 0x007FFFFF, "f64": 0x000FFFFFFFFFFFFF}
"""The bits of which at least one is set in NaNs."""
ROUNDING_SCOPE = "STOCHASTIC_ROUNDING"
"""The frontend attribute of operations in `ipu.scopes.stochastic_rounding`."""
SCOPE_ON, SCOPE_OFF = "THREESTATE_ON", "THREESTATE_OFF"
REPLICAS, VARYING = "REPLICAS", "VARYING"
"""A frontend attribute and its value, for instructions whose values differ between replicas."""

# Shared by the definitions and the emitters of stochastic rounding.
INDEX_MIXING = (0x9E3779B1, 15)
KEY_MIXING = (0x85EBCA6B, 16)
"""Odd factor, and shift of the product before it is xored with itself."""
LAST_FACTOR = 0xC2B2AE35
UNUSED_BITS = 9
"""Number of the 32 random bits that are dropped: 23 decide, which is exact for any f32 that becomes a normal
float16.
"""
EXPONENT = 0x7F800000
LEAST_EXPONENT = 113 << 23
"""The exponent of the smallest normal float16; the spacing below it is the same."""
STEP = 10 << 23
"""The difference between an exponent and the exponent of the spacing of float16 values there."""
RECIPROCAL = 254 << 23
"""The exponents of a power of two and of its reciprocal add up to this."""


@frozen
class FloatingPoint:
    """The floating-point behaviour that a program is compiled for. The default is IEEE 754's: to nearest, no traps.

    `stochastic_rounding` applies where results become f16: everywhere, or only where all replicas have equal values.
    `exceptions` are those of EXCEPTIONS that end a call with an error.
    """

    stochastic_rounding: StochasticRounding = "off"
    nan_on_overflow: bool = False
    exceptions: frozenset[str] = frozenset()

    @property
    def overflow(self) -> Overflow:
        """The result of a finite number beyond float16: as on the chip if its rounding or its NaNs are requested.

        The chip's unit clips to the largest float16 unless set to give NaN; with neither option it is IEEE's infinity.
        """
        if self.nan_on_overflow:
            return "nan"
        return "infinity" if self.stochastic_rounding == "off" else "clip"

    @property
    def rounds_to_nearest(self) -> bool:
        """Whether results have IEEE 754's rounding and overflow, whatever exceptions are detected."""
        return self.overflow == "infinity"


IEEE = FloatingPoint()
