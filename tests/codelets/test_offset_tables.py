"""Tables of offsets by vectors, with counts that fill no vector."""

import numpy as np
import pytest

from engine.codelets.language.build import codelet
from engine.codelets.language.memory import store_i64
from engine.codelets.language.record import word
from engine.codelets.rows.offset_tables import LANES, double_table, fill_table, greatest_entry, least_entry


@codelet
def tabulate(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Parameters: addresses of a table and of three results, the table's length, a step."""
    table, count = word(parameters, 0), word(parameters, 4)
    fill_table(word(parameters, 1), count, word(parameters, 5))
    double_table(table, word(parameters, 2), count)
    store_i64(word(parameters, 3), least_entry(table, count))
    store_i64(word(parameters, 3) + 8, greatest_entry(table, count))


@pytest.mark.parametrize("count", [1, 7, 16, 33])
def test_tables_have_count_entries(count: int) -> None:
    table = np.random.default_rng(count).integers(-(1 << 60), 1 << 60, count)
    space = -(-count // LANES) * LANES
    filled, doubled, ends = np.full(space + 1, 5), np.full(space + 1, 5), np.zeros(2, np.int64)
    arrays = table, filled, doubled, ends
    parameters = np.array([*(each.ctypes.data for each in arrays), count, -12], np.int64)
    tabulate(parameters.ctypes.data, 0, 1, 0)
    np.testing.assert_array_equal(filled[:count], np.arange(count) * -12)
    np.testing.assert_array_equal(doubled[:count], 2 * table)
    assert filled[space] == doubled[space] == 5
    assert ends.tolist() == [table.min(), table.max()]
