"""Tests of this folder pass after `tf.compat.v1.disable_v2_behavior()`, too, as old programs begin.

Those of two files, under --all those of each.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.exploring import sample

RUN = """
import sys, pytest, tensorflow as tf
tf.compat.v1.disable_v2_behavior()
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


@pytest.mark.slow
def test_the_tests_of_graphs_without_v2_behavior() -> None:
    here = Path(__file__)
    files = sample([str(path) for path in sorted(here.parent.rglob("test_*.py")) if path != here], 2)
    ended = subprocess.run([sys.executable, "-c", RUN, *files], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-3000:]
