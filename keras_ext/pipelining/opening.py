"""Checks whether a subclass of `Model` opens PipelineStage scopes in its `call`, before that is traced."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeGuard

from ipu._internal.function_code import closed_over, codes_of
from keras_ext.pipelining.graphs import graphs_of, is_model
from keras_ext.pipelining.stage import PipelineStage, noted_stage
from keras_ext.types import KerasLayer, KerasModel

NEVER_OPEN = frozenset(
    {"absl", "engine", "ipu", "jax", "keras", "keras_ext", "ml_dtypes", "numpy", "tensorflow", "tf_keras"}
) | frozenset(sys.stdlib_module_names)
"""Packages whose functions open no scopes; functions of others, `__main__` among them, are inspected."""


def opens_stages(model: KerasModel) -> bool:
    """Whether layers of the model were created in scopes, or the code of its class, or a function it names, opens some.

    Subclasses of `Model` inside it are checked, too. The code is inspected and not run: its names are looked up where
    it was defined. A scope opened elsewhere is an error when a step is traced.
    """
    layers = model._flatten_layers(include_self=False)
    return any(noted_stage(layer) is not None for layer in layers) or _code_opens(model)


def opens_inside(layer: KerasLayer) -> TypeGuard[KerasModel]:
    """Whether a layer is a subclass of `Model` that opens scopes, or has layers created in a scope not its own."""
    if not is_subclass(layer):
        return False
    inner = {noted_stage(each) for each in layer._flatten_layers(include_self=False)}
    return bool(inner - {None, noted_stage(layer)}) or _code_opens(layer)


def is_subclass(layer: KerasLayer) -> TypeGuard[KerasModel]:
    """Whether a layer is a model with a `call` of its own."""
    return is_model(layer) and graphs_of(layer).kind(layer) == "subclass"


def _code_opens(model: KerasModel) -> bool:
    """Whether the code of the model's class opens scopes, or that of a subclass of `Model` inside it."""
    return any(_class_opens(each) for each in model._flatten_layers() if each is model or is_subclass(each))


def _class_opens(model: KerasModel) -> bool:
    seen: set[int] = set()
    members = [member for base in type(model).__mro__ if _is_looked_into(base) for member in vars(base).values()]
    return any(_opens(member, seen) for member in (*members, *vars(model).values()))


def _opens(value: object, seen: set[int]) -> bool:
    """Whether a function, or one that it names, names PipelineStage; False for anything else."""
    if value is PipelineStage:
        return True
    function = _function(value)
    if function is None or id(function) in seen:
        return False
    seen.add(id(function))
    names = {name for code in codes_of(function.__code__) for name in code.co_names}
    if PipelineStage.__name__ in names:
        return True
    return any(_opens(each, seen) for each in (*_named(names, function.__globals__), *closed_over(function)))


def _function(value: object) -> FunctionType | None:
    """The function behind a callable or property, if it is one to inspect."""
    while not isinstance(value, FunctionType):
        if isinstance(value, staticmethod | classmethod | MethodType):
            value = value.__func__
        elif isinstance(value, functools.partial):
            value = value.func
        elif isinstance(value, property):
            value = value.fget
        else:
            return None
    return value if _is_looked_into(value) else None


def _named(names: set[str], variables: dict[str, Any]) -> Iterator[Any]:
    """The values of names in a module, and in those modules and classes that they name."""
    for name in names:
        value = variables.get(name)
        yield value
        if isinstance(value, type) and _is_looked_into(value):
            yield from vars(value).values()
        elif isinstance(value, ModuleType) and _is_looked_into(value):
            yield from (vars(value)[inner] for inner in names if inner in vars(value))


def _is_looked_into(value: object) -> bool:
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] not in NEVER_OPEN
