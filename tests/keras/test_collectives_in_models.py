"""Operations between replicas inside Keras models: with one replica they are the identity, or return its value."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import ConfigurationError
from tests.keras.helpers import FEATURES, data


def model_with_collective(keras):
    class Scaled(keras.layers.Layer):
        def call(self, x):
            gathered = ipu.all_to_all_op.all_gather(x, 1)[0]
            return ipu.cross_replica_ops.cross_replica_sum(gathered) * 2.0

    inputs = keras.Input((FEATURES,), batch_size=8)
    made = keras.Model(inputs, keras.layers.Dense(3, "softmax")(Scaled()(inputs)))
    made.compile("sgd", "sparse_categorical_crossentropy")
    return made


def plain_model(keras):
    inputs = keras.Input((FEATURES,), batch_size=8)
    made = keras.Model(inputs, keras.layers.Dense(3, "softmax")(inputs))
    made.compile("sgd", "sparse_categorical_crossentropy")
    return made


def test_one_replica(keras) -> None:
    features, labels = data(24)
    with ipu.ipu_strategy.IPUStrategy().scope():
        one, other = model_with_collective(keras), plain_model(keras)
        other.set_weights(one.get_weights())
        one.fit(features, labels, batch_size=8, epochs=2, shuffle=False, verbose=0)
        other.fit(features * 2, labels, batch_size=8, epochs=2, shuffle=False, verbose=0)
        for received, expected in zip(one.get_weights(), other.get_weights(), strict=True):
            np.testing.assert_allclose(received, expected, rtol=1e-5)
        np.testing.assert_allclose(
            one.predict(features, batch_size=8, verbose=0), other.predict(features * 2, batch_size=8, verbose=0), 1e-5
        )
        assert one.evaluate(features, labels, 8, verbose=0) == pytest.approx(
            other.evaluate(features * 2, labels, 8, verbose=0), rel=1e-5
        )


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("mode", ["fit", "evaluate", "predict"])
def test_reductions_of_tensorflow_are_refused_with_more_replicas(keras, replicas: int, mode: str) -> None:
    """Reductions over replicas would have the result of one of them."""

    class Centred(keras.layers.Layer):
        def call(self, x):
            context = tf.distribute.get_replica_context()
            return x - 0.5 if context is None else x - context.all_reduce("sum", tf.reduce_mean(x))

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = replicas
    config.configure_ipu_system()
    features, labels = data(32)
    with ipu.ipu_strategy.IPUStrategy().scope():
        inputs = keras.Input((FEATURES,), batch_size=8)
        model = keras.Model(inputs, keras.layers.Dense(3, "softmax")(Centred()(inputs)))
        model.compile("adam", "sparse_categorical_crossentropy")
        arguments = (features,) if mode == "predict" else (features, labels)
        if replicas == 1:
            getattr(model, mode)(*arguments, batch_size=8, verbose=0)
            return
        with pytest.raises(ConfigurationError, match=r"reductions over replicas.*tf.distribute with 2 replicas"):
            getattr(model, mode)(*arguments, batch_size=8, verbose=0)


@pytest.mark.parametrize("mode", ["fit", "evaluate", "predict"])
def test_more_replicas_are_refused(keras, mode: str) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    features, labels = data(32)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = model_with_collective(keras)
        arguments = (features,) if mode == "predict" else (features, labels)
        with pytest.raises(ConfigurationError, match=r"all_gather.*2 replicas.*IPUStrategy\.run"):
            getattr(model, mode)(*arguments, batch_size=8, verbose=0)
