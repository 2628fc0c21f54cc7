"""Python's state as a trace has read it: the attributes, containers and functions' variables that a model reaches."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from keras_ext.origins import LIBRARIES, is_programs, packages_of
from keras_ext.types import KerasModel

SIMPLE = (bool, int, float, complex, str, bytes, type(None))
MOST_BYTES = 2**16
"""Most bytes of an array that is copied; larger ones are data."""
_MISSING = object()


class _Variables(NamedTuple):
    """Named variables: their values `before`, and functions that read their values and write one (_MISSING deletes)."""

    before: dict[str, Any]
    read: Callable[[], Mapping[str, Any]]
    write: Callable[[str, Any], None]


class PythonState:
    """The state that the code of `model` reaches, as it is now."""

    def __init__(self, model: KerasModel) -> None:
        self._variables: list[_Variables] = []
        self._contents: list[tuple[Any, Any]] = []
        seen: dict[int, Any] = {}
        waiting: list[Any] = [model]
        while waiting:
            value = waiting.pop()
            if id(value) not in seen:
                seen[id(value)] = value  # no other object gets its id meanwhile
                waiting += [each for each in self._note(value) if type(each) not in SIMPLE]

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Restores the former state; at the end puts back changes that the program has made since, unless it changed
        them again.
        """
        with contextlib.ExitStack() as undo:
            for variables in self._variables:
                now = dict(variables.read())
                for name in variables.before.keys() | now.keys():
                    old, new = variables.before.get(name, _MISSING), now.get(name, _MISSING)
                    if not _same(old, new):
                        variables.write(name, old)
                        undo.callback(_put_back, variables, name, old, new)
            for container, before in self._contents:
                if not _same_contents(container, before):
                    undo.callback(_refill, container, _copy(container))
                    _refill(container, before)
            yield

    def _note(self, value: Any) -> Iterable[Any]:
        """Keeps the state of one object; gives the objects that it refers to."""
        if isinstance(value, types.FunctionType):
            return self._note_function(value)
        if isinstance(value, types.MethodType):
            return value.__self__, value.__func__
        if isinstance(value, functools.partial):
            return value.func, value.args, value.keywords
        if isinstance(value, dict) and not issubclass(type(value), dict):  # TensorFlow's proxy of one
            return (getattr(value, "__wrapped__", None),)
        if isinstance(value, np.ndarray) and (value.nbytes > MOST_BYTES or not value.flags.writeable):
            return ()
        inner: list[Any] = []
        if isinstance(value, dict | list | set | np.ndarray):
            self._contents.append((value, _copy(value)))
        if isinstance(value, dict):
            inner += value.values()
        elif isinstance(value, list | set | tuple | frozenset):
            inner.extend(value)  # TensorFlow's proxy of a tuple cannot be added
        if not isinstance(value, type | types.ModuleType):
            inner += self._note_attributes(value)
        return inner

    def _note_attributes(self, value: Any) -> Iterable[Any]:
        kind, inner = type(value), list[Any]()
        if not packages_of(kind) <= LIBRARIES:
            for base in kind.__mro__:
                if is_programs(base):  # the program may replace its methods
                    inner += self._keep(dict(vars(base)), functools.partial(vars, base), functools.partial(_set, base))
        elif not isinstance(value, list | dict):  # TensorFlow's wrap those of the program
            return inner
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            inner += self._keep(dict(attributes), lambda: attributes, functools.partial(_set_item, attributes))
        return inner

    def _note_function(self, function: types.FunctionType) -> Iterable[Any]:
        if not is_programs(function):
            return ()
        inner: list[Any] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        for cell in function.__closure__ or ():
            read = functools.partial(read_cell, cell)
            inner += self._keep(read(), read, functools.partial(_write_cell, cell))
        named, names = function.__globals__, set(_names(function.__code__))

        def read_globals() -> dict[str, Any]:
            return {name: named[name] for name in names & named.keys()}

        return inner + self._keep(read_globals(), read_globals, functools.partial(_set_item, named))

    def _keep(
        self, before: dict[str, Any], read: Callable[[], Mapping[str, Any]], write: Callable[[str, Any], None]
    ) -> list[Any]:
        self._variables.append(_Variables(before, read, write))
        return list(before.values())


def _names(code: types.CodeType) -> Iterator[str]:
    """The names that a function's code, or that of functions in it, may look up among globals."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, SIMPLE) and one == other)


def _same_contents(container: Any, before: Any) -> bool:
    if isinstance(container, np.ndarray):
        return container.tobytes() == before.tobytes()
    if isinstance(container, set):
        return container == before
    pairs: Collection[Any] = [*container.items()] if isinstance(container, dict) else container
    others: Collection[Any] = [*before.items()] if isinstance(before, dict) else before
    if len(pairs) != len(others):
        return False
    if isinstance(container, dict):
        return all(a[0] is b[0] and _same(a[1], b[1]) for a, b in zip(pairs, others, strict=True))
    return all(map(_same, pairs, others))


def _copy(container: Any) -> Any:
    if isinstance(container, np.ndarray):
        return container.copy()
    return next(kind for kind in (dict, list, set) if isinstance(container, kind))(container)


def _refill(container: Any, contents: Any) -> None:
    """Sets the contents by methods of Python's own classes: methods of Keras' classes would note the change."""
    if isinstance(container, np.ndarray):
        np.copyto(container, contents)
    elif isinstance(container, list):
        list.__setitem__(container, slice(None), contents)
    elif isinstance(container, dict):
        dict.clear(container)
        dict.update(container, contents)
    else:
        set.clear(container)
        set.update(container, contents)


def _put_back(variables: _Variables, name: str, old: Any, new: Any) -> None:
    if variables.read().get(name, _MISSING) is old:
        variables.write(name, new)


def _set(kind: type, name: str, value: Any) -> None:
    if value is _MISSING:
        delattr(kind, name)
    else:
        setattr(kind, name, value)


def _set_item(namespace: dict[str, Any], name: str, value: Any) -> None:
    if value is _MISSING:
        namespace.pop(name, None)
    else:
        namespace[name] = value


def read_cell(cell: types.CellType) -> dict[str, Any]:
    """The value of a variable that a function takes from outside, by the name "value"; nothing before it has one."""
    try:
        return {"value": cell.cell_contents}
    except ValueError:  # the variable has no value yet
        return {}


def _write_cell(cell: types.CellType, name: str, value: Any) -> None:
    if value is _MISSING:
        del cell.cell_contents
    else:
        cell.cell_contents = value
