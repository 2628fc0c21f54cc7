"""The wheel holds the three packages and the hook, and works where nothing of the project is on the path."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.interrupting import HANGS_SECONDS

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the tree as it is."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed, and building with isolation would need the network")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert archive.read("ipu_hook.pth") == b"import _ipu_hook\n"
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "_ipu_hook.py",
        "engine",
        "ipu",
        "ipu_hook.pth",
        "keras_ext",
    }
    assert {"ipu/py.typed", "engine/py.typed", "keras_ext/py.typed", "ipu/config.py"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_installed_wheel_works_without_the_source(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # TensorFlow from here, but no .pth file of this environment: only the wheel's own hook can be at work.
    others = [path for path in sys.path if path.endswith("site-packages")]
    source = """
        import keras, ipu
        from tensorflow.python.ipu.config import IPUConfig
        assert keras.ipu.PipelineStage is keras.ipu.extensions.PipelineStage
        print(ipu.__file__)
    """
    done = subprocess.run(
        [str(tmp_path / "venv" / "bin" / "python"), "-c", "if True:" + source],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *others]), "TF_CPP_MIN_LOG_LEVEL": "3"},
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(site / "ipu" / "__init__.py")
