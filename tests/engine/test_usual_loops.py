"""Fused loops that an installation compiles: those of recorded steps, whatever batches and settings others have."""

from __future__ import annotations

import pytest

from engine.codelets.language.build import objects_of
from engine.installation import loops_of, usual_steps
from engine.machine_code import installed_objects


def test_few_loops_serve_many_steps() -> None:
    steps = usual_steps()
    loops = loops_of(steps)
    apart = sum(len(loops_of([step])) for step in steps)
    assert len(steps) > 40 and len(loops) < 250 < apart / 2


def test_archives_have_them(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    if installed_objects.level_of_processor() is None:
        pytest.skip("no objects are made for this processor")
    monkeypatch.setattr(installed_objects, "FOLDER", tmp_path)
    installed_objects._archive.cache_clear()
    loop = loops_of(usual_steps()[:1])[0]
    code = objects_of([loop])
    assert installed_objects.find(loop.path) is None
    installed_objects.write(tmp_path, code)
    installed_objects._archive.cache_clear()
    assert installed_objects.find(loop.path) == code[loop.path.name]
    installed_objects._archive.cache_clear()
