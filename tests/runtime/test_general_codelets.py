"""Codelets compiled at installation are those that usual programs ask for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine.codelets.convolutions.cook_toom import LARGE, SMALL, transform_of
from engine.codelets.convolutions.overlap_add import OverlapAdd
from engine.codelets.convolutions.winograd_runs import writing_runs
from engine.codelets.language.build import MachineCode
from engine.codelets.pooling.pool_gradient import pool_gradient
from engine.compile import build_program
from engine.ir import Module, Shape
from engine.ir.attributes import WindowDimension
from engine.program.buffer import Address, Buffer
from engine.program.work.offsets import Offsets
from engine.runtime.encode import encode_program
from engine.runtime.general_codelets import general_codelets
from tests.lower.test_fourier import fft_module
from tests.program import test_depthwise_windows as depthwise
from tests.program.test_pooled_windows import pooling
from tests.program.test_winograd_strides import Case, module

STRIDED = Case(32, (32, 32), 16, 32, (3, 3), (2, 2), (0, 0), (1, 1))
TAPS = (
    Case(16, (14, 14), 32, 64, (4, 4), (2, 2), (1, 1), (1, 1)),
    Case(16, (14, 14), 32, 64, (5, 5), (2, 2), (1, 1), (2, 2)),
)
KINDS = (depthwise.forward, depthwise.by_input, depthwise.by_kernel)
ONE, PAIR, RUNNING = WindowDimension(1), WindowDimension(2, 2), WindowDimension(28, padding_low=27)
USUAL = {
    **{
        f"{each.taps} taps, stride 2, {kind}": module(kind, each)
        for each in (STRIDED, *TAPS)
        for kind in ("forward", "by input", "by kernel")
    },
    **{
        f"{kind.__name__}, {taps} taps, stride {step}": kind(8, 64, 24, taps, step, 1)
        for kind in KINDS
        for taps in (3, 5)
        for step in (1, 2)
    },
    **{f"spectra of {n}": fft_module(kind, (40,), (n,)) for kind, n in (("RFFT", 256), ("FFT", 512), ("IRFFT", 1024))},
    **{f"running sums, {kind}": pooling(kind, (8, 28), (ONE, RUNNING), "add") for kind in ("f32", "s32")},
    "mean pooling": pooling("f32", (8, 28, 28, 16), (ONE, PAIR, PAIR, ONE), "add"),
}
"""Convolutions and pooling as ResNets, MobileNets, EfficientNets, LeNets and GANs have them, spectra of sound, and
sums over positions as mixtures of experts have them."""


@pytest.mark.parametrize("usual", USUAL.values(), ids=USUAL)
def test_usual_programs_compile_no_codelet(usual: Module) -> None:
    encoded = encode_program(build_program(usual, ["variable"] * len(usual.entry.parameters), {}))
    codelets = [each for block in encoded.blocks for each in (block.codelet, *(called for _, called in block.calls))]
    listed = {each.path for each in general_codelets()}
    assert not [each.name for each in codelets if isinstance(each, MachineCode) and each.path not in listed]


def test_usual_codelets_of_images_are_in_the_list_as_programs_ask_for_them() -> None:
    address, window = Address(Buffer("x", Shape("f32", (64,)))), (WindowDimension(3),)
    tables = Offsets(np.arange(4) * 4), Offsets(np.zeros(1))
    work = OverlapAdd(address, address, address, *tables, window, (4,), (2,), 1, 16, 8, 8, 4, "f32")
    again = pool_gradient.__wrapped__("UGE", "f32")
    convolutions = [writing_runs(transform_of("products", axes), "f32") for axes in (SMALL, LARGE)]
    listed = {each.path for each in general_codelets()}
    for codelet in (work.encode().codelet, pool_gradient("UGE", "f32"), again, *convolutions):
        assert codelet.path in listed
    assert pool_gradient("LT", "f32").path not in listed


def test_the_installation_needs_no_tensorflow() -> None:
    code = "import sys; from engine.runtime import general_codelets; sys.exit('tensorflow' in sys.modules)"
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {root!r}); {code}"], check=True)
