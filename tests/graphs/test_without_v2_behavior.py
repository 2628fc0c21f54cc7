"""Tests of this folder also pass after `tf.compat.v1.disable_v2_behavior()`, with which old programs begin.

It runs the tests of one file, or under --all of every file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from tests import forking
from tests.exploring import sample


def without_v2_behavior(files: list[str]) -> None:
    tf.compat.v1.disable_v2_behavior()
    os.chdir(forking.ROOT)
    sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *files]))


@pytest.mark.slow
def test_the_tests_of_graphs_without_v2_behavior() -> None:
    here = Path(__file__)
    files = sample([str(path) for path in sorted(here.parent.rglob("test_*.py")) if path != here], 1)
    status, output = forking.run(without_v2_behavior, files)
    assert status == 0, output[-3000:]
