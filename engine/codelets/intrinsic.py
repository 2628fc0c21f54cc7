"""Functions that codelets call and that are written in LLVM's instructions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

Definition = Callable[..., Any]


class Intrinsic:
    """As `numba.extending.intrinsic`, but without loading Numba until a codelet that calls it is compiled.

    The definition takes a typing context and argument types, and returns a signature and a function that emits code.
    """

    def __init__(self, definition: Definition, prefer_literal: bool) -> None:
        self.__name__ = definition.__name__
        self.__doc__ = definition.__doc__
        self._definition, self._prefer_literal = definition, prefer_literal

    @cached_property
    def _numba_type_(self) -> Any:
        """The attribute by which Numba asks a value for its type."""
        from numba.core import types
        from numba.core.typing.templates import make_intrinsic_template

        template = make_intrinsic_template(
            self, self._definition, self.__name__, prefer_literal=self._prefer_literal, kwargs={}
        )
        return types.Function(template)

    def __repr__(self) -> str:
        return f"<intrinsic {self.__name__}>"


# An intrinsic is defined on types and called on values, so its Python signature says nothing about calls.
def intrinsic(definition: Definition | None = None, *, prefer_literal: bool = False) -> Any:
    """Decorator: an Intrinsic of a definition. With `prefer_literal` it receives constants as literal types."""
    if definition is None:
        return lambda given: Intrinsic(given, prefer_literal)
    return Intrinsic(definition, prefer_literal)
