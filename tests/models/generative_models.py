"""Models with a train_step of their own: a variational autoencoder, and a GAN with two optimizers."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import layers, ops

LATENT = 3


class Sampling(layers.Layer):
    """Draws from a normal distribution, and adds its divergence from the standard one to the model's loss."""

    def __init__(self) -> None:
        super().__init__()
        self.seed = keras.random.SeedGenerator(17)

    def call(self, inputs: Any) -> Any:
        mean, log_variance = inputs
        divergence = ops.sum(ops.exp(log_variance) + mean * mean - log_variance - 1, axis=1) / 2
        self.add_loss(ops.mean(divergence) * 0.01)
        return mean + ops.exp(log_variance / 2) * keras.random.normal(ops.shape(mean), seed=self.seed)


class Autoencoder(keras.Model):
    """A model that learns to reproduce its input."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = keras.Sequential([layers.Conv2D(4, 3, strides=2, activation="relu"), layers.Flatten()])
        self.mean, self.log_variance = layers.Dense(LATENT), layers.Dense(LATENT)
        self.sampling = Sampling()
        self.decoder = keras.Sequential(
            [
                layers.Dense(4 * 4 * 4, activation="relu"),
                layers.Reshape((4, 4, 4)),
                layers.Conv2DTranspose(1, 3, strides=2, padding="same", activation="sigmoid"),
            ]
        )

    def call(self, images: Any) -> Any:
        hidden = self.encoder(images)
        return self.decoder(self.sampling((self.mean(hidden), self.log_variance(hidden))))

    def train_step(self, images: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            reconstruction = ops.mean(ops.square(images - self(images, training=True)))
            loss = reconstruction + sum(self.losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss, "reconstruction": reconstruction}


def variational_autoencoder() -> keras.Model:
    """A variational autoencoder, compiled and built."""
    model = Autoencoder()
    model(tf.zeros((1, 8, 8, 1)))
    model.compile(keras.optimizers.Adam(1e-3), steps_per_execution=5, jit_compile=False)
    return model


class Adversaries(keras.Model):
    """A generator and a discriminator; each step trains one, then the other."""

    def __init__(self) -> None:
        super().__init__()
        self.seed = keras.random.SeedGenerator(23)
        self.discriminator = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                layers.Conv2D(4, 3, strides=2, padding="same"),
                layers.LeakyReLU(0.2),
                layers.Flatten(),
                layers.Dropout(0.2, seed=5),
                layers.Dense(1),
            ]
        )
        self.generator = keras.Sequential(
            [
                keras.Input((LATENT,)),
                layers.Dense(4 * 4 * 4),
                layers.LeakyReLU(0.2),
                layers.Reshape((4, 4, 4)),
                layers.Conv2DTranspose(1, 4, strides=2, padding="same", activation="sigmoid"),
            ]
        )
        self.built = True

    def compile(self, discriminator: Any, generator: Any, **arguments: Any) -> None:
        super().compile(optimizer=discriminator, **arguments)
        self.generator_optimizer = generator
        self.objective = keras.losses.BinaryCrossentropy(from_logits=True)
        self.discriminator_loss, self.generator_loss = keras.metrics.Mean("d_loss"), keras.metrics.Mean("g_loss")

    def train_step(self, images: Any) -> dict[str, Any]:
        count = ops.shape(images)[0]
        drawn = self.generator(keras.random.normal((count, LATENT), seed=self.seed))
        labels = ops.concatenate([ops.ones((count, 1)), ops.zeros((count, 1))], axis=0)
        with tf.GradientTape() as tape:
            checked = self.discriminator(ops.concatenate([images, drawn], axis=0), training=True)
            loss = self.objective(labels, checked)
        self._descend(tape, loss, self.discriminator, self.optimizer)
        self.discriminator_loss.update_state(loss)
        noise = keras.random.normal((count, LATENT), seed=self.seed)
        with tf.GradientTape() as tape:
            loss = self.objective(ops.ones((count, 1)), self.discriminator(self.generator(noise), training=True))
        self._descend(tape, loss, self.generator, self.generator_optimizer)
        self.generator_loss.update_state(loss)
        return {"d_loss": self.discriminator_loss.result(), "g_loss": self.generator_loss.result()}

    @staticmethod
    def _descend(tape: tf.GradientTape, loss: Any, model: keras.Model, optimizer: Any) -> None:
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)


def gan() -> keras.Model:
    """A GAN, compiled, with both optimizers built."""
    model = Adversaries()
    one, other = keras.optimizers.Adam(2e-3, beta_1=0.5), keras.optimizers.Adam(1e-3, beta_1=0.5)
    model.compile(one, other, steps_per_execution=5, jit_compile=False)
    one.build(model.discriminator.trainable_variables)
    other.build(model.generator.trainable_variables)
    return model
