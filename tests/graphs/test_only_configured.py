"""A process that configures IPUs and uses no other part of the API: its sessions know the devices."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests import forking

v1 = tf.compat.v1


def only_configured(graphs_begin: str) -> None:
    if graphs_begin == "before":
        v1.disable_eager_execution()
    configuration = ipu.config.IPUConfig()
    configuration.auto_select_ipus = 1
    configuration.configure_ipu_system()
    if graphs_begin == "after":
        v1.disable_v2_behavior()
    with tf.Graph().as_default(), v1.Session() as session:
        with tf.device("/device:IPU:0"):
            variable = v1.get_variable("v", initializer=np.float32([1, 2]), use_resource=True)
            doubled = variable * 2.0
        session.run(v1.global_variables_initializer())
        np.testing.assert_array_equal(session.run(doubled), [2, 4])


@pytest.mark.parametrize("graphs_begin", ["before", "after", "inside"])
def test_a_device_is_there_once_it_is_configured(graphs_begin: str) -> None:
    code, text = forking.run(only_configured, graphs_begin)
    assert code == 0, text
