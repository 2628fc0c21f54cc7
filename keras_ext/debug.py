"""Switches for finding faults."""

from ipu.compiler.program import use_definitions

__all__ = ["use_definitions"]
