"""Installing the project from a clone compiles Python's bytecode, unless the user switches it off."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT

PACKAGES = ("engine", "ipu", "keras_ext")
BUILD = """
import sys
from hatchling.builders.wheel import WheelBuilder
for hook in WheelBuilder(".").get_build_hooks("dist").values():
    hook.initialize(sys.argv[1], {})
"""
VARIABLE = "PYTHONDONTWRITEBYTECODE"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the project with few files in its packages, some of which are not Python."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed")
    folder = tmp_path / "clone"
    for package in PACKAGES:
        (folder / package / "inside").mkdir(parents=True)
        (folder / package / "__init__.py").write_text("")
        (folder / package / "inside" / "module.py").write_text("x = 1\n")
    (folder / "ipu" / "broken.py").write_text("x = = 1\n")
    for name in (
        "pyproject.toml",
        "hatch_build.py",
        "README.md",
        "LICENSE",
        "_ipu_hook.py",
        "_ipu_names.py",
        "ipu_hook.pth",
    ):
        shutil.copy(ROOT / name, folder / name)
    return folder


def bytecode_after(version: str, clone: Path, **environment: str) -> set[str]:
    """The modules that have bytecode after the hooks of a build of this version."""
    kept = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", BUILD, version],
        cwd=clone,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and not done.stdout, done.stderr
    found = (each for package in PACKAGES for each in (clone / package).rglob("*.pyc"))
    return {str(each.parent.parent.relative_to(clone) / each.name.partition(".")[0]) for each in found}


def test_an_editable_installation_compiles_bytecode(clone: Path) -> None:
    names = {f"{package}/{name}" for package in PACKAGES for name in ("__init__", "inside/module")}
    assert bytecode_after("editable", clone) == names


def test_none_is_compiled_for_wheels_or_against_the_users_wish(clone: Path) -> None:
    assert bytecode_after("editable", clone, **{VARIABLE: "1"}) == set()
    assert bytecode_after("standard", clone) == set()


def test_bytecode_of_sources_that_change_is_not_used(clone: Path) -> None:
    bytecode_after("editable", clone)
    (clone / "engine" / "inside" / "module.py").write_text("x = 22\n")
    code = "from engine.inside.module import x; print(x)"
    command = [sys.executable, "-S", "-E", "-c", code]
    assert subprocess.run(command, cwd=clone, capture_output=True, text=True, check=True).stdout == "22\n"
