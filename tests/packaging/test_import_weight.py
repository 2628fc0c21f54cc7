"""Modules that importing the project does not import: each is loaded when something needs it."""

from __future__ import annotations


def roots(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_modules_load_when_they_are_needed(printouts: dict[str, str]) -> None:
    imported, configured, made = (set(line.split()) for line in printouts["weight"].splitlines())
    global_step = ("ipu._internal", "ipu._internal.graphs", "ipu._internal.graphs.global_step")
    notes = ("ipu._internal.names", "ipu._internal.names.version1_notes")
    assert imported == {"ipu", *global_step, *notes, "ipu._internal.function_code"}
    assert roots(configured) <= {"ipu", "engine"} and not any(
        name.startswith("ipu._internal.compiler") for name in configured
    )
    assert not any(name.startswith(("engine.lower", "engine.passes", "engine.runtime")) for name in configured)
    assert not roots(made) & {"numba", "llvmlite"}
    heavy = {"engine.compile", "engine.evaluate", "engine.lower", "engine.emit", "engine.runtime.executable"}
    assert not made & heavy
