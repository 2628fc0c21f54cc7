"""The page about the estimate of cycles has tables that its code prints."""

from __future__ import annotations

from pathlib import Path

from tests.examples.pages import pieces

PAGE = Path(__file__).parents[2] / "docs" / "chip_model.md"


def test_the_page_is_true() -> None:
    page = PAGE.read_text()
    assert "".join(pieces(page, PAGE.name)) == page


def test_every_estimator_file_is_named() -> None:
    page = PAGE.read_text()
    profile = PAGE.parents[1] / "engine" / "profile"
    for name in ("plan", "convolution", "cuts", "matrix_engine", "vertices", "superstep", "slices", "factorization"):
        assert (profile / f"{name}.py").exists() and f"`{name}.py`" in page
