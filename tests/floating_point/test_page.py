"""The blocks of docs/floating_point.md print its printouts, and its definition of random bits is the engine's."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from engine.ops.rounding import random_bits
from tests.examples.pages import BLOCK, pieces

PAGE = Path(__file__).parents[2] / "docs" / "floating_point.md"


def test_printouts() -> None:
    page = PAGE.read_text()
    assert "".join(pieces(page, PAGE.name)) == page


def test_random_bits() -> None:
    (code,) = (block["code"] for block in BLOCK.finditer(PAGE.read_text()) if "def random_bits" in block["code"])
    modulo = re.sub(r"x = ([^;\n]*)", r"x = (\1) % 2**32", code).replace("0xC2B2AE35", "0xC2B2AE35 % 2**32")
    namespace: dict[str, object] = {}
    exec(modulo, namespace)
    index = np.random.default_rng(0).integers(0, 2**32, 500, np.uint32)
    expected = [namespace["random_bits"](int(i), 123456789) for i in index]  # type: ignore[operator]
    np.testing.assert_array_equal(random_bits(index, np.uint32(123456789)), expected)
