"""Calls of a single small step: they give the bits of any other call, for any arrays and variables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.compile import compile_module
from engine.ir import Module
from engine.ir.builder import Builder
from engine.runtime.brief_call import BriefCall
from engine.runtime.build_table import TableBuilder
from engine.runtime.feeds import RowFeed
from tests.engine.running import buffers
from tests.program.loop_parts import below, loop, next_count, scaled
from tests.program.programs import PROGRAMS, values_of
from tests.program.rings import ring_loop


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Callable[[Module, list[str]], BriefCall]:
    """Compares brief calls with others; returns the last brief call.

    Two sets of variables take turns, twice each; results are those of the last step or of all steps.
    """

    def compare(module: Module, roles: list[str]) -> BriefCall:
        parameters = list(zip(module.entry.parameters, roles, strict=True))
        found = []
        for limit in (0, 1 << 60):
            monkeypatch.setattr("engine.runtime.executable.inline_work", lambda most=limit: most)
            executable = compile_module(module, roles, {})
            held = [buffers(values_of([p for p, role in parameters if role == "variable"], seed=k)) for k in (1, 2)]
            assert (executable.brief_call(held[0]) is None) == (limit == 0)
            bits = []
            for call in range(6):
                arrays = values_of([p for p, role in parameters if role == "feed"], seed=call)
                feeds = [RowFeed(array if array.ndim else array[None]) for array in arrays]
                outputs = executable.run(1, feeds, held[call // 2 % 2], "all" if call == 3 else "last")
                bits += [(each.dtype, each.shape, each.tobytes()) for each in outputs]
            found.append(bits + [h.read().tobytes() for each in held for h in each])
        assert found[0] == found[1]
        brief = executable.brief_call(held[0])
        assert brief is not None
        return brief

    return compare


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_bits_of_other_calls(name: str, check: Callable[[Module, list[str]], BriefCall]) -> None:
    check(*PROGRAMS[name]())


def test_the_builder_of_the_table_is_kept(check: Callable[[Module, list[str]], BriefCall]) -> None:
    """The builder owns a pred for each iteration of a loop; the table contains their addresses."""
    module = ring_loop(4)
    brief = check(module, ["feed"] * len(module.entry.parameters))
    assert next(each for each in brief._kept if isinstance(each, TableBuilder)).preds


@pytest.mark.parametrize(("iterations", "is_brief"), [(20, True), (100_000, False)])
def test_loops_whose_iterations_are_known_and_few_are_brief(iterations: int, is_brief: bool) -> None:
    b = Builder()
    x = b.parameter("f32", (8,))
    _, y = loop(
        *(b, [b.constant(0, "s32"), x], below(iterations)), lambda s, e: [next_count(s, e[0]), scaled(s, e[1], 0.5)]
    )
    executable = compile_module(b.module(b.tuple(y), {}), ["feed"], {})
    assert (executable.brief_call([]) is not None) == is_brief
    if is_brief:
        brief = executable.brief_call([])
        assert brief is not None
        wide = np.arange(16, dtype=np.float32)
        for given in (wide[:8], wide[::2], wide[::-2]):  # any strides
            (result,) = brief.run([given])
            np.testing.assert_array_equal(result, given * np.float32(0.5**iterations))
