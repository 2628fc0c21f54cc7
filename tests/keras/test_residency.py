"""Variables stay on the device between calls, and every reader and writer sees the newest value."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Kit, assert_close, both_frameworks, data

# This warning comes from Keras, which copies its variables through a protocol that NumPy has deprecated.

X, Y = data()


def trained(kit: Kit) -> Any:
    model = kit.ipu_model(kit.functional)
    model.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    return model


def test_reads_leave_the_device_copy_valid(kit: Kit) -> None:
    model = trained(kit)
    kernel = kit.variable(model.weights[0])
    assert not kernel._host_is_valid
    before = kernel.device_buffer()
    assert np.array_equal(model.get_weights()[0], before.read())
    assert kernel._host_is_valid and kernel._device_is_valid
    model.fit(X, Y, batch_size=8, verbose=0)
    assert kernel.device_buffer() is before


def test_direct_call_sees_trained_weights(kit: Kit) -> None:
    model = trained(kit)
    np.testing.assert_allclose(model(X), model.predict(X, verbose=0), atol=1e-5)
    model = trained(kit)
    embedded = tf.gather(kit.variable(model.weights[0]), [1, 0])
    np.testing.assert_array_equal(embedded, model.get_weights()[0][[1, 0]])


def test_assignments_between_fits(kit: Kit) -> None:
    model = trained(kit)
    model.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
    np.testing.assert_allclose(model.predict(X, verbose=0), 1 / 3, atol=1e-6)
    bias = model.layers[-1].bias
    bias.assign_add([0.0, 0.0, 50.0])
    assert (model.predict(X, verbose=0).argmax(1) == 2).all()
    kit.variable(bias).scatter_nd_update([[0]], [100.0])
    assert (model.predict(X, verbose=0).argmax(1) == 0).all()


def test_a_failed_assignment_changes_nothing(kit: Kit) -> None:
    model = trained(kit)
    expected = kit.variable(model.layers[-1].bias).device_buffer().read()
    try:
        kit.variable(model.layers[-1].bias).assign(np.zeros(7, np.float32))
    except ValueError as error:
        assert "hape" in str(error)
    np.testing.assert_array_equal(model.get_weights()[-1], expected)


def test_learning_rate_is_read_again(kit: Kit, keras: Any) -> None:
    model = kit.ipu_model(optimizer=keras.optimizers.SGD(0.1))
    model.fit(X, Y, batch_size=8, verbose=0)
    before = model.get_weights()[0]
    model.optimizer.learning_rate = 0.0
    model.fit(X, Y, batch_size=8, verbose=0)
    np.testing.assert_array_equal(model.get_weights()[0], before)
    model.optimizer.learning_rate = 0.1
    model.fit(X, Y, batch_size=8, verbose=0)
    assert not np.array_equal(model.get_weights()[0], before)


def test_foreign_function_sees_every_update(kit: Kit) -> None:
    model = trained(kit)
    bias = kit.variable(model.layers[-1].bias)

    @tf.function
    def double() -> tf.Tensor:
        bias.assign(bias * 2)
        return bias.read_value()

    for _ in range(2):
        expected = model.get_weights()[-1] * 2
        np.testing.assert_array_equal(double(), expected)
        np.testing.assert_array_equal(bias.device_buffer().read(), expected)
        model.fit(X, Y, batch_size=8, verbose=0)
    expected = double()
    del double
    gc.collect()
    np.testing.assert_array_equal(bias.device_buffer().read(), expected)


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file:UserWarning")
def test_keras_and_h5_files(kit: Kit, keras: Any, tmp_path: Path) -> None:
    model = trained(kit)
    expected = model.predict(X, verbose=0)
    for name in ("model.keras", "model.h5"):
        model.fit(X, Y, batch_size=8, verbose=0)
        expected = model.predict(X, verbose=0)
        model.save(tmp_path / name)
        np.testing.assert_array_equal(model.get_weights()[0], keras.models.load_model(tmp_path / name).get_weights()[0])
        with IPUStrategy().scope():
            loaded = keras.models.load_model(tmp_path / name)
        np.testing.assert_array_equal(loaded.predict(X, verbose=0), expected)


def test_resumed_training_equals_uninterrupted(kit: Kit, keras: Any, tmp_path: Path) -> None:
    model = kit.ipu_model(optimizer="adam")
    model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    with IPUStrategy().scope():
        resumed = keras.models.load_model(tmp_path / "model.keras")
    resumed.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    for received, expected in zip(resumed.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(received, expected)


def test_weights_files_and_checkpoint_callback(kit: Kit, keras: Any, tmp_path: Path) -> None:
    model = kit.ipu_model()
    path = str(tmp_path / "best.weights.h5")
    checkpoint = keras.callbacks.ModelCheckpoint(path, save_weights_only=True, monitor="loss")
    model.fit(X, Y, batch_size=8, verbose=0, callbacks=[checkpoint])
    expected = model.get_weights()
    model.fit(X, Y, batch_size=8, verbose=0)
    model.load_weights(path)
    for received, wanted in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(received, wanted)
    np.testing.assert_allclose(model(X), model.predict(X, verbose=0), atol=1e-5)


def test_tensorflow_checkpoint(kit: Kit, tmp_path: Path) -> None:
    model = trained(kit)
    checkpoint = tf.train.Checkpoint(model=model)
    path = checkpoint.save(str(tmp_path / "checkpoint"))
    expected = model.get_weights()
    model.fit(X, Y, batch_size=8, verbose=0)
    checkpoint.restore(path).expect_partial()
    np.testing.assert_array_equal(model.get_weights()[0], expected[0])
    np.testing.assert_array_equal(kit.variable(model.weights[0]).device_buffer().read(), expected[0])


def test_export(kit: Kit, tmp_path: Path) -> None:
    model = trained(kit)
    model.export(str(tmp_path / "exported"), **({"verbose": False} if kit.is_keras3 else {}))
    loaded = tf.saved_model.load(str(tmp_path / "exported"))
    np.testing.assert_allclose(loaded.serve(X), model.predict(X, verbose=0), atol=1e-5)


def test_recompilation_makes_a_new_program(kit: Kit) -> None:
    model = kit.ipu_model()
    model.fit(X, Y, batch_size=8, verbose=0)
    before = model.train_function
    model.layers[0].trainable = False
    frozen = model.layers[0].get_weights()[0]
    with IPUStrategy().scope():
        kit.compiled(model)
    model.fit(X, Y, batch_size=8, verbose=0)
    assert model.train_function is not before
    np.testing.assert_array_equal(model.layers[0].get_weights()[0], frozen)


def test_replaced_optimizer_is_used_in_new_functions(kit: Kit, keras: Any) -> None:
    """Keras' traces refer to the former optimizer; tests/keras/test_python_state.py compares with plain Keras."""
    model = kit.ipu_model(optimizer=keras.optimizers.SGD(0.1))
    model.fit(X, Y, batch_size=8, verbose=0)
    before = model.get_weights()[0]
    model.optimizer = keras.optimizers.SGD(0.0)
    model.make_train_function(force=True)
    model.fit(X, Y, batch_size=8, verbose=0)
    np.testing.assert_array_equal(model.get_weights()[0], before)


