"""What names raise that do not exist; each is what Python raises for the same statement."""

from engine.errors import IPUError


class MissingName(IPUError, AttributeError):
    """`module.name` where there is none."""


class MissingImport(IPUError, ImportError):
    """`from module import name` where there is none."""


class MissingModule(IPUError, ModuleNotFoundError):
    """`import module.name`, or `from module.name import ...`, where there is no such module."""
