"""The browser of all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.report.browser import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    made = Browser()
    yield made
    made.close()
