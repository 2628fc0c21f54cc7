"""The API reference: a page for each public module, from the signatures and docstrings of its names.

Names are looked up in the imported modules, as layers, losses and optimizers are made for each Keras, and functions of
older programs from tables: their sources have none that a reader of sources would find.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator
from enum import EnumMeta
from types import ModuleType
from typing import Any

OURS = ("ipu", "keras_ext", "keras.ipu", "tf_keras.ipu", "popdist")
DEFINITIONS = "keras_ext.layers.definition"
"""Makes a class for each Keras; its own methods are internal."""
SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes):\n((?:(?:    .*)?\n?)+)", re.M)
TITLES = {"Args": "Parameters"}
ANNOTATION = re.compile(r"(: |-> )'([^']*)'")
"""Annotations are strings, as modules postpone their evaluation."""
WIDTH = 60
"""Characters of a signature on one line."""
ENTRY = re.compile(r"^(?:    )(\*{0,2}[\w.`, ]+): ", re.M)


@functools.cache
def modules() -> dict[str, ModuleType]:
    """The public modules by the name that users write, those of other names left out."""
    import keras  # first, so that `keras.ipu` exists

    import ipu

    found: dict[str, ModuleType] = {}
    pending = [("ipu", ipu), ("keras.ipu", keras.ipu)]
    while pending:
        name, module = pending.pop(0)
        if module in found.values() or not module.__name__.startswith(("ipu", "keras_ext")):
            continue
        found[name] = module
        values = {each: getattr(module, each) for each in dir(module) if name != "ipu" or each not in ("ops", "keras")}
        pending += [(f"{name}.{each}", value) for each, value in values.items() if isinstance(value, ModuleType)]
    return {name: module for name, module in found.items() if names(module)}


def names(module: ModuleType) -> dict[str, Any]:
    """The documented names of a module that are no modules."""
    values = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return {name: value for name, value in values.items() if not isinstance(value, ModuleType)}


@functools.cache
def pages() -> dict[str, str]:
    """Markdown by the path of its page."""
    return {f"reference/{name}.md": "\n".join(_page(name, module)) for name, module in sorted(modules().items())}


def _page(name: str, module: ModuleType) -> Iterator[str]:
    yield f"# {name}\n\n{_text(module.__doc__)}\n"
    for each, value in names(module).items():
        yield f"## {each}\n\n{_described(f'{name}.{each}', value)}"
        for method, function in _methods(value).items():
            yield f"### {each}.{method}\n\n{_described(method, function)}"


def _methods(value: Any) -> dict[str, Any]:
    """Public methods and properties of a class, its own or inherited from a class of this project."""
    if not isinstance(value, type):
        return {}
    kinds = [
        kind for kind in reversed(value.__mro__) if kind.__module__.startswith(OURS) and kind.__module__ != DEFINITIONS
    ]
    found = {name: member for kind in kinds for name, member in vars(kind).items() if not name.startswith("_")}
    return {
        name: getattr(member, "__func__", member)
        for name, member in found.items()
        if (inspect.isroutine(member) or isinstance(member, property)) and member.__doc__
    }


def _described(name: str, value: Any) -> str:
    if isinstance(value, EnumMeta):
        members = "".join(f"- `{each.name}`: {each.value!r}\n" for each in value)
        return f"```python\n{name}\n```\n\n{_text(value.__doc__)}\n**Members**\n\n{members}\n"
    doc = value.__doc__ if callable(value) or isinstance(value, property) else None
    return f"```python\n{name}{_signature(value)}\n```\n\n{_text(doc)}\n"


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value) if callable(value) else None
    except (TypeError, ValueError):
        return "(...)"
    if signature is None:
        return ""
    text = _plain(signature)
    if len(text) < WIDTH:
        return text
    lines = "".join(f"    {_plain(parameter)},\n" for parameter in signature.parameters.values())
    returned = _plain(signature.replace(parameters=()))[len("()") :]
    return f"(\n{lines}){returned}"


def _plain(signature: inspect.Signature | inspect.Parameter) -> str:
    return ANNOTATION.sub(r"\1\2", str(signature))


def _text(doc: str | None) -> str:
    """A docstring in Google's style as Markdown: its sections are lists."""
    text = f"{inspect.cleandoc(doc or '')}\n"
    sections = SECTION.sub(lambda found: _section(found[1], found[2]), text)
    return sections.replace("<", "&lt;") if "`" not in sections else sections


def _section(title: str, body: str) -> str:
    lines = ENTRY.sub(lambda found: f"- `{found[1].strip('`')}`: ", body)
    return f"**{TITLES.get(title, title)}**\n\n{inspect.cleandoc(lines) if lines == body else lines}\n"
