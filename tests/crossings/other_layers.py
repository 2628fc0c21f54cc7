"""Features of a model that are single layers, and layers of a program's own in containers or with attributes."""

from __future__ import annotations

from tests.crossings.models import K1, K2, K3
from tests.crossings.plan import Draft, feature

CONSTRAINTS = {
    "max_norm": "K.constraints.MaxNorm(0.8)",
    "non_neg": "'non_neg'",
    "unit_norm": "K.constraints.UnitNorm()",
    "min_max_norm": "K.constraints.MinMaxNorm(0.3, 0.9, rate=0.5)",
}
IMAGES = {
    "transposed": f"L.Conv2DTranspose(2, 3, strides=2, padding='same', {K1})",
    "separable": "L.SeparableConv2D(3, 3, depthwise_initializer=N(1), pointwise_initializer=N(3))",
    "depthwise": "L.DepthwiseConv2D(3, depth_multiplier=2, depthwise_initializer=N(1))",
    "dilated": f"L.Conv2D(3, 2, dilation_rate=2, {K1})",
    "grouped": f"L.Conv2D(4, 3, groups=2, {K1})",
    "three_dimensional": f"L.Reshape((6, 6, 2, 1)), L.Conv3D(2, 2, {K1}), L.MaxPooling3D((2, 2, 1))",
    "resized": f"L.UpSampling2D(2, interpolation='bilinear'), L.Cropping2D(1), L.Conv2D(2, 3, strides=2, {K1})",
}
SEQUENCES = {
    "time_distributed": f"L.Masking(), L.TimeDistributed(L.Dense(2, 'tanh', {K1}))",
    "einsum": f"L.EinsumDense('abc,cd->abd', output_shape=(5, 2), {K1})",
    "causal": f"L.Conv1D(2, 3, padding='causal', {K1})",
    "pooled": "L.AveragePooling1D(2), L.Permute((2, 1))",
    "summed": f"L.Bidirectional(L.GRU(2, return_sequences=True, {K1}, recurrent_initializer=N(3)), merge_mode='sum')",
    "backwards": f"L.Masking(), L.LSTM(3, go_backwards=True, {K1}, recurrent_initializer=N(3))",
}


@feature("model", *CONSTRAINTS)
def constrained(d: Draft, option: str) -> None:
    """Weights that an optimizer's step projects."""
    hidden = f"L.Dense(5, 'tanh', kernel_constraint={CONSTRAINTS[option]}, {K1})"
    d.make = f"return K.Sequential([L.Input((4,)), {hidden}, L.Dense(1, {K2})])"


@feature("model", *IMAGES)
def images(d: Draft, option: str) -> None:
    d.inputs = ["rng.normal(size=(n, 6, 6, 2)).astype(f)"]
    d.make = f"return K.Sequential([L.Input((6, 6, 2)), {IMAGES[option]}, L.Flatten(), L.Dense(1, {K2})])"
    d.kind = "image"


@feature("model", *SEQUENCES)
def sequences(d: Draft, option: str) -> None:
    d.inputs = ["rng.normal(size=(n, 5, 3)).astype(f)"]
    d.make = f"return K.Sequential([L.Input((5, 3)), {SEQUENCES[option]}, L.Flatten(), L.Dense(1, {K2})])"
    d.kind = "sequence"


CONTROLLED = {
    "cond": "tf.cond(tf.reduce_mean(h) > 0, lambda: tf.tanh(h @ w), lambda: tf.sin(h @ w))",
    "while": "tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, tf.tanh(v @ w)), (0, h), maximum_iterations=4)[1]",
    "nested": "tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, tf.cond(tf.reduce_mean(v) > 0, "
    "lambda: tf.tanh(v @ w), lambda: v * 0.5)), (0, h), maximum_iterations=3)[1]",
    "function": "tf.function(lambda v: tf.tanh(v @ w), autograph=False)(tf.function(lambda: h * h)())",
}
BRANCHING = """
@K.utils.register_keras_serializable('crossings')
class Branching(L.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(5, 5), initializer=N(4), name='w')
        self.count = self.add_weight(shape=(), initializer='zeros', dtype='int32', trainable=False, name='count')
    def call(self, h, training=False):
        w = tf.cast(tf.convert_to_tensor(self.w), h.dtype)
        if training:
            self.count.assign(self.count + tf.cond(tf.reduce_sum(h) > 0, lambda: 2, lambda: 1))
        return CALLED
    def compute_output_shape(self, shape):
        return shape
"""


@feature("model", *CONTROLLED)
def controlled(d: Draft, option: str) -> None:
    """A layer with branches, loops or functions, and a counter."""
    d.add_class(BRANCHING.replace("CALLED", CONTROLLED[option]))
    d.make = f"return K.Sequential([L.Input((4,)), L.Dense(5, 'tanh', {K1}), Branching(), L.Dense(1, {K2})])"


CONTAINERS = {
    "tuple": "tuple(made)",
    "list": "made",
    "dictionary": "{'first': made[0], 'rest': {'last': made[1]}}",
    "nested": "[(made[0],), [made[1]]]",
}
HOLDING = """
@K.utils.register_keras_serializable('crossings')
class Holding(K.Model):
    def __init__(self, **named):
        super().__init__(**named)
        made = [L.Dense(5, 'tanh', kernel_initializer=N(1)), L.Dense(1, kernel_initializer=N(2))]
        self.held = CONTAINER
    def call(self, inputs, training=False):
        for layer in tf.nest.flatten(dict(self.held) if hasattr(self.held, 'keys') else list(self.held)):
            inputs = layer(inputs)
        return inputs
"""


@feature("model", *CONTAINERS)
def holding(d: Draft, option: str) -> None:
    """A model that holds its layers in a container."""
    d.add_class(HOLDING.replace("CONTAINER", CONTAINERS[option]))
    d.make = "return Holding()"
    d.tags.add("unbuilt")


ATTRIBUTES = {
    "private": "_scale = 2.0",
    "array": "table[0] = 3.0",
    "list": "_listed[0] = 3.0",
    "object": "_box.factor = 3.0",
    "function": "_function = lambda value: -value",
}
SCALED = """
class Box:
    factor = 1.0
@K.utils.register_keras_serializable('crossings')
class Scaled(L.Layer):
    def __init__(self, **named):
        super().__init__(**named)
        self._scale, self.table, self._listed, self._box = 1.0, np.ones(5, f), [1.0], Box()
        self._function = tf.identity
    def call(self, inputs):
        scale = self._scale * self._listed[0] * self._box.factor * tf.cast(self.table, inputs.dtype)
        return self._function(inputs) * scale
"""


@feature("model", *ATTRIBUTES)
def own_attributes(d: Draft, option: str) -> None:
    """A layer of the program's with state that is in no configuration, changed before the first call."""
    d.add_class(SCALED)
    d.make = f"return K.Sequential([L.Input((4,)), L.Dense(5, 'tanh', {K1}), Scaled(), L.Dense(1, {K3})])"
    d.before.append(f"model.layers[1].{ATTRIBUTES[option]}")
