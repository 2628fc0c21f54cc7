"""docs/debugging.md is true."""

from __future__ import annotations

import pytest

from tests.examples.test_examples import output_of


@pytest.mark.slow
def test_the_page_is_true() -> None:
    output_of("-m", "tests.examples.pages", "docs/debugging.md")
