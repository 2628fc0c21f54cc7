"""The programs of section 18.14.4, which print tensors."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graphs.chapters.programs import run, v1
from tests.strategy.helpers import written

ONES = np.ones((2, 2), np.float32)


def printed(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """Texts printed to the standard error, without the titles."""
    return [text.split(":", 1)[-1].strip() for text in written(capfd).replace("\n ", " ").splitlines()]


def test_returned(capfd: pytest.CaptureFixture[str]) -> None:
    v = v1.placeholder(np.float32, [2, 2])
    names = run("18_14_4_returned", v=v)
    with v1.Session() as session:
        results = session.run(names["res"], {v: 3 * ONES})
    np.testing.assert_array_equal(results[0], 4 * ONES)
    assert printed(capfd) == ["[[3. 3.] [3. 3.]]"]


def test_in_session(capfd: pytest.CaptureFixture[str]) -> None:
    names = run("18_14_4_in_session")
    np.testing.assert_array_equal(names["result"], [2 * ONES, ONES])
    assert printed(capfd) == ["[[1. 1.] [1. 1.]]"]


def test_control_dependencies(capfd: pytest.CaptureFixture[str]) -> None:
    names = run("18_14_4_control_dependencies")
    np.testing.assert_array_equal(names["result"], 2 * ONES)
    assert printed(capfd) == ["[[1. 1.] [1. 1.]]"]
