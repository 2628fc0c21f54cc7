"""Imports only go down: from keras_ext over ipu to engine, and inside engine from compilation to code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FRAMEWORKS = frozenset({"tensorflow", "keras", "tf_keras"})
# The one call with which the strategy installs the Keras extensions.
INSTALLING = ("ipu", "keras_ext")

# Floors from top to bottom: a module belongs to the longest name that it equals or lies below.
FLOORS = (
    ("keras_ext",),
    ("ipu",),
    ("engine.compile", "engine.debug", "engine.evaluate", "engine.loaded", "engine.lower", "engine.report"),
    ("engine.passes", "engine.partition", "engine.profile"),
    ("engine.ops", "engine.runtime"),
    ("engine.files", "engine.program"),
    ("engine.ir", "engine.emit", "engine.codelets", "engine.machine_code", "engine.target", "engine.errors"),
)
HEIGHT = {name: len(FLOORS) - index for index, names in enumerate(FLOORS) for name in names}


def height(module: str) -> int | None:
    """The floor of a module, 1 the lowest; None for one that belongs to none."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        if ".".join(parts[:end]) in HEIGHT:
            return HEIGHT[".".join(parts[:end])]
    return None


def imports(source: str, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Line and full name of every module that `source` imports, anywhere in it."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def climbs(module: str, imported: str) -> bool:
    """Whether `module` may not import `imported`."""
    if module.split(".")[0] == "engine" and imported.split(".")[0] in FRAMEWORKS:
        return True
    here, there = height(module), height(imported)
    return here is not None and there is not None and there > here


def modules() -> Iterator[tuple[str, Path]]:
    """Dotted name and path of every module of the three packages."""
    for package in ("engine", "ipu", "keras_ext"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def test_no_import_climbs_a_floor() -> None:
    offenders, installing = [], []
    for module, path in modules():
        for line, imported in imports(path.read_text(), module, path.name == "__init__.py"):
            if climbs(module, imported):
                edge = (module.split(".")[0], imported.split(".")[0])
                (installing if edge == INSTALLING else offenders).append(f"{module}:{line} imports {imported}")
    assert not offenders, "\n".join(offenders)
    assert len(installing) <= 1, "\n".join(["ipu imports keras_ext more than once:", *installing])


@pytest.mark.parametrize(
    ("module", "imported", "wrong"),
    [
        ("engine.ops.dot", "tensorflow", True),
        ("engine.ops.dot", "keras.ops", True),
        ("engine.ops.dot", "ipu.config", True),
        ("engine.ops.dot", "engine.compile.compile_module", True),
        ("engine.ops.dot", "engine.ops.registry.definition", False),
        ("engine.ir.module", "engine.passes.fold", True),
        ("engine.passes.fold", "engine.ir.module.Module", False),
        ("engine.emit.micro", "engine.program.tiles", True),
        ("ipu.config", "keras_ext.training", True),
        ("ipu.config", "engine.errors", False),
        ("keras_ext.training", "ipu.config", False),
        ("keras_ext.training", "keras", False),
    ],
)
def test_what_counts_as_climbing(module: str, imported: str, wrong: bool) -> None:
    assert climbs(module, imported) is wrong


def test_every_form_of_import_is_seen() -> None:
    source = "import a.b\nfrom c import d\ndef f():\n    from . import e\n    from ..g import h\n"
    found = [name for _, name in imports(source, "p.q.r", is_package=False)]
    assert found == ["a.b", "c.d", "p.q.e", "p.g.h"]
    assert [name for _, name in imports("from .x import y", "p.q", is_package=True)] == ["p.q.x.y"]
