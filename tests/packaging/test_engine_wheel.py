"""The engine by itself: a distribution of its own, which installs without TensorFlow, Keras and Numba."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.files.executable_file import write_executable
from engine.machine_code.given_objects import has_compiler
from tests.files.programs import classifier, expected
from tests.interrupting import HANGS_SECONDS

ROOT = Path(__file__).parent.parent.parent
MOST_BYTES = 150e6


def run(*command: object) -> str:
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=HANGS_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_dependencies_are_those_of_the_whole() -> None:
    whole, engine = (tomllib.loads((ROOT / p / "pyproject.toml").read_text())["project"] for p in (".", "engine"))
    extras = engine["optional-dependencies"]
    assert {*engine["dependencies"], *extras["compiler"]} <= set(whole["dependencies"])
    assert extras["serving"] == whole["optional-dependencies"]["serving"]
    assert (engine["version"], engine["requires-python"]) == (whole["version"], whole["requires-python"])


def test_contents(build: Callable[[Path], Path]) -> None:
    with zipfile.ZipFile(build(ROOT / "engine")) as archive:
        names = set(archive.namelist())
    tracked = {str(path.relative_to(ROOT)) for path in (ROOT / "engine").rglob("*.py")}
    assert tracked <= names and {"engine/py.typed", "engine/data/targets.toml"} <= names
    assert all(re.match(r"engine/|software_ipu_engine-[\d.]+\.dist-info/", name) for name in names)


@pytest.mark.explore
@pytest.mark.slow
@pytest.mark.skipif(not has_compiler(), reason="compiles ahead of time")
def test_a_clean_environment_runs_a_program(tmp_path: Path) -> None:
    """Needs the network."""
    program, objects = tmp_path / "p.popef", tmp_path / "p.x86-64-v3.objects"
    file = classifier()
    write_executable(program, file)
    run(sys.executable, "-m", "engine.aot", program, "--cpu", "x86-64-v3")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", f"{ROOT / 'engine'}[serving]")
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    assert not {"numba", "llvmlite", "tensorflow", "keras"} & set(os.listdir(site))
    files = [each for each in site.rglob("*") if each.is_file() and each.relative_to(site).parts[0] != "pip"]
    assert sum(each.stat().st_size for each in files) < MOST_BYTES
    x = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    source = f"""
import numpy as np, engine
loaded = engine.load({str(program)!r}, objects={str(objects)!r})
np.save({str(tmp_path / "y.npy")!r}, loaded.run([np.load({str(tmp_path / "x.npy")!r})])[0])
"""
    run(python, "-I", "-c", source)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected(file, x)["scores"], rtol=1e-5)
    assert "--objects" in run(python, "-I", "-m", "engine.serving", "--help")
