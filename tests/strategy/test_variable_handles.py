"""Each variable of a strategy has its own handle; one kernel of TensorFlow makes them all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu._internal.compiler import variable_handles
from ipu.ipu_strategy import IPUStrategy


def test_handles_have_one_name_and_values_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    make = variable_handles._var_handle_op

    def noted(*arguments: Any, **named: Any) -> Any:
        names.append(named["debug_name"])
        return make(*arguments, **named)

    monkeypatch.setattr(variable_handles, "_var_handle_op", noted)
    with IPUStrategy().scope():
        first, second = (tf.Variable([value, value], name=name) for name, value in (("a", 1.0), ("b", 2.0)))
    plain = tf.Variable([0.0, 0.0], name="c")
    assert names == [variable_handles.NAME] * 2 + ["c/"]
    assert (first.name, second.name) == ("a:0", "b:0")
    first.assign_add([1.0, 3.0])
    plain.assign([5.0, 5.0])
    np.testing.assert_array_equal([first.numpy(), second.numpy(), plain.numpy()], [[2, 4], [2, 2], [5, 5]])
