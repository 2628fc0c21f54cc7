"""The table of environment variables: every one that the packages read, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
TABLE = re.compile(r"^\| ((?:`[A-Z0-9_]+`(?:, )?)+) \|", re.MULTILINE)


def names_in(source: str) -> set[str]:
    """The names of variables in a file that uses the environment."""
    if "os.environ" not in source:
        return set()
    constants = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str) and NAME.fullmatch(value)}


def test_the_table_has_every_variable() -> None:
    files = [
        *(ROOT / name for name in ("_ipu_names.py", "hatch_build.py")),
        *(each for name in ("engine", "ipu", "keras_ext") for each in (ROOT / name).rglob("*.py")),
    ]
    read = set().union(*(names_in(each.read_text(encoding="utf-8")) for each in files))
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8").partition("## Environment variables")[2]
    listed = {name for row in TABLE.findall(page) for name in re.findall(r"`(\w+)`", row)}
    # The first two are set for processes that are started, not read; the third is a name of sysconf.
    assert listed == read - {"TF_CPP_MIN_LOG_LEVEL", "OPENBLAS_NUM_THREADS", "SC_CLK_TCK"}


def test_lines_that_install_work_in_a_clone() -> None:
    whole = ROOT / "pyproject.toml"
    projects = {"-e .": whole, "dist/software_ipu-*.whl": whole, "./engine": ROOT / "engine/pyproject.toml"}
    extras = {
        project: re.findall(r"^(\w+) = \[\"", file.read_text(encoding="utf-8"), re.MULTILINE)
        for project, file in projects.items()
    }
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        for given in re.findall(r"^pip install ([^&#\n]+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            found = re.fullmatch(
                r"(-e \.|dist/software_ipu-\*\.whl|\./engine)(?:\[([\w,]+)\])?", given.strip().replace("'", "")
            )
            assert found, (page.name, given)
            assert not found[2] or set(found[2].split(",")) <= set(extras[found[1]]), (page.name, given)
