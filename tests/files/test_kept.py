"""The next process finds the prepared form of a program; damaged and unwritable folders are no errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.cache_directory import store
from engine.compile import compile_module, prepare
from engine.files import kept
from engine.ir import Module
from engine.ir.printer import print_module
from tests.engine.running import arguments_for, buffers
from tests.files.programs import classifier


@pytest.fixture(autouse=True)
def everything_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.compile.FEWEST_KEPT", 0)
    monkeypatch.setattr(kept, "SHORTEST", 0.0)


class Counted:
    """Counts how often the passes run."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, module: Module) -> Module:
        self.calls += 1
        return prepare(module)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("programs-*/*") if not path.name.startswith("used-by")]


def test_the_second_time_no_pass_runs(tmp_path: Path) -> None:
    module, passes = classifier(updates=True).module, Counted()
    made = [kept.prepared(module, passes, tmp_path) for _ in range(3)]
    assert passes.calls == 1 and len(files(tmp_path)) == 1
    assert len({print_module(each) for each in made}) == 1


def test_programs_that_differ_are_told_apart_and_names_do_not_count(tmp_path: Path) -> None:
    passes = Counted()
    for batch in (2, 3, 2):
        module = classifier(batch).module
        module.name = f"traced_{passes.calls}"
        assert kept.prepared(module, passes, tmp_path).name == module.name
    assert passes.calls == 2


def test_a_damaged_file_is_rebuilt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    module, passes = classifier().module, Counted()
    right = print_module(kept.prepared(module, passes, tmp_path))
    (path,) = files(tmp_path)
    for damage in (b"", path.read_bytes()[:-9], b"x" * 200):
        path.write_bytes(damage)
        assert print_module(kept.prepared(module, passes, tmp_path)) == right
    assert passes.calls == 4 and not caplog.records
    store(path, b"whole, but not a program")
    assert print_module(kept.prepared(module, passes, tmp_path)) == right
    assert passes.calls == 5 and "compiled again" in caplog.text


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    passes = Counted()
    assert kept.prepared(classifier().module, passes, tmp_path / "file") is not None
    assert passes.calls == 1


def test_what_is_kept_computes_the_same(tmp_path: Path) -> None:
    module = classifier(updates=True).module
    arguments = arguments_for(module)
    results = []
    for _ in range(2):
        executable = compile_module(module, ["variable"] * len(arguments), {}, folder=tmp_path)
        results.append(executable.run(1, [], buffers(arguments)))
    assert files(tmp_path)
    assert all(np.array_equal(first, second) for first, second in zip(*results, strict=True))
