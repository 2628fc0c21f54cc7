"""Functions that codelets call: those in their language, and those that write LLVM's instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

Definition = Callable[..., Any]


class Inner:
    """A function that codelets call; compiled into its callers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.function = function

    if TYPE_CHECKING:

        def __call__(self, *arguments: Any) -> Any: ...

    def __repr__(self) -> str:
        return f"Inner({self.__name__})"


class Intrinsic:
    """Decorates like `numba.extending.intrinsic`, but without loading Numba until a codelet that calls it is compiled.

    The definition takes a typing context and argument types, in which texts are literal types, and returns a signature
    and a function that emits code.
    """

    def __init__(self, definition: Definition) -> None:
        self.__name__ = definition.__name__
        self.__doc__ = definition.__doc__
        self.definition = definition

    def __repr__(self) -> str:
        return f"<intrinsic {self.__name__}>"


# An intrinsic is defined on types and called on values, so its Python signature says nothing about calls.
def intrinsic(definition: Definition) -> Any:
    """Decorator: an Intrinsic of a definition."""
    return Intrinsic(definition)
