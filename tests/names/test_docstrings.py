"""Docstrings of public names describe each parameter, results and errors."""

from __future__ import annotations

import dis
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import keras

REFERENCE = Path(__file__).parent.parent.parent / "docs" / "site" / "reference.py"
ENTRY = re.compile(r"^    (\*{0,2}\w[\w*, ]*): ", re.M)
"""Pattern for the names of parameters, one or several, that an entry of Args describes."""
WITHOUT_EFFECT = re.compile(r"\b(accepted|ignored|no effect|without effect|not read)\b")
NO_READ = ("STORE_FAST", "STORE_DEREF", "STORE_FAST_STORE_FAST", "MAKE_CELL", "DELETE_FAST")
"""Opcodes that name a variable without reading it."""


def parameters(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters, except those for any number of arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return []
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [name for name, parameter in signature.parameters.items() if parameter.kind not in several]
    return [name for name in named if name not in ("self", "cls")]


def lacking(function: Callable[..., Any]) -> list[str]:
    """Parts that a docstring lacks: entries of parameters in Args, remarks that one has no effect, sections."""
    doc, named, results = inspect.getdoc(function) or "", parameters(function), "None"
    parts = ENTRY.split(doc.partition("\nArgs:\n")[2].partition("\n\n")[0])
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    entries = {name: text for names, text in pairs for name in re.findall(r"\w+", names)}
    found = sorted(set(named) - entries.keys())
    silent = sorted(name for name in unread(function) & entries.keys() if not WITHOUT_EFFECT.search(entries[name]))
    found += [f"no effect of {name}" for name in silent]
    if named and not isinstance(function, type):
        annotation = inspect.signature(function).return_annotation
        results = "None" if annotation is inspect.Signature.empty else str(annotation)
    wanted = [(["Returns:", "Yields:"], results not in ("None", "Iterator[None]", "Context"))]
    wanted += [(["Raises:"], raises(function))]
    found += [titles[0] for titles, needed in wanted if needed and not any(f"\n{title}\n" in doc for title in titles)]
    return found


def code_of(function: Callable[..., Any]) -> CodeType:
    """The bytecode of a function or of a class's constructor; empty code if there is none."""
    unwrapped = inspect.unwrap(function.__init__ if isinstance(function, type) else function)
    return getattr(unwrapped, "__code__", (lambda: None).__code__)


def unread(function: Callable[..., Any]) -> set[str]:
    """The parameters that a function does not read."""
    code = code_of(function)
    loads = [each.argrepr for each in dis.get_instructions(code) if each.opname not in NO_READ]
    read = set(re.findall(r"\w+", " ".join(loads)))
    return set() if "locals" in read else {*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]} - read


def raises(function: Callable[..., Any]) -> bool:
    """Whether a function, or a class when it is called, raises errors of its own."""
    opcodes = [each.opname for each in dis.get_instructions(code_of(function))]
    return opcodes.count("RAISE_VARARGS") > opcodes.count("LOAD_ASSERTION_ERROR")


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """All public functions and methods, and classes except enumerations, by their names in the reference."""
    specification = importlib.util.spec_from_file_location("reference", REFERENCE)
    assert keras and specification is not None and specification.loader is not None
    reference = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(reference)
    for module_name, module in reference.modules().items():
        for name, value in reference.names(module).items():
            if callable(value) and not hasattr(value, "__members__"):
                yield f"{module_name}.{name}", value
            for method, function in reference._methods(value).items():
                if callable(function):
                    yield f"{module_name}.{name}.{method}", function


def test_docstrings_have_parameters_results_and_errors() -> None:
    found = {id(function): (name, function) for name, function in functions()}
    assert {name: lacking(function) for name, function in found.values() if lacking(function)} == {}
