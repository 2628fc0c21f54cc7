"""Names of kept code depend on all sources that are compiled into it."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from engine.debug.tile import call_as_worker
from engine.machine_code.sources import ENGINE, digest, sources
from engine.runtime.executor import executor

FOLDERS = ("emit", "codelets", "machine_code")
"""Folders whose functions are compiled, or write code."""


def codelet_files() -> Iterator[str]:
    """The engine's files outside of `FOLDERS` that define codelets."""
    for file in sorted(ENGINE.rglob("*.py")):
        name = file.relative_to(ENGINE).as_posix()
        if name.split("/")[0] not in FOLDERS and re.search(r"^ *@codelet\b", file.read_text(), re.MULTILINE):
            yield name


GENERATING = (*FOLDERS, *codelet_files())
"""Folders and files from which code is compiled: each has a hash of its own."""


def copied(folder: Path) -> Path:
    """A copy of the engine's sources."""
    shutil.copytree(ENGINE, folder / "engine", ignore=shutil.ignore_patterns("__pycache__", "templates"))
    return folder / "engine"


def place(name: str, root: Path = ENGINE) -> Path:
    return root.joinpath(*name.split("/"))


def test_codelets_outside_of_their_folders_are_found() -> None:
    for codelet in (executor, call_as_worker):
        assert inspect.getfile(codelet.function) in {str(place(name)) for name in GENERATING}


def test_a_constant_of_another_package_counts(tmp_path: Path) -> None:
    one, other = copied(tmp_path / "one"), copied(tmp_path / "other")
    for name in GENERATING:
        assert digest(place(name, one), engine=one) == digest(place(name, other), engine=other)
    for number, (changed, counts) in enumerate((("ir/opcodes.py", True), ("lower/program.py", False))):
        another = copied(tmp_path / str(number))
        with (another / changed).open("a") as file:
            file.write("\nMOST = 1.0\n")
        for name in ("emit", "codelets"):
            assert (digest(place(name, another), engine=another) != digest(place(name, one), engine=one)) == counts


def modules_of(name: str) -> Iterator[ModuleType]:
    package = importlib.import_module("engine." + name.removesuffix(".py").replace("/", "."))
    yield package
    for each in pkgutil.iter_modules(getattr(package, "__path__", [])):
        yield importlib.import_module(f"{package.__name__}.{each.name}")


def read_by(module: ModuleType) -> Iterator[tuple[str, str]]:
    """(module, name) of all that a module's source imports from the engine, as Python's own parser sees it."""
    assert module.__file__ is not None
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "engine":
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "engine")


@pytest.mark.parametrize("name", GENERATING)
def test_every_module_whose_names_are_compiled_in_is_hashed(name: str) -> None:
    hashed = set(sources(place(name)))
    missing = []
    waiting, seen = list(modules_of(name)), set[str]()
    while waiting:
        module = waiting.pop()
        if module.__name__ in seen:
            continue
        seen.add(module.__name__)
        if Path(module.__file__ or "") not in hashed:
            missing.append(module.__name__)
        for origin, read in read_by(module):
            value = getattr(importlib.import_module(origin), read, None) if read else None
            submodule = sys.modules.get(f"{origin}.{read}")
            home = getattr(value, "__module__", None) or ""  # for a class or function that a package passes on
            for each in (submodule, None if submodule else sys.modules[origin], sys.modules.get(home)):
                if isinstance(each, ModuleType) and each.__name__.startswith("engine."):
                    waiting.append(each)
    assert not missing, f"compiled into the code of {name}, and not in its name: {missing}"