@both_frameworks
def test_a_replaced_optimizer_is_that_of_new_traces(kit: Kit, keras: Any) -> None:
    """Functions keep the optimizer with which they were traced, as in Keras."""

    def program(model: Any) -> Any:
        model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
        first, model.optimizer = model.optimizer, keras.optimizers.SGD(0.01)
        losses = model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"]
        counts = [int(optimizer.iterations) for optimizer in (first, model.optimizer)]
        if kit.is_keras3:  # tf_keras cannot trace one that is not built
            model.train_on_batch(X[:5], Y[:5])
            counts.append(int(model.optimizer.iterations))
        return [losses, counts]

    plain = kit.compiled(kit.sequential())
    with ipu.accelerate():
        fast = kit.compiled(kit.sequential())
    fast.set_weights(plain.get_weights())
    assert_close(program(fast), program(plain))
    assert_close(fast.get_weights(), plain.get_weights())


def test_optimizer_and_compile_outside_the_scope(kit: Kit, keras: Any) -> None:
    with IPUStrategy().scope():
        model = kit.sequential()
    plain = kit.sequential()
    plain.set_weights(model.get_weights())
    for each in (model, plain):
        kit.compiled(each, optimizer=keras.optimizers.Adam(0.01))
        each.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    np.testing.assert_allclose(model.get_weights()[0], plain.get_weights()[0], atol=1e-5)
    assert int(model.optimizer.iterations) == 3


