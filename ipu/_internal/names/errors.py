"""Errors for names that do not exist; each is of the class that Python raises for the same statement."""

from engine.errors import IPUError


class MissingName(IPUError, AttributeError):
    """`module.name` does not exist."""


class MissingImport(IPUError, ImportError):
    """The name in `from module import name` does not exist."""


class MissingModule(IPUError, ModuleNotFoundError):
    """The module in `import module.name` or `from module.name import ...` does not exist."""
