"""State of layers, optimizers and metrics of which configurations and weights say nothing, so that a copy lacks it."""

from __future__ import annotations

import collections
import enum
import functools
import random
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from engine.errors import ConfigurationError
from keras_ext import python_state
from keras_ext.origins import is_programs, is_symbolic

SET_BY_KERAS = (
    *("name", "build", "built", "history", "stop_training", "stop_evaluating", "stop_predicting"),
    *("train_function", "test_function", "predict_function", "train_tf_function"),
    *("compiled_loss", "compiled_metrics"),
)
"""Attributes that Keras sets itself, most of them in calls of a model."""
PLAIN = bool | int | float | complex | str | bytes | np.generic | None
SINGLE = type | types.ModuleType | types.BuiltinFunctionType | np.ufunc | enum.Enum
"""Objects that are equal to themselves alone."""


def check_attributes(pairs: Iterable[tuple[Any, Any]]) -> None:
    """Raises ConfigurationError for attributes and vocabularies of the first of a pair that the other, a copy, lacks.

    Of Keras' own layers these are attributes that programs add and numbers and text that they change; of a program's
    classes also values of any kind, and of private attributes that the class names.
    """
    pairs = list(pairs)
    parts = [part for old, new in pairs for part in zip((old, *_variables(old)), (new, *_variables(new)), strict=False)]
    comparison = CopyComparison({id(old): new for old, new in parts})
    for old, new in pairs:
        lost = [name for name in _names(old) if comparison.is_lost(name, old, new)]
        if hasattr(old, "get_vocabulary") and list(old.get_vocabulary()) != list(new.get_vocabulary()):
            lost.append("vocabulary")
        if lost:
            raise ConfigurationError(
                f"Expected attributes that {type(old).__name__}'s constructor sets from its configuration. Received: "
                f"{', '.join(sorted(lost))} of {old.name!r}, which the program has set. Build the model in `with "
                f"ipu.accelerate():`."
            )


def _names(old: Any) -> Iterator[str]:
    named = {name for kind in type(old).__mro__ if is_programs(kind) for name in _names_in(kind)}
    for name in vars(old):
        is_set = name[0] != "_" and hasattr(old, "call")  # Keras sets others of optimizers and metrics
        if (name in named or is_set) and name not in SET_BY_KERAS:
            yield name


@functools.lru_cache(maxsize=256)
def _names_in(kind: type) -> frozenset[str]:
    """The names in the code of a class' methods, as attributes or as text."""
    functions = [part for value in vars(kind).values() for part in _functions_of(value)]
    codes, found = [function.__code__ for function in functions], set()
    while codes:
        code = codes.pop()
        found |= {*code.co_names, *(each for each in code.co_consts if isinstance(each, str))}
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return frozenset(found)


def _functions_of(value: Any) -> list[types.FunctionType]:
    parts = (value, *(getattr(value, name, None) for name in ("__func__", "fget", "fset", "__wrapped__")))
    return [part for part in parts if isinstance(part, types.FunctionType)]


def _variables(part: Any) -> list[Any]:
    listed = getattr(part, "variables", ())
    return list(listed() if callable(listed) else listed)


