"""Metadata of one attribute of a configuration: name, type, default, documentation, deprecation."""

from __future__ import annotations

import copy
import logging
import types
import typing
from enum import Enum
from typing import Any

from ipu._internal.config.errors import WrongAttributeType
from ipu._internal.types import Nest

TypeHint: typing.TypeAlias = Any  # a class, or a union or list of some
UNIONS: tuple[Any, ...] = (typing.Union, types.UnionType)
LOGGER = logging.getLogger("ipu.config")


class AttributeMetadata:
    """The description of one option, or of one category (which has neither type nor default).

    Args:
        name: the full name, relative to the root of the configuration.
        documentation: what `__doc__` says.
        hint: the type, a class or a union or list of some; None for a category.
        default: the default value; None for a category.
        deprecated: the replacement; None if it is not deprecated.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        hint: TypeHint = None,
        default: object = None,
        deprecated: str | None = None,
    ) -> None:
        self.__doc__ = documentation
        self._name = name
        self._hint = hint
        self._default = default
        self._deprecated_msg = deprecated

    @property
    def name(self) -> str:
        """The full name of the option or category, relative to the root of the configuration."""
        return self._name

    @property
    def type(self) -> str | None:
        """The type as a string, a plain name or a type hint; None for a category."""
        if self._hint is None:
            return None
        return str(self._hint) if typing.get_origin(self._hint) is UNIONS[0] else hint_name(self._hint)

    @property
    def default(self) -> Any:
        """A copy of the default value; None for a category."""
        return copy.deepcopy(self._default)

    @property
    def deprecated(self) -> bool:
        """Whether the option or category, or a category around it, is deprecated."""
        return self._deprecated_msg is not None

    @property
    def deprecated_msg(self) -> str | None:
        """The replacement; None when not deprecated."""
        return self._deprecated_msg

    def check_type(self, value: object) -> bool:
        """Checks that the type of a value is exactly an allowed one: a bool is no int, nor an int a float.

        Args:
            value: the value.

        Returns:
            True.

        Raises:
            TypeError: `value` is of another type.
        """
        if not matches(value, self._hint):
            raise WrongAttributeType(
                f"Trying to set {self._name} to {value!r}, but it must be of type {plain_name(self._hint)}. "
                f"Received a value of type {type(value).__name__}."
            )
        return True

    def warn_if_deprecated(self) -> None:
        """Logs a warning if the option or category is deprecated."""
        if self.deprecated:
            LOGGER.warning("%s has been deprecated: %s", self._name, self._deprecated_msg)

    def from_plain(self, value: object) -> object:
        """The value of a saved form: where an enumeration is expected, its member for a plain number.

        Args:
            value: a value of `to_dict` or `to_json`.

        Returns:
            The member of that number, or a copy of `value`.

        Raises:
            TypeError: `value` is neither of the attribute's type nor the number of a member.
        """
        enumeration = next((hint for hint in alternatives(self._hint) if is_enumeration(hint)), None)
        if enumeration is not None and type(value) is int and value in {member.value for member in enumeration}:
            return enumeration(value)
        self.check_type(value)
        return copy.deepcopy(value)


def is_enumeration(hint: TypeHint) -> bool:
    """Whether a type hint names an enumeration."""
    return isinstance(hint, type) and issubclass(hint, Enum)


def alternatives(hint: TypeHint) -> tuple[Any, ...]:
    """The members of a union; any other hint as the only one."""
    return typing.get_args(hint) if typing.get_origin(hint) in UNIONS else (hint,)


def hint_name(hint: TypeHint) -> str:
    """A type by its bare name, a union of types by their names."""
    return " | ".join(alternative.__name__ for alternative in alternatives(hint))


def plain_name(hint: TypeHint) -> str:
    """A type as Python writes it: unions by bars, without the module `typing`."""
    if hint is None or hint is ...:
        return {None: "None", ...: "..."}[hint]
    given = typing.get_args(hint)
    if typing.get_origin(hint) in UNIONS:
        return " | ".join(map(plain_name, given))
    return f"{typing.get_origin(hint).__name__}[{', '.join(map(plain_name, given))}]" if given else hint.__name__


def matches(value: Nest, hint: TypeHint) -> bool:
    """Whether `hint` allows the exact type of `value`: a bool is no int, nor an int a float."""
    origin: Any = typing.get_origin(hint)
    if origin in UNIONS:
        return any(matches(value, alternative) for alternative in typing.get_args(hint))
    if origin in (list, tuple):
        element = typing.get_args(hint)[0]
        return type(value) is origin and all(matches(item, element) for item in value)
    return type(value) is hint
