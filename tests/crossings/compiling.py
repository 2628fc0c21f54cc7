"""Features of `compile`: losses, metrics, optimizers with their options and schedules, steps per execution."""

from __future__ import annotations

from tests.crossings.plan import MICRO, Draft, feature

SINGLE = {"outputs", "own step"}


@feature("loss")
def squared(d: Draft, _: str) -> None:
    """Mean squared error, or the loss that the model has set."""


@feature("loss", "mae", "huber", "Huber", "function", "class", "none reduced")
def other_loss(d: Draft, option: str) -> None:
    d.need(not d.tags & SINGLE)
    d.compile["loss"] = {
        "mae": "'mae'",
        "huber": "'huber'",
        "Huber": "K.losses.Huber(0.5)",
        "function": "lambda y, p: tf.reduce_mean(tf.abs(tf.cast(y, p.dtype) - p) ** 1.5, -1)",
        "class": "Cubed()",
        "none reduced": "K.losses.MeanSquaredError(reduction='sum')",
    }[option]
    if option == "class":
        d.add_class(
            """
            @K.utils.register_keras_serializable('crossings')
            class Cubed(K.losses.Loss):
                def call(self, y, p):
                    return tf.reduce_mean(tf.abs(tf.cast(y, p.dtype) - p) ** 3, -1)
            """
        )


@feature("loss", "sparse", "one hot", "logits", weight=3)
def classifier(d: Draft, option: str) -> None:
    d.need(not d.tags & SINGLE and "L.Dense(1, " in d.make)
    d.targets = ["rng.integers(0, 3, n)"]
    activation = "" if option == "logits" else "'softmax', "
    head = f"L.Dense(3, {activation}"
    d.make = d.make.replace("L.Dense(1, ", head)
    d.compile["loss"] = (
        "K.losses.SparseCategoricalCrossentropy(from_logits=True)"
        if option == "logits"
        else "'sparse_categorical_crossentropy'"
    )
    if option == "one hot":
        d.targets = ["np.eye(3)[rng.integers(0, 3, n)].astype(f)"]
        d.compile["loss"] = "'categorical_crossentropy'"
    d.tags.add("classes")


@feature("metrics", "name", "object", "function", "class", "weighted", "accuracy", weight=2)
def metrics(d: Draft, option: str) -> None:
    d.need("own step" not in d.tags and "metrics given" not in d.tags)
    d.tags.add("metrics given")
    if "outputs" in d.tags:
        one, other = "['mae']", "['mse']"
        d.compile["metrics"] = f"{{'a': {one}, 'c': {other}}}" if d.target_names else f"[{one}, {other}]"
        return
    d.need(option != "accuracy" or "classes" in d.tags)
    d.need(option != "class" or not {"replicas", "processes"} & d.device.keys())  # which sum metrics
    d.need(option == "accuracy" or "classes" not in d.tags or "'categorical_crossentropy'" in d.compile["loss"])
    if option == "weighted":
        d.compile["weighted_metrics"] = "['mae']"
        return
    made = {
        "name": "'mae'",
        "object": "K.metrics.RootMeanSquaredError()",
        "function": "bias",
        "class": "Largest()",
        "accuracy": "'accuracy'",
    }
    d.compile["metrics"] = f"[{made[option]}]"
    if option == "function":
        d.add_class(
            "@K.utils.register_keras_serializable('crossings')\ndef bias(y, p):\n    return tf.cast(y, p.dtype) - p"
        )
    if option == "class":
        d.add_class(
            """
            @K.utils.register_keras_serializable('crossings')
            class Largest(K.metrics.Metric):
                def __init__(self, name='largest', **named):
                    super().__init__(name=name, **named)
                    self.most = self.add_weight(name='most', initializer='zeros')
                def update_state(self, y, p, sample_weight=None):
                    self.most.assign(tf.maximum(self.most, tf.cast(tf.reduce_max(tf.abs(p)), self.most.dtype)))
                def result(self):
                    return tf.identity(self.most)
            """
        )


@feature("optimizer", "plain", "momentum", "nesterov", weight=2)
def sgd(d: Draft, option: str) -> None:
    d.optimizer = "K.optimizers.SGD"
    if option != "plain":
        d.slots |= {"momentum": "0.8"} | ({"nesterov": "True"} if option == "nesterov" else {})


def _counting(d: Draft, is_counting: bool = True) -> None:
    """Notes that numbers depend on the count of updates."""
    if is_counting:
        d.tags.add("counting")


@feature("optimizer", "plain", "amsgrad", weight=3)
def adam(d: Draft, option: str) -> None:
    _counting(d)
    d.optimizer = "K.optimizers.Adam"
    # A larger epsilon keeps rounding errors of gradients near zero from whole steps.
    d.slots |= {"epsilon": "1e-3"} | ({"amsgrad": "True"} if option == "amsgrad" else {})


