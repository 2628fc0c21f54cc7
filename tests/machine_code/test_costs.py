"""Times of processors that were measured, a default that is safe anywhere, and a file instead of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isinf
from pathlib import Path

import pytest

from engine.compile import compile_module
from engine.errors import ConfigurationError
from engine.machine_code import costs
from engine.runtime.executable import inline_work
from engine.runtime.feeds import RowFeed
from tests.engine.running import buffers
from tests.engine.test_steps import split, state
from tests.program.programs import training_step


@pytest.mark.parametrize(("feature", "splits"), [("avx512f", False), ("amx-bf16", True)])
def test_only_measured_processors_split_products(feature: str, splits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "target", lambda: ("unknown", frozenset({feature})))
    monkeypatch.delenv(costs.VARIABLE, raising=False)
    found = costs.costs.__wrapped__()
    assert isinf(found.split_multiply_add) is not splits
    assert not splits or found.split_multiply_add < found.multiply_add


def test_a_file_named_in_the_environment_replaces_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "costs.toml"
    path.write_text("[schedule]\nbarrier = 350\ncache_bytes = 1048576\n[results]\nsplit = 0.5\n")
    monkeypatch.setenv(costs.VARIABLE, str(path))
    plain = replace(costs.DEFAULT, barrier=350, cache_bytes=1 << 20, split=0.5)
    monkeypatch.setattr(costs, "target", lambda: ("unknown", frozenset()))
    assert costs.costs.__wrapped__() == plain


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[schedule]\nsplit = 1.0", "Expected .*barrier.* in section \"schedule\".*Received: 'split'"),
        ("[schedule]\nmultiply_add = 1.0", "Received: 'multiply_add'"),
        ("[schedule]\nbarrier = -1", "positive number for barrier.*Received: -1"),
        ("barrier = 1", "sections.*Received: 'barrier'"),
        ("[schedule", "TOML file"),
    ],
)
def test_files_of_something_else_are_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        costs.with_file(costs.DEFAULT, path)
    with pytest.raises(ConfigurationError, match=r"missing\.toml"):
        costs.with_file(costs.DEFAULT, tmp_path / "missing.toml")


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], None]]:
    """A function that multiplies the costs of the schedule, in a file that the environment names."""
    path, found = tmp_path / "costs.toml", costs.costs()
    monkeypatch.setenv(costs.VARIABLE, str(path))

    def scale(factor: float) -> None:
        values = (f"{name} = {factor * getattr(found, name)}" for name in ("barrier", "threads", "cache_bytes"))
        path.write_text("\n".join(["[schedule]", *values]))
        costs.costs.cache_clear()
        inline_work.cache_clear()

    yield scale
    costs.costs.cache_clear()
    inline_work.cache_clear()


def test_costs_of_the_schedule_change_what_is_fused_but_no_bits(named: Callable[[float], None]) -> None:
    module, roles = training_step(batch=64, wide=768)
    feeds, values = split(module, roles, 2)
    sets, bits = [], []
    for factor in (2.0**-12, 1.0, 4.0, 2.0**12):
        named(factor)
        executable = compile_module(module, roles, {})
        held = buffers(values)
        results = executable.run(2, [RowFeed(f) for f in feeds], held)
        sets.append(len(executable._running.compute_sets))
        bits.append([r.tobytes() for r in results] + state(held))
    assert len(set(sets)) > 1
    assert all(each == bits[0] for each in bits)


def test_costs_of_split_products_follow_from_three_times() -> None:
    from benchmarks.tune import SPLIT, solved

    multiply_add, split_element, gathered = 1 / 172, 0.28, 0.4
    times = [
        rows * columns * k * multiply_add
        + (rows + columns) * k * split_element
        + (rows * k * gathered if form[0] == "T" else 0)
        for rows, columns, k, form in SPLIT
    ]
    found = solved(times)
    assert found == pytest.approx({"split_multiply_add": 1 / 172, "split": 0.28, "gather": 0.4})
