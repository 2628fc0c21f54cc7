"""Features of a model: its class, its layers, its inputs and outputs, its policy, its frozen layers."""

from __future__ import annotations

from tests.crossings.plan import Draft, feature

K1, K2, K3, K4, K5 = (f"kernel_initializer=N({seed})" for seed in range(1, 6))


@feature("model", weight=2)
def sequential(d: Draft, _: str) -> None:
    d.make = f"return K.Sequential([L.Input((4,)), L.Dense(5, 'tanh', {K1}), L.Dense(1, {K2})])"


@feature("model")
def unbuilt(d: Draft, _: str) -> None:
    d.make = f"return K.Sequential([L.Dense(5, 'tanh', {K1}), L.Dense(1, {K2})])"
    d.tags.add("unbuilt")


@feature("model", "skip", "shared", "nested", weight=2)
def functional(d: Draft, option: str) -> None:
    hidden = {
        "skip": f"h = L.Concatenate()([L.Dense(5, 'relu', {K1})(i), i])",
        "shared": f"dense = L.Dense(4, 'tanh', {K1})\nh = dense(dense(i))",
        "nested": f"inner = K.Sequential([L.Input((4,)), L.Dense(4, 'tanh', {K1})])\nh = inner(i) + i",
    }[option]
    d.need(option != "shared" or "stages" not in d.device)  # stages that share weights share an IPU
    if option == "nested":
        hidden = hidden.replace("inner(i) + i", "L.Add()([inner(i), i])")
    d.make = f"i = K.Input((4,))\n{hidden}\nreturn K.Model(i, L.Dense(1, {K2})(h))"


@feature("model", "batch", "layer", "group")
def normalized(d: Draft, option: str) -> None:
    d.tags.add("weights without effect")
    d.need(option != "group" or d.is_keras3)
    layer = {
        "batch": "BatchNormalization(momentum=0.5)",
        "layer": "LayerNormalization()",
        "group": "GroupNormalization(2)",
    }
    units = 8 if option == "group" else 4  # of two numbers, normalizing would leave the sign alone
    hidden = f"L.Dense({units}, {K1}), L.{layer[option]}, L.Activation('tanh')"
    d.make = f"return K.Sequential([L.Input((4,)), {hidden}, L.Dense(1, {K2})])"


@feature("model", "list", "dict", weight=2)
def two_outputs(d: Draft, option: str) -> None:
    d.targets = ["rng.normal(size=(n, 1)).astype(f)", "rng.normal(size=(n, 2)).astype(f)"]
    outputs = "[a, c]"
    d.compile |= {"loss": "['mse', 'mae']", "loss_weights": "[1.0, 0.3]"}
    if option == "dict":
        d.target_names = ["a", "c"]
        outputs = "{'a': a, 'c': c}"
        d.compile |= {"loss": "{'a': 'mse', 'c': 'mae'}", "loss_weights": "{'a': 1.0, 'c': 0.3}"}
    d.make = (
        f"i = K.Input((4,))\nh = L.Dense(5, 'tanh', {K1})(i)\n"
        f"a = L.Dense(1, name='a', {K2})(h)\nc = L.Dense(2, name='c', {K3})(h)\n"
        f"return K.Model(i, {outputs})"
    )
    d.tags.add("outputs")


@feature("model", "list", "dict")
def two_inputs(d: Draft, option: str) -> None:
    d.inputs = ["rng.normal(size=(n, 4)).astype(f)", "rng.normal(size=(n, 3)).astype(f)"]
    d.input_names = ["p", "q"] if option == "dict" else []
    inputs = "{'p': p, 'q': q}" if option == "dict" else "[p, q]"
    d.make = (
        "p, q = K.Input((4,), name='p'), K.Input((3,), name='q')\n"
        f"h = L.Concatenate()([L.Dense(3, 'tanh', {K1})(p), L.Dense(3, 'relu', {K2})(q)])\n"
        f"return K.Model({inputs}, L.Dense(1, {K3})(h))"
    )
    d.tags.add("inputs")


