"""A process that configures IPUs and uses no other part of the API: its sessions know the devices."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from tests import forking

v1 = tf.compat.v1


def only_configured() -> None:
    v1.disable_eager_execution()
    configuration = ipu.config.IPUConfig()
    configuration.auto_select_ipus = 1
    configuration.configure_ipu_system()
    with tf.device("/device:IPU:0"):
        variable = v1.get_variable("v", initializer=np.float32([1, 2]), use_resource=True)
        doubled = variable * 2.0
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        np.testing.assert_array_equal(session.run(doubled), [2, 4])


def test_a_device_is_there_once_it_is_configured() -> None:
    code, text = forking.run(only_configured)
    assert code == 0, text
