"""Switches for finding faults."""

from ipu._internal.compiler.program import use_definitions

__all__ = ["use_definitions"]
