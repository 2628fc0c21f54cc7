"""Updates of touched rows have the bits of updating all rows, whatever is in the tables and the scalars."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.codelets.rows.touched_rows import TouchedRowsWork
from engine.compile import build_program, compile_module
from engine.debug import DebugExecutable
from engine.host.passes import pass_list
from engine.host.passes.touched_rows import skip_untouched_rows
from engine.ir import GatherDimensionNumbers, Instruction, Module, Shape, TupleShape
from engine.ir.builder import Builder
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.encode import encode_program
from engine.runtime.executable import Executable
from engine.runtime.feeds import RowFeed
from tests.program.test_row_sums import numbers_of
from tests.runtime.test_encoded_file import restored

ROWS, WIDTH, NAMED, TABLES = 8192, 32, 40, 3
LEAST_NORMAL = np.float32(2.0**-126)
Update = Callable[[Builder, list[Instruction], Instruction, Instruction], list[Instruction]]
"""Computes new tables from the old ones, the gradient, and the rate as an array."""


def adam(
    b: Builder,
    old: list[Instruction],
    gradient: Instruction,
    rate: Instruction,
    squares: Instruction | None = None,
) -> list[Instruction]:
    table, mean, square = old
    mean = b.add(mean, b.multiply(b.subtract(gradient, mean), b.splat(0.1, (ROWS, WIDTH))))
    growth = b.subtract(squares or b.multiply(gradient, gradient), square)
    square = b.add(square, b.multiply(growth, b.splat(0.01, (ROWS, WIDTH))))
    root = b.add(b.instruction("sqrt", square.shape, (square,)), b.splat(1e-7, (ROWS, WIDTH)))
    return [b.subtract(table, b.divide(b.multiply(mean, rate), root)), mean, square]


def adam_of_squares(b: Builder, old: list[Instruction], gradient: Instruction, rate: Instruction) -> list[Instruction]:
    """Builds Keras 3's Adam, with the squares of rows that are named twice."""
    zeros, ids, rows = gradient.operands
    operands, body = (zeros, ids, b.multiply(rows, rows)), gradient.called
    squares = b.instruction("scatter", gradient.shape, operands, body, **gradient.attributes)
    return adam(b, old, gradient, rate, squares)


def momentum(b: Builder, old: list[Instruction], gradient: Instruction, rate: Instruction) -> list[Instruction]:
    """Builds an update whose last table is a total of squares."""
    table, mean, total = old
    mean = b.subtract(b.multiply(mean, b.splat(0.9, (ROWS, WIDTH))), b.multiply(gradient, rate))
    return [b.add(table, mean), mean, b.add(b.multiply(mean, mean), total)]


def largest(b: Builder, old: list[Instruction], gradient: Instruction, rate: Instruction) -> list[Instruction]:
    """Builds the update of Adamax."""
    table, mean, norm = old
    mean = b.add(b.multiply(mean, b.splat(0.9, (ROWS, WIDTH))), b.multiply(gradient, rate))
    fallen = b.multiply(norm, b.splat(0.99, (ROWS, WIDTH)))
    norm = b.instruction("maximum", norm.shape, (fallen, b.multiply(gradient, gradient)))
    share = b.divide(mean, b.add(norm, b.splat(1e-7, (ROWS, WIDTH))))
    return [b.subtract(table, share), mean, norm]


def decayed(b: Builder, old: list[Instruction], gradient: Instruction, rate: Instruction) -> list[Instruction]:
    table, mean, square = adam(b, old, gradient, rate)
    return [b.subtract(table, b.multiply(old[0], rate)), mean, square]


def decayed_before(b: Builder, old: list[Instruction], gradient: Instruction, rate: Instruction) -> list[Instruction]:
    """Builds the update of AdamW."""
    share = b.multiply(b.multiply(old[0], b.splat(0.004, (ROWS, WIDTH))), rate)
    return adam(b, [b.subtract(old[0], share), *old[1:]], gradient, rate)


