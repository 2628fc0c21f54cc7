"""A category of a configuration: typed attributes declared in a class body, checked whenever they are set."""

from __future__ import annotations

import copy
import difflib
import json
import textwrap
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any, ClassVar

from engine.errors import ConfigurationError
from ipu._internal.config.errors import UnknownAttribute
from ipu._internal.config.metadata import LOGGER, AttributeMetadata


class Option:
    """The declaration of one attribute, and the descriptor that reads and checks it."""

    def __init__(self, default: object, documentation: str, deprecated: str | None) -> None:
        self.default = default
        self.__doc__ = documentation
        self.deprecated = deprecated
        self.hint: Any = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, category: Category | None, owner: type) -> Any:
        return self if category is None else category._values[self.name]

    def __set__(self, category: Category, value: object) -> None:
        metadata = category.get_attribute_metadata(self.name)
        metadata.check_type(value)
        metadata.warn_if_deprecated()
        category._values[self.name] = value


def option(default: object, documentation: str, deprecated: str | None = None) -> Any:
    """Declares an attribute; its type is its annotation, `deprecated` names the replacement."""
    return Option(default, documentation, deprecated)


class Category:
    """Attributes and categories within; a subclass declares both by annotation, in the documented order."""

    _options: ClassVar[dict[str, Option]] = {}
    _categories: ClassVar[dict[str, type[Category]]] = {}
    _deprecated: ClassVar[str | None] = None

    def __init_subclass__(cls, deprecated: str | None = None) -> None:
        cls._deprecated = deprecated
        cls._options, cls._categories = dict(cls._options), dict(cls._categories)
        for name, hint in typing.get_type_hints(cls).items():
            declared = cls.__dict__.get(name)
            if isinstance(declared, Option):
                declared.hint = hint
                cls._options[name] = declared
            elif isinstance(hint, type) and issubclass(hint, Category):
                cls._categories[name] = hint

    def __init__(self, prefix: str = "", deprecated: str | None = None) -> None:
        deprecated = self._deprecated or deprecated
        values = {name: copy.deepcopy(declared.default) for name, declared in self._options.items()}
        self.__dict__.update(_values=values, _prefix=prefix, _inherited_deprecation=deprecated)
        for name, category in self._categories.items():
            self.__dict__[name] = category(f"{prefix}{name}.", deprecated)

    def __getattr__(self, name: str) -> Any:
        # Python looks up optional protocol methods this way; they are not misspelt options.
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise UnknownAttribute(self._unknown(name))

    def __setattr__(self, name: str, value: object) -> None:
        if name in self._categories:
            raise ConfigurationError(
                f"{self._prefix}{name} is a category and cannot be assigned to. "
                f"Set its attributes, such as {next(self.__dict__[name]._items())[0]}."
            )
        if name not in self._options:
            raise UnknownAttribute(self._unknown(name))
        object.__setattr__(self, name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._options, *self._categories})

    def _items(self) -> Iterator[tuple[str, Any]]:
        """Full name and value of every option here and below, in the declared order."""
        for name, value in self._values.items():
            yield self._prefix + name, value
        for name in self._categories:
            yield from self.__dict__[name]._items()

    def _unknown(self, name: str) -> str:
        """The message for an unknown name, with the nearest known one."""
        message = f"{self._prefix + name!r} is not a valid attribute of this config."
        known = {self._prefix + category for category in self._categories} | {full for full, _ in self._items()}
        last_parts = {full.rpartition(".")[2]: full for full in known}
        # The same name in another category is a better hint than a similar name.
        nearest = [last_parts[name]] if name in last_parts else []
        nearest += difflib.get_close_matches(self._prefix + name, known, n=1)
        nearest += [last_parts[last] for last in difflib.get_close_matches(name, last_parts, n=1)]
        return f"{message} Did you mean {nearest[0]!r}?" if nearest else message

    def _find(self, name: str) -> tuple[Category, str]:
        """The category that holds `name`, given relative to this one, and the last part of the name."""
        first, dot, rest = name.partition(".")
        if dot and first in self._categories:
            return self.__dict__[first]._find(rest)
        return self, name

    def get_attribute_metadata(self, attr: str) -> AttributeMetadata:
        """The metadata of an option or category.

        Args:
            attr: the full name, relative to the category this is called on.

        Returns:
            Its types, default, description and, of a deprecated one, what to use.

        Raises:
            UnknownAttribute: a ValueError: an unknown name.
        """
        category, last = self._find(attr)
        name = category._prefix + last
        if last in category._options:
            found = category._options[last]
            deprecated = found.deprecated or category._inherited_deprecation
            return AttributeMetadata(name, found.__doc__ or "", found.hint, found.default, deprecated)
        if last in category._categories:
            inner = category.__dict__[last]
            return AttributeMetadata(name, inner.__doc__ or "", deprecated=inner._inherited_deprecation)
        raise UnknownAttribute(f"Could not get attribute metadata for {attr!r}: {category._unknown(last)}")

    def to_dict(self) -> dict[str, Any]:
        """A flat dictionary of full names to plain values; enumerations become their numbers."""
        return {name: value.value if isinstance(value, Enum) else copy.deepcopy(value) for name, value in self._items()}

    def from_dict(self, dct: dict[str, Any]) -> None:
        """Sets the values of a dictionary from `to_dict`; nothing changes when any of them is wrong.

        Attributes the dictionary lacks keep their value, with a warning.

        Args:
            dct: full names, and plain values.

        Raises:
            ValueError: an unknown name.
            TypeError: a value of another type.
        """
        changes = []
        for name, plain in dct.items():
            relative = name.removeprefix(self._prefix)
            metadata = self.get_attribute_metadata(relative)
            changes.append((*self._find(relative), metadata.from_plain(plain)))
        for category, last, value in changes:
            category._values[last] = value
        for name, _ in self._items():
            if name not in dct:
                LOGGER.warning("%s is missing from the dictionary; it keeps its value.", name)

    def to_json(self) -> str:
        """The dictionary of `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def from_json(self, json_cfg: str) -> None:
        """Sets the values of a text from `to_json`, as `from_dict` does.

        Args:
            json_cfg: a JSON object of full names and plain values.

        Raises:
            ValueError: no JSON, or an unknown name.
            TypeError: a value of another type.
        """
        self.from_dict(json.loads(json_cfg))

    def __str__(self) -> str:
        return "\n".join(f"{name} = {value!r}" for name, value in self._items())

    def __repr__(self) -> str:
        lines = [f"{name} = {value!r}" for name, value in self._values.items()]
        lines += [f"{name} = {self.__dict__[name]!r}" for name in self._categories]
        return f"{type(self).__name__}:\n" + textwrap.indent("\n".join(lines), "  ")