SUBCLASSED = """
@K.utils.register_keras_serializable('crossings')
class Subclassed(K.Model):
    def __init__(self, **named):
        super().__init__(**named)
        self.hidden = L.Dense(5, 'tanh', kernel_initializer=N(1))
        self.head = L.Dense(1, kernel_initializer=N(2))
    def call(self, inputs, training=False):
        h = self.hidden(inputs)
        return self.head(h * 0.5 if training else h)
"""


@feature("model", weight=2)
def subclassed(d: Draft, _: str) -> None:
    d.add_class(SUBCLASSED)
    d.make = "return Subclassed()"
    d.tags.add("unbuilt")


COUNTING = """
@K.utils.register_keras_serializable('crossings')
class Counting(L.Layer):
    def build(self, shape):
        self.calls = self.add_weight(shape=(), initializer='zeros', dtype='int32', trainable=False, name='calls')
        self.mean = self.add_weight(shape=(), initializer='zeros', trainable=False, name='mean')
    def call(self, inputs, training=False):
        if training:
            self.calls.assign(self.calls + 1)
            self.mean.assign(0.5 * self.mean + 0.5 * tf.reduce_mean(tf.cast(inputs, self.mean.dtype)))
        return inputs * (1 + tf.cast(self.mean, inputs.dtype))
"""


@feature("model")
def layer_with_state(d: Draft, _: str) -> None:
    d.add_class(COUNTING)
    d.tags.add("counting")
    d.make = f"return K.Sequential([L.Input((4,)), L.Dense(5, 'tanh', {K1}), Counting(), L.Dense(1, {K2})])"


@feature("model", "regularizer", "activity", "add_loss")
def losses_of_layers(d: Draft, option: str) -> None:
    hidden = {
        "regularizer": f"L.Dense(5, 'tanh', kernel_regularizer='l2', {K1})",
        "activity": f"L.Dense(5, 'tanh', activity_regularizer='l1', {K1})",
        "add_loss": "Penalty()",
    }[option]
    if option == "add_loss":
        d.add_class(
            """
            @K.utils.register_keras_serializable('crossings')
            class Penalty(L.Layer):
                def call(self, inputs):
                    self.add_loss(0.1 * tf.reduce_mean(inputs ** 2))
                    return inputs
            """
        )
        hidden = f"L.Dense(5, 'tanh', {K1}), {hidden}"
    d.make = f"return K.Sequential([L.Input((4,)), {hidden}, L.Dense(1, {K2})])"


@feature("model")
def convolutional(d: Draft, _: str) -> None:
    d.inputs = ["rng.normal(size=(n, 6, 6, 2)).astype(f)"]
    d.make = (
        f"return K.Sequential([L.Input((6, 6, 2)), L.Conv2D(3, 3, activation='relu', {K1}), "
        f"L.MaxPooling2D(), L.Flatten(), L.Dense(1, {K2})])"
    )
    d.kind = "image"


CELL = "kernel_initializer=N(1), recurrent_initializer=N(2)"


@feature("model", "LSTM", "GRU", "SimpleRNN", "masked", "bidirectional", weight=2)
def recurrent(d: Draft, option: str) -> None:
    d.inputs = ["rng.normal(size=(n, 5, 3)).astype(f)"]
    layer = option if option in ("LSTM", "GRU", "SimpleRNN") else "GRU"
    made = f"L.{layer}(4, {CELL})"
    if option == "masked":
        d.inputs = [
            "rng.normal(size=(n, 5, 3)).astype(f) * (np.arange(5) < rng.integers(1, 6, (n, 1)))[..., None].astype(f)"
        ]
        made = f"L.Masking(), {made}"
    if option == "bidirectional":
        made = f"L.Bidirectional({made})"
    d.make = f"return K.Sequential([L.Input((5, 3)), {made}, L.Dense(1, {K3})])"
    d.kind = "sequence"


@feature("model", "LSTM", "GRU")
def stateful(d: Draft, option: str) -> None:
    """Recurrent state that goes on from batch to batch."""
    d.inputs = ["rng.normal(size=(n, 3, 2)).astype(f)"]
    shape = "L.Input(batch_shape=(m, 3, 2))" if d.is_keras3 else "L.Input((3, 2), batch_size=m)"
    d.make = f"return K.Sequential([{shape}, L.{option}(3, stateful=True, {CELL}), L.Dense(1, {K3})])"
    d.kind = "stateful"
    d.need(int(d.device.get("replicas", 1)) == 1 and "processes" not in d.device)
    d.tags.add("whole batches")


