"""LLVM IR's types and builder, where llvmlite is installed; object code that is given runs without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class _Missing(type):
    """The type of a stand-in for `llvmlite.ir` where that is not installed.

    Any name can be read from it: constants, types and classes of codelets can be defined, but no code can be emitted.
    """

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__


if TYPE_CHECKING:
    from llvmlite import ir
else:
    try:
        from llvmlite import ir
    except ModuleNotFoundError:

        class ir(metaclass=_Missing):
            """Stands for `llvmlite.ir`."""


class BFloat(ir.Type):
    """LLVM's bfloat, which llvmlite does not name."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat)

    def __hash__(self) -> int:
        return hash(BFloat)


class Splat(ir.Constant):
    """A vector constant of one number in all lanes; its text, which LLVM parses, has the number once."""

    def _get_reference(self) -> str:
        return f"splat ({self.constant[0]})"


def call_named(builder: ir.IRBuilder, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
    """Calls a function, declared in the module on first use."""
    known = builder.module.globals.get(name)
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(known or ir.Function(builder.module, signature, name), arguments)


__all__ = ["BFloat", "Splat", "call_named", "ir"]
