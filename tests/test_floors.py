"""Imports only go down: from keras_ext over ipu to engine, and inside engine from compilation to code."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("engine", "ipu", "keras_ext")
FRAMEWORKS = frozenset({"tensorflow", "keras", "tf_keras"})

# Floors from top to bottom: a module belongs to the longest name that it equals or lies below. A package that stands
# here names its own modules, and those below it that no longer name covers.
FLOORS = (
    ("keras_ext",),  # ipu._internal.keras_hooks installs it, and names its frameworks as text
    (
        *("ipu", "ipu._internal.checking", "ipu._internal.commands", "ipu._internal.estimators"),
        *("ipu._internal.plugin", "ipu._internal.rnn"),
    ),
    ("ipu._internal.serving", "ipu._internal.popdist"),
    (
        "ipu._internal.accumulators",
        "ipu._internal.custom_ops",
        "ipu._internal.embeddings",
        "ipu._internal.operators",
        "ipu._internal.pipelining",
        "ipu._internal.profiling",
    ),
    ("ipu._internal.compiler", "ipu._internal.graphs", "ipu._internal.host_functions", "ipu._internal.queues"),
    ("ipu._internal.config",),
    ("ipu._internal", "ipu._internal.names"),
    ("engine.report",),
    (
        "engine.debug",
        "engine.file_runtime",
        "engine.evaluated_executable",
        "engine.algorithms",
        "engine.aot",
        "engine.installation",
        "engine.serving",
    ),
    ("engine", "engine.loaded"),
    ("engine.compile",),
    ("engine.runtime",),
    ("engine.host",),
    ("engine.emit",),
    ("engine.codelets", "engine.files", "engine.compile_progress"),
    ("engine.machine_code",),
    ("engine.profile",),
    ("engine.lower",),
    ("engine.program",),
    ("engine.partition",),
    ("engine.passes",),
    ("engine.evaluate",),
    ("engine.ops",),
    ("engine.host_functions", "engine.ir", "engine.target", "engine.values", "engine.cache_directory"),
    (
        "engine.compiler_options",
        "engine.errors",
        "engine.frozen",
        "engine.garbage",
        "engine.integers",
        "engine.notices",
        "engine.private_files",
        "engine.resource_limits",
        "engine.shown",
        "engine.single_thread",
        "engine.whole_files",
    ),
)
HEIGHT = {name: len(FLOORS) - index for index, names in enumerate(FLOORS) for name in names}


def height(module: str) -> int | None:
    """The floor of a module, 1 the lowest; None for one that belongs to none."""
    if module.startswith("engine.") and ".".join(module.split(".")[:2]) not in HEIGHT:
        return None  # each room of the engine has its own floor
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
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@cache
def all_imports() -> dict[str, list[tuple[int, str]]]:
    """Lines and full names of each module's imports: at its top, in functions, for types."""
    return {name: list(imports(path.read_text(), name, path.name == "__init__.py")) for name, path in modules()}


def imports_between() -> dict[str, set[str]]:
    """Modules of the three packages that each module imports."""
    found = all_imports()
    return {
        module: {name if name in found else name.rpartition(".")[0] for _, name in names} & found.keys() - {module}
        for module, names in found.items()
    }


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Nodes that reach each other, by Kosaraju's algorithm."""
    order: list[str] = []
    _visit(graph, graph, lambda node, _: order.append(node))
    back: dict[str, set[str]] = {node: set() for node in graph}
    for node, others in graph.items():
        for other in others:
            back[other].add(node)
    groups: dict[str, list[str]] = {}
    _visit(back, reversed(order), lambda node, root: groups.setdefault(root, []).append(node))
    return [sorted(group) for group in groups.values() if len(group) > 1]


def _visit(graph: dict[str, set[str]], starts: Iterable[str], leave: Callable[[str, str], object]) -> None:
    """Visits a graph depth first. `leave` gets each node after all nodes behind it, with the start that led to it."""
    seen: set[str] = set()
    for start in starts:
        path = [] if start in seen else [(start, iter(sorted(graph[start])))]
        seen.add(start)
        while path:
            node, others = path[-1]
            other = next((each for each in others if each not in seen), None)
            if other is None:
                leave(path.pop()[0], start)
            else:
                seen.add(other)
                path.append((other, iter(sorted(graph[other]))))


def test_every_module_has_a_floor() -> None:
    known = list(all_imports())
    assert [module for module in known if height(module) is None] == []
    assert [name for name in HEIGHT if not any(f"{each}.".startswith(f"{name}.") for each in known)] == []


def test_no_import_climbs_a_floor() -> None:
    offenders = [
        f"{module}:{line} imports {imported}"
        for module, names in all_imports().items()
        for line, imported in names
        if climbs(module, imported)
    ]
    assert not offenders, "\n".join(offenders)


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circles(imports_between()) == []


def test_sessions_are_extended_wherever_operations_for_them_are_made() -> None:
    low = "ipu._internal.graphs.host_operations"
    importers = {module for module, names in imports_between().items() if low in names}
    assert importers == {"ipu._internal.graphs.program", "ipu._internal.graphs.session_operations"}


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(circles(graph)) == [["a", "b", "c"], ["d", "e"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


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
        ("engine.program.tiles", "engine.emit.micro", True),
        ("engine.lower.dot", "engine.codelets.products.contract", True),
        ("engine.profile.program_estimate", "engine.host.encode", True),
        ("engine.emit.micro", "engine.program.tiles", False),
        ("engine.ops.random", "engine.runtime.buffers", True),
        ("engine.evaluate", "engine.program.program", True),
        ("engine.lower.dot", "engine.profile.program_estimate", True),
        ("engine.profile.program_estimate", "engine.lower.program", False),
        ("ipu._internal.compiler.trace", "ipu.config", True),
        ("ipu._internal.queues.feeder", "ipu._internal.compiler.tokens", False),
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


def test_the_host_does_not_know_the_chip() -> None:
    """The chip, like programs and their lowering, is below the machine's floors, so it knows no kernels either."""
    below = ("engine.codelets", "engine.emit", "engine.host", "engine.machine_code", "engine.runtime")
    assert all(climbs(f"engine.{room}.x", f"{each}.y") for room in ("lower", "profile", "program") for each in below)
    for module, names in all_imports().items():
        if module.startswith("engine.host."):
            assert not [name for _, name in names if name.startswith("engine.profile.")], module