@feature("model")
def return_state(d: Draft, _: str) -> None:
    d.inputs = ["rng.normal(size=(n, 5, 3)).astype(f)"]
    d.make = (
        f"i = K.Input((5, 3))\ns, h, c = L.LSTM(4, return_sequences=True, return_state=True, {CELL})(i)\n"
        f"t = L.LSTM(4, kernel_initializer=N(3), recurrent_initializer=N(4))(s, initial_state=[h, c])\n"
        f"return K.Model(i, L.Dense(1, {K5})(t))"
    )
    d.kind = "sequence"


@feature("model", "distinct", "repeated", "masked")
def embedding(d: Draft, option: str) -> None:
    """Word numbers; a word occurs once in a batch unless the option says otherwise."""
    words = "np.concatenate([rng.permutation(40)[:4 * m].reshape(m, 4) for _ in range(-(-n // m))])[:n]"
    if option != "distinct":
        words = "rng.integers(0, 6, (n, 4))"
        d.tags.add("repeated rows")
    d.inputs = [f"{words}.astype('int32')"]
    masked = ", mask_zero=True" if option == "masked" else ""
    end = f"L.GRU(3, {CELL})" if masked else "L.Flatten()"
    d.make = (
        f"return K.Sequential([L.Input((4,), dtype='int32'), L.Embedding(40, 3, embeddings_initializer=N(4){masked}), "
        f"{end}, L.Dense(1, {K3})])"
    )
    d.kind = "tokens"
    d.tags.add("counting")


@feature("model")
def attention(d: Draft, _: str) -> None:
    d.tags.add("weights without effect")
    d.inputs = ["rng.normal(size=(n, 5, 4)).astype(f)"]
    d.make = (
        f"i = K.Input((5, 4))\nh = L.MultiHeadAttention(2, 3, {K1})(i, i, use_causal_mask=True)\n"
        f"h = L.LayerNormalization()(L.Add()([h, i]))\n"
        f"return K.Model(i, L.Dense(1, {K2})(L.GlobalAveragePooling1D()(h)))"
    )
    d.kind = "sequence"


@feature("model", "Dropout", "GaussianNoise", "SpatialDropout1D")
def random_layers(d: Draft, option: str) -> None:
    d.need("replicas" not in d.device and "processes" not in d.device)
    layer = (
        "L.Reshape((5, 1)), L.SpatialDropout1D(0.4, seed=3), L.Flatten()"
        if option.startswith("Spatial")
        else f"L.{option}(0.4, seed=3)"
    )
    d.make = f"return K.Sequential([L.Input((4,)), L.Dense(5, 'tanh', {K1}), {layer}, L.Dense(1, {K2})])"
    if not d.is_keras3:
        d.tags.add("random")


@feature("policy", "mixed_float16", "mixed_bfloat16")
def mixed_precision(d: Draft, option: str) -> None:
    d.need(d.kind in ("dense", "image") and not d.tags & {"random"})
    body = d.make.replace("\n", "\n    ")
    d.make = f"set_policy(K, f if f == 'float64' else '{option}')\ntry:\n    {body}\nfinally:\n    set_policy(K, f)"
    d.tags.add("16 bits")
    if option == "mixed_float16":  # Keras then scales losses, so that the run in float64 needs the same slots
        d.wrapper = "{0} if f != 'float64' else K.mixed_precision.LossScaleOptimizer({0})"


@feature("frozen", "first", "last", "all")
def frozen(d: Draft, option: str) -> None:
    """Layers that do not train, set before compile."""
    d.need("unbuilt" not in d.tags)
    frozen = {"first": "[layer for layer in model.layers if layer.weights][0].trainable = False",
              "last": "model.layers[-1].trainable = False", "all": "model.trainable = False"}  # fmt: skip
    d.made.append(frozen[option])
