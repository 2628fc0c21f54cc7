"""No file grows beyond what a reader can hold in mind."""

from __future__ import annotations

from pathlib import Path

LIMIT = 400
ROOT = Path(__file__).parent.parent
FOLDERS = ("engine", "ipu", "keras_ext", "tests", "benchmarks", "examples")


def source_files() -> list[Path]:
    """Every Python file of the project."""
    return [*ROOT.glob("*.py"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))]


def test_no_file_has_more_than_400_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in source_files()}
    assert len(lengths) > 10
    crowded = {name: length for name, length in lengths.items() if length > LIMIT}
    assert not crowded, f"more than {LIMIT} lines: {crowded}"
