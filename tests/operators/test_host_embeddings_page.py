"""The blocks of docs/host_embeddings.md print its printouts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.pages import pieces

PAGE = Path(__file__).parents[2] / "docs" / "host_embeddings.md"


@pytest.mark.explore
def test_printouts() -> None:
    page = PAGE.read_text()
    assert "".join(pieces(page, PAGE.name)) == page
