"""Configuration errors that are also of the built-in class a caller would catch."""

from __future__ import annotations

from engine.errors import ConfigurationError


class WrongAttributeType(ConfigurationError, TypeError):
    """A value whose type is not exactly the attribute's."""


class UnknownAttribute(ConfigurationError, AttributeError):
    """A name the configuration does not have; an AttributeError, too, so that `hasattr` returns False."""


class NotConfigured(ConfigurationError, RuntimeError):
    """The configured system is read before there is one."""
