"""The wheel, installed where nothing else of the project is on the path, and the output of programs run there."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interrupting import HANGS_SECONDS
from tests.packaging.programs import IN_FORKS, given

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """A function that builds the wheel of a project's folder, from the tree as it is."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed, and building with isolation would need the network")

    def built(project: Path) -> Path:
        folder = tmp_path_factory.mktemp("wheel")
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        (path,) = folder.glob("*.whl")
        return path

    return built


@pytest.fixture(scope="session")
def wheel(build: Callable[[Path], Path]) -> Path:
    """The wheel of the whole project."""
    return build(ROOT)


@pytest.fixture(scope="session")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of an environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    made = next(folder.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(made)
    return made


@pytest.fixture(scope="session")
def printouts(site: Path) -> dict[str, str]:
    """Output of each of the programs in that environment, or its traceback."""
    # Takes TensorFlow from here, but no .pth file of this environment: only the wheel's own hook can act.
    path = os.pathsep.join([str(site), *(path for path in sys.path if path.endswith("site-packages"))])
    done = subprocess.run(
        [str(site.parents[2] / "bin" / "python"), "-c", IN_FORKS],
        capture_output=True,
        text=True,
        input=given(),
        cwd="/",
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "0", "PYTHONPATH": path},
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))
