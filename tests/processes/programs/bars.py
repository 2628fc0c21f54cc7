"""Run in two processes: trains, evaluates and predicts with the progress bars of each Keras."""

import keras
import numpy as np
import popdist.tensorflow
import tf_keras
from tensorflow.python.ipu.config import IPUConfig
from tensorflow.python.ipu.distributed.popdist_strategy import PopDistStrategy

popdist.init()
config = IPUConfig()
popdist.tensorflow.set_ipu_config(config)
config.configure_ipu_system()
x = np.ones((16, 3), np.float32)
for framework in (keras, tf_keras):
    with PopDistStrategy().scope():
        model = framework.Sequential([framework.Input((3,)), framework.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=2)
        model.fit(x, x[:, :1], batch_size=4, verbose=2)
        model.fit(x, x[:, :1], batch_size=4)
        model.evaluate(x, x[:, :1], batch_size=4)
        model.predict(x, batch_size=4)
