"""`python -m engine.algorithms` prints each product and convolution of a program, its bids, and the work that runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.algorithms import main, selections
from engine.compile import build_program
from engine.host.convolutions import winograd
from engine.ir.builder import Builder
from tests.files.programs import plain_file
from tests.program.test_winograd import convolution


def test_a_convolution_has_all_bids_and_runs_as_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    for worth, work in ((winograd.WORTH, "WinogradProduct"), (1e-9, "Contraction")):
        monkeypatch.setattr(winograd, "WORTH", worth)
        program = build_program(convolution(8, 32, 32, 64, 64), ["feed", "feed"], {})
        (found,) = selections(program)
        assert found.multiply_adds == 9 * 8 * 32 * 32 * 64 * 64
        bids = [each for each in re.split(r" cycles,? ?", found.bids[0]) if each]
        assert {"contraction", "F(2 x 2, 3 x 3)", "F(4 x 4, 3 x 3)"} < {each.rsplit(" ", 1)[0] for each in bids}
        assert bids[0].startswith("F(4 x 4, 3 x 3) " if work == "WinogradProduct" else "contraction ")
        assert work in found.work


def test_the_command_lists_products_and_names_what_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    b = Builder()
    path = tmp_path / "product.poplar_exec"
    path.write_bytes(plain_file(b.module(b.tuple(b.dot(b.parameter("f32", (4, 8)), b.parameter("f32", (8, 3)))))))
    assert main([str(path)]) == 0
    assert "96 multiply-adds\n    offered: contraction\n    runs as: Contraction\n" in capsys.readouterr().out
    assert main([str(tmp_path / "missing.poplar_exec")]) == 1
    assert "missing.poplar_exec" in capsys.readouterr().err
