"""Features that are models with steps of their own."""

from __future__ import annotations

import textwrap

from tests.crossings.plan import MICRO, Draft, feature

CLASS = """
@K.utils.register_keras_serializable('crossings')
class Own(K.Model):
    def __init__(self, **named):
        super().__init__(**named)
        self.hidden = L.Dense(5, 'tanh', kernel_initializer=N(1))
        self.head = L.Dense(1, kernel_initializer=N(2))
        self.tracker = K.metrics.Mean(name='mine')
    @property
    def metrics(self):
        return [self.tracker]
    def call(self, inputs, training=False):
        return tf.cast(self.head(self.hidden(inputs)), f)
"""
STEPS = {
    "tape": """
    def train_step(self, data):
        x, y = data[0], data[1]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.abs(tf.cast(y, f) - self(x, training=True)))
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        self.tracker.update_state(loss)
        return {'mine': self.tracker.result()}
    """,
    "twice": """
    def train_step(self, data):
        for scale in (1.0, 0.5):
            with tf.GradientTape() as tape:
                loss = scale * tf.reduce_mean((tf.cast(data[1], f) - self(data[0], training=True)) ** 2)
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
        self.tracker.update_state(loss)
        return {'mine': self.tracker.result(), 'last': loss}
    """,
    "logs": """
    def train_step(self, data):
        x, y = data[0], data[1]
        with tf.GradientTape() as tape:
            y_hat = self(x, training=True)
            loss = tf.reduce_mean((tf.cast(y, f) - y_hat) ** 2)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
        self.tracker.update_state(loss)
        return {'mine': self.tracker.result(), 'largest': tf.reduce_max(y_hat), 'rows': tf.shape(y_hat)[0]}
    def predict_step(self, data):
        return 2 * self(data[0] if isinstance(data, tuple) else data, training=False)
    """,
    "branch": """
    def train_step(self, data):
        x, y = data[0], data[1]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.cast(y, f) - self(x, training=True)) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        scale = tf.where(self.optimizer.iterations % 2 == 0, tf.constant(1.0, f), tf.constant(0.1, f))
        self.optimizer.apply_gradients(zip([g * scale for g in gradients], self.trainable_variables))
        self.tracker.update_state(loss)
        return {'mine': self.tracker.result()}
    """,
}
TEST = """
    def test_step(self, data):
        self.tracker.update_state(tf.reduce_mean(tf.abs(tf.cast(data[1], f) - self(data[0], training=False))))
        return {'mine': self.tracker.result()}
"""


@feature("model", *STEPS, weight=2)
def own_step(d: Draft, option: str) -> None:
    d.need(option not in ("twice", "logs") or MICRO not in d.tags)
    d.need("stages" not in d.device)
    steps = [textwrap.indent(textwrap.dedent(each).strip(), "    ") for each in (STEPS[option], TEST)]
    d.add_class("\n".join((textwrap.dedent(CLASS).strip(), *steps)))
    d.make = "return Own()"
    d.tags |= {"unbuilt", "own step"}
    if option == "branch":
        d.tags.add("counting")


@feature("model")
def wrapped_step(d: Draft, _: str) -> None:
    """A train_step that calls Keras' own and adds to its logs."""
    d.add_class(
        """
        @K.utils.register_keras_serializable('crossings')
        class Wrapped(K.Model):
            def train_step(self, data):
                logs = dict(super().train_step(data))
                logs['double'] = 2 * logs['loss']
                return logs
        """
    )
    d.make = (
        "i = K.Input((4,))\n"
        "return Wrapped(i, L.Dense(1, kernel_initializer=N(2))(L.Dense(5, 'tanh', kernel_initializer=N(1))(i)))"
    )
    d.tags.add("wrapped")
