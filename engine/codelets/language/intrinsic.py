"""Functions that codelets call: those in their language, and those that write LLVM's instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

Float32 = Any
Int32 = Any
"""Types of an intrinsic's arguments and result, named by its annotations; `ir.Value` is an int64."""
ANNOTATED = {"ir.Value": "int64", "Float32": "float32", "Int32": "int32", "bool": "boolean", "None": "void"}


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
    """A function that writes instructions, by its `definition`, as `numba.extending.intrinsic` takes it.

    The definition gets a typing context and argument types, in which texts are literal types, and returns a signature
    and a function that emits code. Numba is not loaded before a codelet that calls the intrinsic is compiled.
    """

    def __init__(self, definition: Callable[..., Any]) -> None:
        self.__name__ = definition.__name__
        self.__doc__ = definition.__doc__
        self.definition = definition

    def __repr__(self) -> str:
        return f"<intrinsic {self.__name__}>"


def typed_intrinsic(definition: Callable[..., Any]) -> Any:
    """Decorator: an Intrinsic of a definition, whose types depend on those of its arguments."""
    return Intrinsic(definition)


# An intrinsic is called on values, without the builder, so its Python signature says nothing about calls.
def intrinsic(write: Callable[..., Any], named: Mapping[str, str] = MappingProxyType({})) -> Any:
    """Decorator: an Intrinsic that writes instructions with a builder, for values of the types of its annotations.

    `named` has names of Numba's types in place of annotations. A `str` is a text that is known when the codelet is
    compiled, and `Any` has any type.
    """

    def definition(typing_context: Any, *given: Any) -> tuple[Any, Callable[..., Any]]:
        from numba.core import types

        _, *names, result = {**write.__annotations__, **named}.values()
        names += names[-1:] * (len(given) - len(names))  # for *arguments
        kinds = [
            each if name in ("Any", "str") else getattr(types, ANNOTATED.get(name, name))
            for name, each in zip(names, given, strict=True)
        ]

        def emit(context: Any, builder: Any, _: Any, values: tuple[Any, ...]) -> Any:
            return write(
                builder, *(getattr(kind, "literal_value", each) for kind, each in zip(kinds, values, strict=True))
            )

        return getattr(types, ANNOTATED.get(result, result))(*kinds), emit

    definition.__name__, definition.__doc__ = write.__name__, write.__doc__
    return Intrinsic(definition)