def averaged(b: Builder, old: list[Instruction], gradient: Instruction, rate: Instruction) -> list[Instruction]:
    """Builds an update whose last table is a moving average of the first."""
    table, mean, average = old
    mean = b.subtract(mean, b.multiply(gradient, rate))
    table = b.add(table, mean)
    return [table, mean, b.add(average, b.multiply(b.subtract(table, average), rate))]


def averaged_moment(b: Builder, old: list[Instruction], gradient: Instruction, rate: Instruction) -> list[Instruction]:
    """Builds the update with `use_ema=True`."""
    average = old[2]
    table, mean, _ = momentum(b, old, gradient, rate)
    return [table, mean, b.add(average, b.multiply(b.subtract(table, average), rate))]


def decayed_and_averaged(
    b: Builder, old: list[Instruction], gradient: Instruction, rate: Instruction
) -> list[Instruction]:
    """Builds momentum with `weight_decay` and `use_ema=True`: the table and its average drift."""
    share = b.multiply(b.multiply(old[0], b.splat(0.004, (ROWS, WIDTH))), rate)
    return averaged_moment(b, [b.subtract(old[0], share), *old[1:]], gradient, rate)


def by_row(b: Builder, old: list[Instruction], gradient: Instruction, rate: Instruction) -> list[Instruction]:
    """Builds an update with another factor in each row: the update of one row is not that of another."""
    factor = b.broadcast(b.instruction("iota", Shape("f32", (ROWS,)), (), iota_dimension=0), (ROWS, WIDTH), (0,))
    table, mean, square = adam(b, old, gradient, rate)
    return [table, b.multiply(mean, factor), square]


def step_of(update: Update, named: int = NAMED) -> Module:
    """Parameters: the tables, the rate, ids, rows. Results: the new tables, and the rows of the first that ids name."""
    b = Builder()
    old = [b.parameter("f32", (ROWS, WIDTH)) for _ in range(TABLES)]
    rate, ids, rows = b.parameter("f32"), b.parameter("s32", (named,)), b.parameter("f32", (named, WIDTH))
    body = Builder("sum")
    gradient = b.instruction(
        "scatter",
        old[0].shape,
        (b.splat(0.0, (ROWS, WIDTH)), ids, rows),
        (body.build(body.add(body.parameter("f32"), body.parameter("f32"))),),
        scatter_dimension_numbers=numbers_of((named,), False, (ROWS, WIDTH)),
    )
    new = update(b, old, gradient, b.broadcast(rate, (ROWS, WIDTH), ()))
    new.append(
        b.instruction(
            *("gather", rows.shape, (old[0], ids)),
            gather_dimension_numbers=GatherDimensionNumbers((1,), (0,), (0,), 1),
            gather_slice_sizes=(1, WIDTH),
        )
    )
    root = b.instruction("tuple", TupleShape(tuple(each.array_shape for each in new)), tuple(new))
    return Module("step", b.build(root), {k: k for k in range(TABLES)})


def executable_of(update: Update, named: int = NAMED) -> Executable:
    return compile_module(step_of(update, named), ROLES, {}, verify=True)


ROLES = ["variable"] * (TABLES + 1) + ["feed"] * 2


@pytest.fixture
def all_rows(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Executable]:
    """Makes executables that update all rows."""

    def made(update: Update, named: int = NAMED) -> Executable:
        with monkeypatch.context() as patch:
            kept = tuple(each for each in pass_list.HOST_PASSES if each is not skip_untouched_rows)
            patch.setattr("engine.runtime.encode.HOST_PASSES", kept)
            return executable_of(update, named)

    return made


def work_of(executable: Executable) -> TouchedRowsWork | None:
    return next((e.work for e in executable._running.compute_sets if isinstance(e.work, TouchedRowsWork)), None)


def touched(executable: Executable) -> int:
    """The number of flagged rows."""
    work = work_of(executable)
    assert work is not None
    begin = executable.plan.offsets[work.flags.buffer]
    return int(np.count_nonzero(executable._arena[begin : begin + ROWS]))


