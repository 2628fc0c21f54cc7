"""Errors of exports, also of the classes that their callers catch."""

from __future__ import annotations

from engine.errors import ConfigurationError


class ExportTypeError(ConfigurationError, TypeError):
    """An argument of an export has the wrong type."""
