"""The tools of contributors find nothing: ruff in the whole project, mypy in the three packages."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interrupting import HANGS_SECONDS

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "--no-cache", "."),
        ("ruff", "format", "--check", "--no-cache", "."),
        # Without a cache it takes 20 s of processor time; .ci/run and commits run it, too.
        pytest.param(("mypy",), marks=pytest.mark.explore),
    ],
    ids=" ".join,
)
def test_tool_is_content(command: tuple[str, ...]) -> None:
    if importlib.util.find_spec(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=HANGS_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_sample_for_other_processors_exists() -> None:
    """The run on a fresh clone reaches it after all other tests."""
    (sample,) = re.findall(r"sample=\([^)]*\)", (ROOT / ".ci/run").read_text())
    listed = subprocess.run(
        ["bash", "-c", f"{sample}; printf '%s\\n' \"${{sample[@]}}\""], capture_output=True, text=True, check=True
    )
    names = listed.stdout.split()
    assert len(names) > 5
    assert [name for name in names if not (ROOT / "tests" / name).exists()] == []
