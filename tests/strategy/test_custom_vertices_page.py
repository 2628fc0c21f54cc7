"""The blocks of docs/custom_vertices.md print its printouts."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from ipu._internal.releases import RELEASES
from tests.examples.pages import pieces

PAGE = Path(__file__).parents[2] / "docs" / "custom_vertices.md"

NEWEST = ".".join(map(str, RELEASES["tensorflow"][1]))


@pytest.mark.explore
@pytest.mark.skipif(not tf.__version__.startswith(NEWEST), reason=f"instructions have the names of TensorFlow {NEWEST}")
def test_printouts() -> None:
    page = PAGE.read_text()
    assert "".join(pieces(page, PAGE.name)) == page
