"""`ipu.custom_ops.vertex` in functions, Keras models, replicas and pipelines, against TensorFlow's operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.debug import debugging
from engine.errors import DebugError, VertexError
from tests.keras.helpers import Kit
from tests.strategy.helpers import compiled, replicas

vertex = ipu.custom_ops.vertex


@vertex(
    split={"x": "rows", "w": "whole", "out": "rows", "norm": "rows"},
    outputs=lambda x, w: [x, tf.TensorSpec(x.shape[:-1], x.dtype)],
    reassociate=True,
)
def scaled(x: Any, w: Any, out: Any, norm: Any) -> None:
    for i in range(x.shape[0]):
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += x[i, j] * x[i, j]
        norm[i] = np.float32(1) / np.sqrt(total)
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * norm[i] * w[j]


@scaled.gradient
@vertex(
    split=dict.fromkeys(("x", "norm", "d_out", "d_x"), "rows") | {"w": "whole", "d_w": "reduction"},
    outputs=lambda x, w, norm, d_out: [x, w],
)
def scaled_gradient(x: Any, w: Any, norm: Any, d_out: Any, d_x: Any, d_w: Any) -> None:
    for i in range(x.shape[0]):
        dot = np.float32(0)
        for j in range(x.shape[1]):
            dot += d_out[i, j] * w[j] * x[i, j]
        for j in range(x.shape[1]):
            d_x[i, j] = norm[i] * (d_out[i, j] * w[j] - x[i, j] * dot * norm[i] * norm[i])
            d_w[j] += d_out[i, j] * x[i, j] * norm[i]


@vertex
def cubed(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        out[i] = x[i] * x[i] * x[i]


@cubed.gradient
def cubed_gradient(d_out: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    return 3 * x * x * d_out


def plain(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    return x / tf.norm(x, axis=-1, keepdims=True) * w


def derivatives(function: Callable[..., tf.Tensor], x: tf.Tensor, w: tf.Tensor) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        tape.watch([x, w])
        y = function(x, w)
        loss = tf.reduce_sum(tf.sin(tf.cast(y, tf.float32) * 3))
    return [y, *tape.gradient(loss, [x, w])]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_outputs_and_gradients_are_those_of_operations(dtype: str, strategy: Any) -> None:
    rng = np.random.default_rng(0)
    x, w = (tf.constant(rng.normal(size=size), dtype) for size in ((3, 301, 37), (37,)))

    def mixed(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        return cubed(scaled(x, w)[0])

    expected = derivatives(lambda x, w: plain(x, w) ** 3, tf.cast(x, tf.float32), tf.cast(w, tf.float32))
    with strategy.scope():
        on_device = strategy.run(compiled(lambda x, w: derivatives(mixed, x, w)), (x, w))
    for found in (on_device, derivatives(mixed, x, w), tf.function(derivatives)(mixed, x, w)):
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == dtype
            scale = float(np.abs(other).max())
            np.testing.assert_allclose(
                tf.cast(one, tf.float32), other, rtol=0, atol=scale * (2e-5 if dtype == "float32" else 2e-2)
            )


def layer(kit: Kit) -> Any:
    """A layer of either Keras with a trained weight."""

    class Scaled(kit.keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.w = self.add_weight(shape=(shape[-1],), initializer="ones", name="w")

        def call(self, x: Any) -> Any:
            return scaled(x, tf.convert_to_tensor(self.w))[0]

    return Scaled


def fitted(kit: Kit, middle: Callable[[], Any], stages: bool) -> list[np.ndarray]:
    keras = kit.keras
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).normal(size=(64, 20)).astype(np.float32)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(16), middle(), keras.layers.Dense(3)])
        if stages:
            model.set_pipeline_stage_assignment([0, 0, 1])
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        model.compile("sgd", "mse", steps_per_execution=4)
        model.fit(x, x[:, :3], batch_size=8, shuffle=False, epochs=2, verbose=0)
    return [np.asarray(each) for each in model.get_weights()]


@pytest.mark.parametrize("ipus, stages", [(1, False), (2, False), (2, True)])
def test_a_keras_layer_trains_with_a_vertex(ipus: int, stages: bool, kit: Kit) -> None:
    replicas(ipus)

    class Plain(layer(kit)):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return plain(x, tf.convert_to_tensor(self.w))

    for one, other in zip(fitted(kit, layer(kit), stages), fitted(kit, Plain, stages), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_wrong_declaration_is_found_by_the_debug_executor(strategy: Any) -> None:
    @vertex(split="rows")
    def differences(x: Any, out: Any) -> None:
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                out[i, j] = x[i + 1, j] - x[i, j]

    with (
        strategy.scope(),
        debugging(tiles=2),
        pytest.raises(DebugError, match="differences.*an index in the vertex, or its split"),
    ):
        strategy.run(compiled(differences), (tf.ones([200, 100]),))


def doubled(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        out[i] = 2 * x[i]


def pair(x: Any, y: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        out[i] = x[i] + y[i]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: vertex(doubled, split="columns"), "one of 'elementwise', 'rows', 'whole' as split of 'x'"),
        (lambda: vertex(doubled, split={"x": "rows"}), r"a split of each of \(x, out\)"),
        (lambda: vertex(doubled, split={"x": "whole", "out": "reduction"}), "arrays that are split"),
        (lambda: vertex(doubled, split={"x": "rows", "out": "whole"}), "'elementwise', 'rows', 'reduction' as split"),
        (lambda: vertex(doubled, outputs=lambda x, y: [x]), "parameters for the inputs"),
        (lambda: vertex(doubled).gradient(lambda y: y), r"a gradient that takes some of \(x, out, d_out\).*y"),
        (lambda: vertex(doubled)(tf.ones(3), tf.ones(3)), r"inputs \(x\)"),
        (lambda: vertex(doubled)(tf.constant(["a"])), "numbers or booleans in 'x'. Received: dtype string"),
        (lambda: vertex(pair)(tf.ones([3, 2]), tf.ones([2, 3])), r"the shape \[3, 2\] of 'x' in 'y'"),
        (lambda: vertex(pair, split="rows")(tf.ones([3, 2]), tf.ones([2])), r"the rows \[3\] of 'x' in 'y'"),
        (lambda: vertex(doubled, split="rows")(tf.ones([])), "at least one dimension in 'x'"),
        (lambda: vertex(doubled, outputs=lambda x: [x, x])(tf.ones(3)), r"outputs \(out\), as it has parameters"),
        (lambda: tf.gradients_of(vertex(doubled)), "a gradient, because a variable before it is trained"),
    ],
)
def test_declarations_and_arrays_that_do_not_fit_are_refused(
    made: Callable[[], Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        tf, "gradients_of", lambda f: derivatives(lambda x, w: f(x), tf.ones(3), tf.ones(3)), raising=False
    )
    with pytest.raises(VertexError, match=message):
        made()
