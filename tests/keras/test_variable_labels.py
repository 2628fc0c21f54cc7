"""Reports name variables as the model does, each with the layer that owns it and its role."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.keras.helpers import Kit


def own_name(variable: Any) -> str:
    """The path of a variable in Keras 3, its name in tf_keras."""
    return str(getattr(variable, "path", None) or variable.name.partition(":")[0])


def tensors_of(*subject: Any, **options: Any) -> dict[str, dict[str, Any]]:
    """The variables of a program in its report, by name."""
    data = ipu.profile(*subject, path=None, **options).data
    found = [t for t in data["liveness"]["tensors"] if t["category"] in ("weights", "optimizer state")]
    names = {t["name"]: t for t in found}
    assert len(names) == len(found)
    return names


def block(keras: ModuleType, name: str) -> Any:
    """A layer that contains two layers."""

    class Block(keras.layers.Layer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(name=name)
            self.inner = keras.layers.Dense(8, name="inner")
            self.norm = keras.layers.BatchNormalization(name="norm")

        def call(self, x: Any, training: bool = False) -> Any:
            return self.norm(self.inner(x), training=training)

    return Block()


def model_of(keras: ModuleType, optimizer: Any) -> Any:
    """A model with a frozen layer, whose biases have equal shapes; the next layer is the first to read one of them."""
    with ipu.ipu_strategy.IPUStrategy().scope():
        frozen, trained = block(keras, "first"), block(keras, "second")
        frozen.trainable = False
        inputs = keras.Input((8,))
        x = keras.layers.Dropout(0.5, name="drop")(trained(frozen(inputs)))
        model = keras.Model(inputs, keras.layers.Dense(8, name="last")(x))
        model.compile(optimizer(), "mse", metrics=["mae"], steps_per_execution=2)
    return model


@pytest.mark.parametrize("optimizer", ["Adam", "SGD", "legacy.Adam"])
def test_variables_have_the_models_names(kit: Kit, optimizer: str) -> None:
    if optimizer.startswith("legacy") and kit.keras.__name__ == "keras":
        pytest.skip("Keras 3 has no legacy optimizers that train")
    made: Any = kit.keras.optimizers
    for part in optimizer.split("."):
        made = getattr(made, part)
    model = model_of(kit.keras, (lambda: made(momentum=0.9)) if optimizer == "SGD" else made)
    found = tensors_of(model, batch_size=4)
    layers = {f"{b}/{layer}" for b in ("first", "second") for layer in ("inner", "norm")} | {"last"}
    weights = [v for v in model.variables if "seed" not in own_name(v)][: len(model.weights)]
    assert len(weights) >= 14
    for variable in weights:
        name = own_name(variable)
        if any(name.startswith(layer) for layer in layers):
            tensor = found[name]
            assert tensor["layer"] == name.rpartition("/")[0]
            assert tensor["category"] == "weights"
            assert tensor["role"] == ("statistic" if "/moving_" in name else "weight")
    for variable in model.trainable_variables:
        slots = [t for name, t in found.items() if name.endswith(f" slot of {own_name(variable)}")]
        assert len(slots) == (1 if optimizer == "SGD" else 2)
        for slot in slots:
            assert (slot["category"], slot["role"]) == ("optimizer state", "slot")
            assert slot["layer"] == own_name(variable).rpartition("/")[0]
    assert {t["category"] for t in found.values() if t["role"] == "counter"} == {"optimizer state"}
    assert {t["category"] for t in found.values() if t["role"] == "metric"} == {"weights"}
    assert not any("variable of" in name for name in found)


def test_a_tape_names_variables_and_slots(kit: Kit) -> None:
    keras = kit.keras
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        layers = [keras.Input((8,)), keras.layers.Dense(8, name="one"), block(keras, "two")]
        model = keras.Sequential(layers)
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
        scale = tf.Variable(tf.ones(8), name="scale")

    @tf.function(jit_compile=True)
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) * scale) ** 2)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    found = tensors_of(step, tf.ones((4, 8)))
    for variable in model.variables:
        assert found[own_name(variable)]["role"] == ("statistic" if "/moving_" in own_name(variable) else "weight")
    for variable in model.trainable_variables:
        assert sum(name.endswith(f" slot of {own_name(variable)}") for name in found) == 2
    assert found["scale"]["role"] == "weight"


def test_stages_of_a_pipeline_name_their_variables(kit: Kit) -> None:
    keras = kit.keras
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        inputs = keras.Input((8,))
        with keras.ipu.PipelineStage(0):
            x = keras.layers.Dense(8, name="one")(inputs)
        with keras.ipu.PipelineStage(1):
            x = keras.layers.Dense(8, name="two")(x)
        model = keras.Model(inputs, x)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        model.compile("adam", "mse", steps_per_execution=4)
    names = {t["name"]: t["layer"] for t in ipu.profile(model, batch_size=4, path=None).data["liveness"]["tensors"]}
    fullest = next(layer for layer in ("one", "two") if f"{layer}/kernel" in names)
    assert names[f"{fullest}/kernel"] == names[f"{fullest}/bias"] == fullest
    assert sum(name.endswith(f" slot of {fullest}/kernel") for name in names) == 2
    assert f"sum of gradients of {fullest}/kernel" in names


def test_slots_of_version_1_belong_to_weights_in_variable_scopes() -> None:
    """An optimizer that is called in a scope calls the slot of net/w net/net/w/Momentum."""
    v1 = tf.compat.v1

    def net(x: tf.Tensor) -> tf.Tensor:
        w = v1.get_variable("w", (4, 4), use_resource=True)
        loss = tf.reduce_mean(tf.matmul(x, w) ** 2)
        with tf.control_dependencies([v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)]):
            return tf.identity(loss)

    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("net"), ipu.scopes.ipu_scope("/device:IPU:0"):
            result = ipu.ipu_compiler.compile(net, [tf.ones((8, 4))])
        session.run(v1.global_variables_initializer())
        session.run(result)
        found = {name: (t["category"], t["layer"]) for name, t in tensors_of(result).items()}
    assert found == {"net/w": ("weights", "net"), "Momentum slot of net/w": ("optimizer state", "net")}
