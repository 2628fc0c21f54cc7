"""Values that become an array of a dtype."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from engine.values import as_array


@pytest.mark.parametrize(
    ("value", "dtype", "wanted"),
    [
        ([1, 2], np.uint8, [1, 2]),
        ([1, 2], np.float16, [1, 2]),
        (3, np.int32, 3),
        (np.int64(-5), np.int8, -5),
        ([True], np.int32, [1]),
        ([1.5], ml_dtypes.bfloat16, [1.5]),
        ([1e300], np.float32, [np.inf]),
        ([], np.int32, []),
        ([2.5], np.complex64, [2.5]),
        (np.arange(6).reshape(2, 3).T, np.int32, [[0, 3], [1, 4], [2, 5]]),
    ],
)
def test_values_that_fit(value: Any, dtype: Any, wanted: Any) -> None:
    array = as_array(value, "x", np.dtype(dtype))
    assert array.dtype == dtype and array.flags.c_contiguous and array.shape == np.shape(wanted)
    assert array.tolist() == wanted


def test_an_array_that_fits_is_not_copied() -> None:
    array = np.ones((3, 2), np.float32)
    assert np.shares_memory(as_array(array, "x", array.dtype), array)


@pytest.mark.parametrize(
    ("value", "dtype", "kind"),
    [
        ([256], np.uint8, ValueError),
        ([-1], np.uint32, ValueError),
        ([2**31], np.int32, ValueError),
        ([2**70], np.int32, TypeError),
        ([0.5], np.int32, TypeError),
        ([1], np.bool_, TypeError),
        (["1"], np.float32, TypeError),
        (None, np.float32, TypeError),
        ([1j], np.float32, TypeError),
        ([[1], [1, 2]], np.int32, ValueError),
        (np.zeros(0), np.int32, TypeError),
    ],
)
def test_values_that_do_not(value: Any, dtype: Any, kind: type) -> None:
    with pytest.raises(kind, match="'x'"):
        as_array(value, "x", np.dtype(dtype))
