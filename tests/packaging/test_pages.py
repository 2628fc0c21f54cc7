"""Pages pasted into a new interpreter, in an empty folder, where only the wheel is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.pages import BLOCK
from tests.interrupting import HANGS_SECONDS

ROOT = Path(__file__).parent.parent.parent
PASTED = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    # The blocks of works_with.md need tools, which test_works_with.py installs.
    if BLOCK.search(path.read_text()) and path.stem != "works_with"
]


@pytest.mark.explore
@pytest.mark.parametrize("path", PASTED, ids=lambda path: path.stem)
def test_a_page_runs_as_pasted(path: Path, site: Path, tmp_path: Path) -> None:
    pasted, folder = tmp_path / "pasted.py", tmp_path / "empty"
    pasted.write_text("\n".join(found["code"] for found in BLOCK.finditer(path.read_text(encoding="utf-8"))))
    folder.mkdir()
    # Takes TensorFlow from here. PYTHONPATH reads no .pth file, so this runs the hook of an installed wheel itself.
    packages = os.pathsep.join([str(site), *(each for each in sys.path if each.endswith("site-packages"))])
    run = "import sys, runpy, _ipu_hook; runpy.run_path(sys.argv[1], run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-P", "-c", run, str(pasted)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": packages},
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