def test_programs_die_with_their_model(kit: Kit) -> None:
    model = kit.ipu_model(kit.Subclassed)
    model.fit(X, Y, batch_size=8, verbose=0)
    programs = [weakref.ref(program) for program in model.train_function._programs._programs.values()]
    assert programs
    del model
    gc.collect()
    assert all(program() is None for program in programs)


def test_operations_given_the_variable_itself_see_the_newest_value(kit: Kit) -> None:
    """TensorFlow reads a variable's handle in C when the variable itself is an eager operation's argument."""
    model = trained(kit)
    kernel = kit.variable(model.weights[0])
    assert not kernel._host_is_valid
    doubled = tf.multiply(kernel, 2.0)
    np.testing.assert_array_equal(doubled, 2 * kernel.device_buffer().read())


def test_chip_summary_of_a_trained_model(kit: Kit) -> None:
    from keras_ext.chip import chip_estimate, chip_summary

    model = trained(kit)
    estimate = chip_estimate(model)
    assert estimate.fits and estimate.cycles > 0
    assert "cycles" in chip_summary(model)
    with pytest.raises(ValueError, match="evaluate"):
        chip_summary(model, "test")


def test_arrays_assigned_between_calls_are_seen(kit: Kit) -> None:
    model = trained(kit)
    for weight in (0.0, 0.5):
        kernel, bias = (kit.variable(each) for each in model.layers[-1].weights)
        kernel.assign(np.full(kernel.shape.as_list(), weight, np.float32))
        bias.assign(np.array([0.0, 1.0, 0.0], np.float32))
        assert (np.asarray(kernel) == weight).all()
        assert isinstance(model.predict_on_batch(X[:4]), np.ndarray)
        np.testing.assert_allclose(model.predict_on_batch(X[:4]), model(X[:4]), atol=1e-6)
        assert (model.predict_on_batch(X[:1]).argmax(1) == 1).all()
    with pytest.raises((ValueError, TypeError)):
        kernel.assign(np.zeros(3, np.float32))
    with pytest.raises((ValueError, TypeError)):
        kernel.assign(np.full(kernel.shape.as_list(), "text"))
    assert (np.asarray(kernel) == 0.5).all()


def test_metrics_start_again_with_each_batch(kit: Kit) -> None:
    model = trained(kit)
    for count in (4, 8, 4):
        loss, accuracy = model.test_on_batch(X[:count], Y[:count])[:2]
        expected = model.evaluate(X[:count], Y[:count], batch_size=count, verbose=0)
        np.testing.assert_allclose([loss, accuracy], expected[:2], atol=1e-6)
    for metric in model.metrics:
        metric.reset_state()
        assert all(not np.any(np.asarray(variable)) for variable in metric.variables)


def test_a_function_that_captured_a_metric_sees_its_reset(kit: Kit) -> None:
    model = trained(kit)
    total = kit.variable(model.metrics[0].variables[0])
    read = tf.function(lambda: total + 0.0)
    model.test_on_batch(X[:4], Y[:4])
    assert read() != 0
    model.metrics[0].reset_state()
    assert read() == 0
    model.test_on_batch(X[:4], Y[:4])
    assert read() != 0
