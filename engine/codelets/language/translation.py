"""The translation of a codelet: a module of LLVM IR with its functions, and Numba's implementations for numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import callconv, compiler, errors, types

from engine.codelets.language.frontend import OPTIONS, TARGET
from engine.codelets.language.intrinsic import Intrinsic
from engine.codelets.language.values import CompileTimeValue, Form
from engine.errors import InternalError

Written = tuple[ir.Function, Form]
"""A function, and the form of its result."""
Write = Callable[["Translation", Callable[..., Any], tuple[Form, ...]], Written]
"""Writes a function for arguments of some forms."""


class CallConvention(callconv.CPUCallConv):
    """Calling convention of Numba's own functions: their status is not returned, as functions of codelets have none."""

    def return_status_propagate(self, builder: ir.IRBuilder, status: Any) -> None:
        """Does nothing."""


class Translation:
    """Collects the functions of a codelet in one module, each once for the forms of its arguments.

    Where loops are written `in_vectors`, a function that has one is not inlined: it would only cost compile time.
    """

    def __init__(self, write: Write, in_vectors: bool = False) -> None:
        self.in_vectors = in_vectors
        flags = compiler.Flags()
        TARGET.options.parse_as_flags(flags, dict(OPTIONS))
        self.typing = TARGET.typing_context
        self.typing.refresh()
        TARGET.target_context.refresh()
        self.context = compiler._make_subtarget(TARGET.target_context, flags).subtarget(convention=CallConvention)
        self.library = self.context.codegen().create_library("codelet")
        self.module = self.library.create_ir_module("codelet")
        self._write = write
        self._functions: dict[Any, Written] = {}
        self._implementations: dict[Any, Any] = {}

    def function(self, function: Callable[..., Any], forms: tuple[Form, ...]) -> Written:
        """The function for arguments of these forms."""
        key = function, forms
        if key not in self._functions:
            self._functions[key] = self._write(self, function, forms)
        return self._functions[key]

    def declare(self, name: str, signature: ir.FunctionType) -> ir.Function:
        """A new function of the module."""
        function = ir.Function(self.module, signature, self.module.get_unique_name(name))
        function.attributes.add("nounwind")
        return function

    def forget(self, function: ir.Function) -> None:
        """Removes a function that nothing calls."""
        del self.module.globals[function.name]

    def implementation(self, function: Any, kinds: tuple[Any, ...]) -> tuple[Any, Any]:
        """Numba's implementation of a function for these types: a signature, and a function of a builder and arguments.

        Raises InternalError for a function that Numba does not implement without NumPy and its runtime.
        """
        key = function, kinds
        if key not in self._implementations:
            try:
                kind = self.typing.resolve_value_type(function)
                signature = kind.get_call_type(self.typing, kinds, {})
                code = self.context.get_function(kind, signature)
            except (ValueError, NotImplementedError, errors.NumbaError) as error:
                name = getattr(function, "__name__", function)
                raise InternalError(
                    f"Expected a function that Numba implements for numbers. Received: {name} of "
                    f"{', '.join(map(str, kinds))}. Write it by arithmetic, or by functions of engine.codelets."
                ) from error
            for library in getattr(code, "libs", ()):
                self.library.add_linking_library(library)
            self._implementations[key] = signature, code
        return self._implementations[key]

    def intrinsic(self, function: Intrinsic, kinds: tuple[Any, ...]) -> tuple[Any, Any]:
        """Signature and code of an intrinsic for these types; code takes context, builder, signature and values."""
        key = function, kinds
        if key not in self._implementations:
            self._implementations[key] = function.definition(self.typing, *kinds)
        return self._implementations[key]

    def unified(self, a: Any, b: Any) -> Any:
        """The type of a variable that has values of both. Raises InternalError for floats beside other numbers."""
        if a == b:
            return a
        found = self.typing.unify_types(a, b)
        if found is None or isinstance(found, types.Float | types.Complex):
            raise InternalError(f"Expected values of one type in a variable. Received: {a} and {b}.")
        return found


def is_plain(value: Any) -> bool:
    """Whether a value is a constant number, which a variable holds at run time."""
    return isinstance(value, CompileTimeValue) and isinstance(
        value.value, bool | int | float | complex | np.number | np.bool_
    )
