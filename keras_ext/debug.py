"""Switches for debugging."""

from ipu._internal.compiler.program import use_definitions

__all__ = ["use_definitions"]
