"""Names and dtypes of the sums of `accumulate_outfeed`."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import tensorflow as tf

from ipu._internal.pipelining.sums import names_of, summed_as

Pair = namedtuple("Pair", ("first", "second"))


@pytest.mark.parametrize(
    ("structure", "names"),
    [
        (1.0, ["output_0"]),
        ([1.0], ["output_0"]),
        ((1.0, {"b": 2.0, "a": [3.0]}), ["output_0", "output_1/a/output_0", "output_1/b"]),
        ({"loss": 1.0, "accuracy": 2.0}, ["accuracy", "loss"]),
        (Pair(1.0, 2.0), ["first", "second"]),
        (list(range(11)), [f"output_{place}" for place in range(11)]),
    ],
)
def test_names(structure: Any, names: list[str]) -> None:
    assert names_of(structure) == names
    assert len(tf.nest.flatten(structure)) == len(names)


def test_names_where_some_are_left_out() -> None:
    assert names_of([1.0, {"a": 2.0}], positions=[2, 10]) == ["output_2", "output_10/a"]


def test_functions_see_shape_dtype_and_name() -> None:
    seen: list[tf.TensorSpec] = []
    result = summed_as(tf.ones((2, 3), tf.float16), lambda spec: (seen.append(spec), tf.float32)[1], "loss")
    assert result.dtype == tf.float32
    assert seen == [tf.TensorSpec((2, 3), tf.float16, "loss")] and seen[0].name == "loss"
    assert summed_as(tf.ones(()), lambda spec: None, "loss").dtype == tf.float32


def test_functions_that_return_no_dtype_are_refused() -> None:
    with pytest.raises(TypeError, match="a function that returns one.*Received: 'numbers'") as error:
        summed_as(tf.ones(()), lambda spec: "numbers", "loss")
    assert isinstance(error.value, ValueError)