OTHERS = {
    "RMSprop": "centered=True, momentum=0.5, epsilon=1e-3",
    "AdamW": "weight_decay=0.01, epsilon=1e-3",
    "Adagrad": "initial_accumulator_value=0.3",
    "Adadelta": "epsilon=1e-3",
    "Adamax": "epsilon=1e-3",
    "Nadam": "epsilon=1e-3",
    "Ftrl": "l1_regularization_strength=0.001",
    "Adafactor": "relative_step=False",
    "Lamb": "epsilon=1e-3",
    "Lion": "beta_1=0.8",
}


@feature("optimizer", *OTHERS, weight=3)
def other_optimizer(d: Draft, option: str) -> None:
    _counting(d, option not in ("RMSprop", "Adagrad", "Adadelta", "Ftrl"))
    d.need(d.is_keras3 or option not in ("Nadam", "Lamb"))
    # They divide a gradient by its own size, so one that is zero but for rounding errors makes whole steps.
    d.need(option not in ("Adafactor", "Lion") or "weights without effect" not in d.tags)
    d.optimizer = f"K.optimizers.{option}"
    d.slots |= dict(each.split("=") for each in OTHERS[option].split(", "))


@feature("optimizer", "SGD", "Adam", "RMSprop", keras=("tf_keras",))
def legacy(d: Draft, option: str) -> None:
    d.optimizer = f"K.optimizers.legacy.{option}"
    _counting(d, option == "Adam")
    if option != "SGD":
        d.slots["epsilon"] = "1e-3"
    d.tags.add("legacy")


@feature("optimizer", keras=("keras",))
def own_optimizer(d: Draft, _: str) -> None:
    d.add_class(
        """
        @K.utils.register_keras_serializable('crossings')
        class Signed(K.optimizers.SGD):
            def update_step(self, gradient, variable, learning_rate):
                rate = tf.cast(learning_rate, variable.dtype)
                self.assign_sub(variable, rate * tf.tanh(tf.cast(gradient, variable.dtype)))
        """
    )
    d.optimizer = "Signed"


@feature("slots", "clipnorm", "clipvalue", "global_clipnorm", weight=2)
def clipping(d: Draft, option: str) -> None:
    d.need("legacy" not in d.tags and not d.tags & {"clip"})
    d.tags.add("clip")
    d.slots[option] = "0.05"


@feature("slots", "every step", "overwritten", weight=2)
def averaged(d: Draft, option: str) -> None:
    """Exponential moving averages of weights."""
    _counting(d)
    d.need("legacy" not in d.tags and d.optimizer != "Signed")
    d.slots |= {"use_ema": "True", "ema_momentum": "0.7"}
    if option == "overwritten":
        d.slots["ema_overwrite_frequency"] = "3"
    d.tags.add("ema")


@feature("slots", "2", "3", keras=("keras",), weight=2)
def accumulated(d: Draft, option: str) -> None:
    _counting(d)
    d.slots["gradient_accumulation_steps"] = option
    d.tags.add("accumulation")


@feature("slots")
def weight_decay(d: Draft, _: str) -> None:
    d.need("legacy" not in d.tags)
    d.slots["weight_decay"] = "0.02"


@feature("slots", "32768", "2", keras=("keras",))
def loss_scale(d: Draft, option: str) -> None:
    d.need(not d.tags & {"ema", "accumulation"})
    d.wrapper = f"K.optimizers.LossScaleOptimizer({{}}, initial_scale={option}.0, dynamic_growth_steps=3)"
    d.tags.add("wrapped optimizer")


@feature("schedule", "ExponentialDecay", "PiecewiseConstantDecay", "CosineDecay", "own", "callable", weight=2)
def schedule(d: Draft, option: str) -> None:
    _counting(d, option != "callable")
    d.need("legacy" not in d.tags or option != "callable")
    d.rate = {
        "ExponentialDecay": "K.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5, staircase=True)",
        "PiecewiseConstantDecay": "K.optimizers.schedules.PiecewiseConstantDecay([2, 5], [0.1, 0.05, 0.01])",
        "CosineDecay": "K.optimizers.schedules.CosineDecay(0.1, 8)",
        "own": "Warm()",
        "callable": "(lambda: 0.03)",
    }[option]
    if option == "own":
        d.add_class(
            """
            @K.utils.register_keras_serializable('crossings')
            class Warm(K.optimizers.schedules.LearningRateSchedule):
                def __call__(self, step):
                    return 0.02 * tf.minimum(tf.cast(step, f) + 1, 4.0)
                def get_config(self):
                    return {}
            """
        )
    d.tags.add("schedule")


@feature("compile", "3", "2", "5", "100", weight=3)
def steps_per_execution(d: Draft, option: str) -> None:
    # In tf_keras, an execution in which the data end has no logs.
    d.need(d.is_keras3 or "unknown length" not in d.tags)
    d.need("steps_per_execution" not in d.compile)
    d.compile["steps_per_execution"] = f"note.steps({option})" if MICRO in d.tags else option
    d.tags.add("steps per execution")


@feature("compile")
def no_jit(d: Draft, _: str) -> None:
    d.need("jit_compile" not in d.compile)
    d.compile["jit_compile"] = "False"


@feature("compile", weight=0.5)
def run_eagerly(d: Draft, _: str) -> None:
    d.need("random" not in d.tags and MICRO not in d.tags)
    d.compile["run_eagerly"] = "True"
