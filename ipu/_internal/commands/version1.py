"""`python -m ipu.run --tf1`: runs a program of TensorFlow 1 unchanged, whose `tensorflow` is the version 1 API.

The program and the modules beside it get an import function of their own: what other packages import stays as it is.
"""

from __future__ import annotations

import builtins
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from engine.errors import ConfigurationError
from ipu._internal.commands.version1_namespace import Namespace

ROOTS = frozenset({"tensorflow", "tensorflow_core"})
REAL = frozenset({"compiler", "core", "python"})
"""Packages of TensorFlow that are no part of an API of one version."""
COMMAND = "python -m ipu.run --tf1"


def run_version_1(program: Sequence[str]) -> None:
    """Runs a Python file, or `-m` and a module, with its arguments, in this process.

    First it prints, on the standard error, the names of TensorFlow 1 in its files that cannot be supplied.
    Raises ConfigurationError for no program, or one that does not exist.
    """
    is_module = list(program[:1]) == ["-m"]
    name, arguments = (program[1:2], program[2:]) if is_module else (program[:1], program[1:])
    if not name:
        raise ConfigurationError(f"Expected a program. Received: none. Example: {COMMAND} train.py --epochs 3.")
    path = None if is_module else Path(name[0])
    if path is not None and not path.is_file():
        raise ConfigurationError(f"Expected a Python file. Received: {name[0]!r}, which does not exist.")
    folder = str((path or Path("x")).resolve().parent)
    sys.argv, sys.path = [name[0], *arguments], [folder, *sys.path[path is not None :]]
    own = _prepared(folder)
    if path is not None:
        for line in _cannot_supply(path):
            print(f"{COMMAND}: {line}", file=sys.stderr, flush=True)
        runpy.run_path(str(path), {"__builtins__": own}, "__main__")
    else:
        runpy.run_module(name[0], {"__builtins__": own}, "__main__", alter_sys=True)


def _prepared(folder: str) -> Mapping[str, Any]:
    """The builtins for modules of the folder, once version 2's behaviour is off and legacy Keras chosen."""
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    import tensorflow.compat.v1 as v1

    from ipu._internal.commands.version1_names import restore_names

    v1.disable_v2_behavior()
    restore_names()
    own = {**vars(builtins), "__import__": _import}
    sys.meta_path.insert(0, _BesideFinder(folder, own))
    return own


class Facade(ModuleType):
    """`tensorflow` as programs of version 1 see it."""

    def __getattr__(self, name: str) -> Any:
        """Returns a name of version 1, or its replacement here. Raises AttributeError."""
        import tensorflow.compat.v1 as v1

        from ipu._internal.commands.version1_names import supplied

        if name in REAL:
            return import_module(f"tensorflow.{name}")
        if name == "compat":  # whose v1 has what is supplied, too
            self.compat = Namespace("tf.compat", v1.compat, v1=self)
            return self.compat
        found = supplied(name)
        return getattr(v1, name) if found is None else found


FACADE = Facade("tensorflow", "TensorFlow's version 1 API.")
FACADE.__path__ = []


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """`__import__` of a program's modules."""
    root, _, rest = name.partition(".")
    if level or root not in ROOTS:
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    if not rest:
        return FACADE
    if rest.partition(".")[0] in REAL:
        found = _real(f"tensorflow.{rest}", globals, locals, fromlist or ())
        return found if fromlist else FACADE
    found = FACADE
    for part in rest.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise ModuleNotFoundError(f"{error} ({name} in a program of version 1)", name=name) from error
    return found if fromlist else FACADE


def _real(name: str, globals: Any, locals: Any, names: Sequence[str]) -> Any:
    """A module of TensorFlow that is of no version's API, or the one that has its names today."""
    from ipu._internal.commands.version1_names import moved_module

    moved = moved_module(name)
    if moved is not None:
        parent, _, last = name.rpartition(".")
        setattr(moved_module(parent) or import_module(parent), last, moved)  # for `import a.b as c`
        return moved
    for each in names:
        if (inner := moved_module(f"{name}.{each}")) is not None:
            setattr(import_module(name), each, inner)
    return builtins.__import__(name, globals, locals, names or ("*",), 0)


class _BesideFinder:
    """Finds the modules in a program's folder, and gives them the program's import function."""

    def __init__(self, folder: str, own: Mapping[str, Any]) -> None:
        self._folder, self._own = f"{folder}{os.sep}", own

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """A spec for Python files below the folder, as Python's own finder has it; None for others."""
        spec = PathFinder.find_spec(name, path)
        if spec is None or not isinstance(spec.loader, SourceFileLoader) or not spec.origin:
            return None
        if not spec.origin.startswith(self._folder) or f"{os.sep}site-packages{os.sep}" in spec.origin:
            return None
        spec.loader = _Loader(spec.loader.name, spec.loader.path, self._own)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, own: Mapping[str, Any]) -> None:
        super().__init__(name, path)
        self._own = own

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = self._own
        super().exec_module(module)


def _cannot_supply(path: Path) -> list[str]:
    """Uses of names of TensorFlow that a program and the files beside it will not find."""
    from ipu._internal.checking.files import local_files, source_of
    from ipu._internal.checking.program import read
    from ipu._internal.commands.version1_names import without_notices

    found, seen, pending = [], set(), [path]
    with without_notices():
        while pending:
            file = pending.pop(0)
            if file in seen:
                continue
            seen.add(file)
            try:
                program = read(source_of(file))
            except (SyntaxError, ValueError):
                continue  # Python itself says so
            pending += local_files(program, file)
            for use in program.uses:
                name = use.names[0]
                if name.partition(".")[0] in ROOTS and not use.optional and not _is_supplied(name):
                    found.append(f"{file}:{use.line}: {name}: {_reason(name)}")
    return found


def _reason(name: str) -> str:
    if name.startswith("tensorflow.python.ipu."):
        return "it is no documented name of this API."
    return "today's TensorFlow has it no longer, and it is not supplied."


def _is_supplied(name: str) -> bool:
    from ipu._internal.commands.version1_names import moved_module

    parts = name.split(".")[1:]
    value: Any = FACADE
    for number, part in enumerate(parts, 1):
        if not isinstance(value, ModuleType):
            return True  # attributes of classes and namespaces may exist on instances alone
        try:
            value = getattr(value, part)
        except Exception:
            module = ".".join(["tensorflow", *parts[:number]])
            try:
                value = moved_module(module) or import_module(module)
            except Exception:
                return False
    return True
