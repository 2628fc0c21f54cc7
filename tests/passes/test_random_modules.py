"""Every pass, and all of them in a row, on random modules: same results, well formed, nothing left to do."""

import pytest

from engine.ir.printer import print_module
from engine.passes.common_subexpressions import common_subexpressions
from engine.passes.constant_folding import constant_folding
from engine.passes.dead_code import dead_code
from engine.passes.fold_into_dot import fold_into_dot
from engine.passes.inline_calls import inline_calls
from engine.passes.order import schedule
from engine.passes.pass_list import SIMPLIFICATION
from engine.passes.simplify_arithmetic import simplify_arithmetic
from engine.passes.simplify_shapes import simplify_shapes
from tests.passes.checking import assert_same_results, simplified
from tests.passes.random_modules import RandomModule

EXACT = [inline_calls, dead_code, common_subexpressions, constant_folding, simplify_arithmetic, schedule]


@pytest.mark.parametrize("each", [*EXACT, simplify_shapes], ids=lambda p: p.__name__)
def test_pass_keeps_every_bit(each):
    for seed in range(60):
        module = RandomModule(seed).module()
        before = print_module(module)
        assert_same_results(module, each(module), seed)
        assert print_module(module) == before


def test_all_passes_keep_every_bit():
    for seed in range(120):
        module = RandomModule(seed, 60).module()
        assert_same_results(module, simplified(module), seed)


@pytest.mark.parametrize("each", [simplify_shapes, fold_into_dot, simplified], ids=lambda p: p.__name__)
def test_sums_and_products_agree_to_rounding(each):
    for seed in range(60):
        module = RandomModule(seed, sums=True).module()
        assert_same_results(module, each(module), seed, tolerance=3e-2)


@pytest.mark.parametrize("each", dict.fromkeys(SIMPLIFICATION), ids=lambda p: p.__name__)
def test_second_run_finds_nothing(each):
    for seed in range(40):
        once = each(RandomModule(seed, sums=True).module())
        assert each(once) is once


def test_all_passes_leave_little():
    sizes = [len(simplified(RandomModule(seed, 60).module()).entry.instructions) for seed in range(40)]
    assert sum(sizes) < 0.6 * 60 * len(sizes)
