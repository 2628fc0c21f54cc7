"""The tools of docs/works_with.md, in the versions of its table, in an environment that the test makes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.pages import BLOCK
from tests.interrupting import HANGS_SECONDS

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "works_with.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| \[[^]]+\]\(#([\w-]+)\) \| ([^|]+) \|", re.M)
SECTIONS = {
    re.sub(r"[^\w -]", "", part.partition("\n")[0].lower()).replace(" ", "-"): part for part in PAGE.split("\n## ")[1:]
}
TOOLS = {name: re.findall(r"`([^`]+)`", packages) for name, packages in ROW.findall(PAGE)}


def run(*command: str, folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **settings}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=environment, timeout=HANGS_SECONDS, check=False
    )


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the packages of the table, beside those that this one has."""
    folder = tmp_path_factory.mktemp("tools")
    run(sys.executable, "-m", "venv", "--without-pip", "environment", folder=folder)
    (packages,) = (folder / "environment").glob("lib/python3*/site-packages")
    found = [str(ROOT), *(each for each in sys.path if each.endswith("site-packages")), "import _ipu_hook"]
    (packages / "tools.pth").write_text("\n".join(found))
    python = folder / "environment" / "bin" / "python"
    wanted = [package for each in TOOLS.values() for package in each]
    done = run(str(python), "-m", "pip", "install", "-q", *wanted, folder=folder)
    if done.returncode:
        pytest.skip(f"no index has the packages of the page: {done.stderr.strip().splitlines()[-1]}")
    return python


def test_each_tool_of_the_table_has_a_section_with_a_block() -> None:
    assert list(TOOLS) == list(SECTIONS) and all(TOOLS.values())
    assert [len(BLOCK.findall(section)) for section in SECTIONS.values()] == [1] * len(SECTIONS)
    assert all("assert" in section for section in SECTIONS.values())


@pytest.mark.explore
@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_works(interpreter: Path, name: str, tmp_path: Path) -> None:
    found = BLOCK.search(SECTIONS[name])
    assert found is not None
    (tmp_path / "block.py").write_text(found["code"], encoding="utf-8")
    done = run(str(interpreter), "block.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