class CopyComparison:
    """Compares values of an original and of its copy; `copied` has copies of its parts, by the ids of the parts."""

    def __init__(self, copied: Mapping[int, Any]) -> None:
        self._copied = copied
        self._seen: dict[tuple[int, int], tuple[Any, Any]] = {}  # the values, so that no other gets their ids

    def is_lost(self, name: str, old: Any, new: Any) -> bool:
        """Whether a copy lacks an attribute, or has another value."""
        if name not in vars(new):
            return True
        value, other = vars(old)[name], vars(new)[name]
        if is_programs(type(old)):
            return self.differ(value, other)
        return isinstance(value, PLAIN) and not (isinstance(other, PLAIN) and _are_same(value, other))

    def differ(self, value: Any, other: Any) -> bool:
        """Whether two values differ; those of an unknown kind do not."""
        if id(value) in self._copied:
            return self._copied[id(value)] is not other
        if value is other or (id(value), id(other)) in self._seen:
            return False
        self._seen[id(value), id(other)] = value, other
        compare = next((compare for kinds, compare in self._comparisons() if isinstance(value, kinds)), None)
        if compare is not None:
            return not isinstance(other, type(value)) or compare(value, other)
        if hasattr(value, "update_state") and hasattr(value, "get_config"):
            return False  # metrics of a copy begin without values
        if hasattr(value, "variables") and hasattr(value, "get_config"):  # a layer that Keras does not know
            return self.differ(_variables(value), _variables(other))
        if hasattr(value, "numpy"):
            return not hasattr(other, "numpy") or _arrays_differ(value.numpy(), other.numpy())
        if type(value) is not type(other):  # a trace may leave a tensor in an attribute
            return not is_symbolic(value)
        return self._same_kind_differ(value, other)

    def _same_kind_differ(self, value: Any, other: Any) -> bool:
        """Whether two values of one class, which has no comparison here, differ."""
        if is_programs(type(value)):
            return self.differ(object.__getstate__(value), object.__getstate__(other))
        inner = next((name for name in ("python_function", "__wrapped__") if hasattr(value, name)), None)
        if inner is not None:
            return self.differ(getattr(value, inner), getattr(other, inner))
        if hasattr(value, "get_config"):  # an initializer, a loss, a schedule
            return self.differ(_configured(value), _configured(other))
        is_equal: object = value == other if vars(type(value)).keys() >= {"__eq__"} else None
        return is_equal is False

    def _comparisons(self) -> list[tuple[Any, Callable[[Any, Any], bool]]]:
        return [
            (PLAIN, lambda value, other: not _are_same(value, other)),
            (np.ndarray, _arrays_differ),
            (dict, self._mappings_differ),
            (list | tuple | collections.deque, self._sequences_differ),
            (set | frozenset, lambda value, other: bool(value != other)),
            (SINGLE, lambda value, other: value is not other),
            (types.MethodType, lambda value, other: self.differ(_bound(value), _bound(other))),
            (types.FunctionType, self._functions_differ),
            (functools.partial, lambda value, other: self.differ(_parts(value), _parts(other))),
            (random.Random, lambda value, other: value.getstate() != other.getstate()),
            (np.random.Generator, lambda value, other: repr(_state(value)) != repr(_state(other))),
            (tf.random.Generator, lambda value, other: _arrays_differ(value.state.numpy(), other.state.numpy())),
        ]

    def _functions_differ(self, value: types.FunctionType, other: types.FunctionType) -> bool:
        """Whether functions have other code, or take other values from outside."""
        return value.__code__ is not other.__code__ or self.differ(_values_of(value), _values_of(other))

    def _mappings_differ(self, value: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
        return value.keys() != other.keys() or any(self.differ(value[key], other[key]) for key in value)

    def _sequences_differ(self, value: Sequence[Any], other: Sequence[Any]) -> bool:
        return len(value) != len(other) or any(map(self.differ, value, other))


def _are_same(value: Any, other: Any) -> bool:
    return bool(value == other) or (value != value and other != other)


def _arrays_differ(value: np.ndarray, other: np.ndarray) -> bool:
    value, other = np.asarray(value), np.asarray(other)
    if (value.shape, value.dtype) != (other.shape, other.dtype):
        return True
    return value.dtype != object and not bool(np.all((value == other) | ((value != value) & (other != other))))


def _parts(value: functools.partial[Any]) -> list[Any]:
    return [value.func, list(value.args), value.keywords]


def _bound(method: types.MethodType) -> list[Any]:
    return [method.__func__, method.__self__]


def _values_of(function: types.FunctionType) -> list[Any]:
    """The defaults of a function's arguments, and its variables that functions around it have."""
    cells = [python_state.read_cell(cell) for cell in function.__closure__ or ()]
    return [function.__defaults__, function.__kwdefaults__, *cells]


def _configured(part: Any) -> list[Any]:
    """The configuration of a part of Keras, and the arguments that Keras 3 leaves out of that of a loss."""
    return [part.get_config(), getattr(part, "_fn_kwargs", None)]


def _state(generator: np.random.Generator) -> Any:
    return generator.bit_generator.state