def variables(seed: int = 0) -> list[DeviceBuffer]:
    """A table of small numbers, zero moments, and a rate."""
    table = np.random.default_rng(seed).normal(size=(ROWS, WIDTH)).astype(np.float32)
    held = [DeviceBuffer(Shape("f32", (ROWS, WIDTH))) for _ in range(TABLES)] + [DeviceBuffer(Shape("f32"))]
    held[0].write(table)
    held[-1].write(np.asarray(0.01, np.float32))
    return held


def feeds(rng: np.random.Generator, steps: int, named: int = NAMED) -> list[RowFeed]:
    """Few ids, with repetitions, the last row, and numbers of no row; some rows of -0."""
    ids = rng.integers(-2, ROWS // 8, steps * named).astype(np.int32) * 8
    ids[::7], ids[3] = ROWS // 2, ROWS - 1
    rows = rng.normal(size=(steps * named, WIDTH)).astype(np.float32)
    rows[::5] = -0.0
    return [RowFeed(ids), RowFeed(rows)]


def same(one: list[DeviceBuffer], other: list[DeviceBuffer]) -> bool:
    return all(a.read().tobytes() == b.read().tobytes() for a, b in zip(one, other, strict=True))


def special(table: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The table with numbers to which adding a zero may matter."""
    chosen = [-0.0, np.inf, -np.inf, np.nan, LEAST_NORMAL, -LEAST_NORMAL, LEAST_NORMAL / 2, -LEAST_NORMAL / 4]
    found = table.copy()
    found.reshape(-1)[rng.integers(0, table.size, 64)] = rng.choice(np.float32(chosen), 64)
    return found


@pytest.mark.parametrize(
    "update", [adam, adam_of_squares, momentum, largest, decayed_before, averaged_moment, decayed_and_averaged]
)
def test_the_bits_of_an_update_of_all_rows(update: Update, all_rows: Callable[..., Executable]) -> None:
    rng = np.random.default_rng(1)
    one, other = executable_of(update), all_rows(update)
    assert work_of(one) is not None and work_of(other) is None
    mine, its = variables(), variables()

    def train(steps: int) -> None:
        given = feeds(rng, steps)
        one.run(steps, given, mine)
        other.run(steps, given, its)
        assert same(mine, its)

    def write(number: int, value: np.ndarray) -> None:
        for held in (mine, its):
            held[number].write(value)

    train(4)
    train(3)
    assert 0 < touched(one) < ROWS // 4
    for number in range(TABLES):
        write(number, special(mine[number].read(), rng))
        train(3)
    assert touched(one) < ROWS // 2
    for rate in (0.0, -0.01, np.inf, 1e-45, np.nan):
        write(0, special(np.nan_to_num(mine[0].read()), rng))
        for number in range(1, TABLES):
            write(number, np.where(rng.random((ROWS, 1)) < 0.9, np.float32(0), mine[number].read()))
        train(2)
        # The present flags hold for the next steps, whose scalars may change what an update does to an untouched row.
        write(TABLES, np.asarray(rate, np.float32))
        train(2)
        write(TABLES, np.asarray(0.01, np.float32))
        train(1)


def shrunk(b: Builder, old: list[Instruction], gradient: Instruction, rate: Instruction) -> list[Instruction]:
    """Builds a drift that may round to -0, to which momentum adds a step of +0."""
    return momentum(b, [b.subtract(old[0], b.multiply(old[0], rate)), *old[1:]], gradient, rate)


@pytest.mark.parametrize("rate", [0.9999, 1.0, 1.5, 2.0, 3.0, -0.5])
@pytest.mark.parametrize("sign", [-1, 1])
def test_signs_of_drifts_that_round_to_zero(rate: float, sign: int, all_rows: Callable[..., Executable]) -> None:
    held = []
    for executable in (executable_of(shrunk), all_rows(shrunk)):
        held.append(variables())
        held[-1][0].write(sign * np.linspace(1, 4, ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH) * LEAST_NORMAL)
        for each in (0.0, rate):  # the first step flags rows
            held[-1][-1].write(np.asarray(each, np.float32))
            executable.run(1, feeds(np.random.default_rng(4), 1), held[-1])
    assert same(*held)


def test_rows_are_touched_once_they_are_named() -> None:
    executable, held = executable_of(adam), variables()
    ids = np.array([5, 5, 8191, -1, 8192] * 8, np.int32)
    rows = np.ones((NAMED, WIDTH), np.float32)
    executable.run(1, [RowFeed(ids), RowFeed(rows)], held)
    assert touched(executable) == 2
    executable.run(1, [RowFeed(np.full(NAMED, 7, np.int32)), RowFeed(rows)], held)
    assert touched(executable) == 3
    held[1].write(np.zeros((ROWS, WIDTH), np.float32))
    held[2].write(np.zeros((ROWS, WIDTH), np.float32))
    executable.run(1, [RowFeed(np.full(NAMED, 9, np.int32)), RowFeed(rows)], held)
    assert touched(executable) == 1


@pytest.mark.parametrize("update", [decayed, averaged, by_row])
def test_others_update_all_rows(update: Update) -> None:
    assert work_of(executable_of(update)) is None


def test_tables_that_another_executable_writes(all_rows: Callable[..., Executable]) -> None:
    """Another executable trains, for example, on a smaller last batch of an epoch."""
    rng = np.random.default_rng(2)
    both, others = [executable_of(adam, n) for n in (NAMED, 7)], [all_rows(adam, n) for n in (NAMED, 7)]
    mine, its = variables(), variables()
    for turn in range(4):
        given = feeds(rng, 3, (NAMED, 7)[turn % 2])
        both[turn % 2].run(3, given, mine)
        others[turn % 2].run(3, given, its)
        assert same(mine, its)
    elsewhere, its_elsewhere = variables(3), variables(3)
    given = feeds(rng, 2)
    both[0].run(2, given, elsewhere)
    others[0].run(2, given, its_elsewhere)
    assert same(elsewhere, its_elsewhere)


@pytest.mark.parametrize(("order", "sessions"), [((0, 1, 2), (0, 1, 0)), ((1, 0, 2), (0, 0))])
def test_variables_that_come_back_or_in_another_order(
    order: tuple[int, ...], sessions: tuple[int, ...], all_rows: Callable[..., Executable]
) -> None:
    """One executable may update several sets of variables, as those of two sessions of one graph."""
    mine, its = ([variables(seed) for seed in (0, 3)] for _ in range(2))
    for executable, held in ((executable_of(adam), mine), (all_rows(adam), its)):
        for row, number in enumerate(sessions):
            given = [RowFeed(np.full(NAMED, row, np.int32)), RowFeed(np.ones((NAMED, WIDTH), np.float32))]
            executable.run(1, given, held[number])
            held[number][:TABLES] = [held[number][each] for each in order]
    assert same(mine[0], its[0]) and same(mine[1], its[1])


@pytest.mark.parametrize(
    "update", [adam, adam_of_squares, momentum, largest, decayed_before, averaged_moment, decayed_and_averaged]
)
def test_any_number_of_workers(update: Update, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    for count in (1, 2, 5):
        monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=count: count)
        monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
        held.append(variables())
        held[-1][0].write(special(held[-1][0].read(), np.random.default_rng(7)))
        executable = executable_of(update)
        executable.run(6, feeds(np.random.default_rng(4), 6), held[-1])
        assert work_of(executable) is not None and 0 < touched(executable) < ROWS
    assert same(held[0], held[1]) and same(held[0], held[2])


def test_encodings_in_files_follow_writes_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    made = restored(encode_program(build_program(step_of(adam), ROLES, {})), monkeypatch)
    assert made is not None
    executables, both = (Executable(made), executable_of(adam)), (variables(), variables())
    for seed in range(2):
        for executable, held in zip(executables, both, strict=True):
            executable.run(2, feeds(np.random.default_rng(seed), 2), held)
            held[1].write(np.full((ROWS, WIDTH), 0.5, np.float32))
    assert same(*both)


def test_accesses_are_declared() -> None:
    held, given = variables(), feeds(np.random.default_rng(5), 2)
    executable_of(adam).run(2, given, held)
    executable = DebugExecutable(build_program(step_of(adam), ROLES, {}))
    assert work_of(executable) is not None
    for _ in range(2):
        debugged = variables()
        executable.run(2, given, debugged)
        assert same(held, debugged)
