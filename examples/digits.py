"""Train two small models on real data, on the software IPU and with plain Keras, and compare them.

    python examples/digits.py

The data are the 1797 handwritten digits of 8 x 8 pixels that come with scikit-learn: nothing is downloaded.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits
from tensorflow.python import ipu

from keras_ext.chip import chip_summary

BATCH_SIZE = 32
STEPS_PER_EXECUTION = 50  # steps in one call of the engine
REPEATS = 10  # the digits are few, so an epoch of 450 steps has each of them ten times

Data = tuple[np.ndarray, np.ndarray]


def mlp() -> keras.Model:
    return keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Flatten(),
            layers.Dense(128, "relu"),
            layers.Dense(64, "relu"),
            layers.Dense(10),
        ]
    )


def cnn() -> keras.Model:
    return keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )


MODELS = {"MLP": mlp, "CNN": cnn}


def compiled(model: keras.Model, jit_compile: bool | str = "auto") -> keras.Model:
    model.compile(
        optimizer=keras.optimizers.RMSprop(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=STEPS_PER_EXECUTION,
        jit_compile=jit_compile,
    )
    return model


def train_and_test_data() -> tuple[Data, Data]:
    """Pixels, float32 [n, 8, 8, 1] from 0 to 1, and labels, int32 [n]: 1440 digits for training, 357 held out."""
    digits = load_digits()
    pixels = (digits.images[..., None] / 16).astype(np.float32)
    labels = digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(pixels))
    train, test = order[:1440], order[1440:]
    return (pixels[train], labels[train]), (pixels[test], labels[test])


@dataclass
class Contestant:
    """A model and its measurements: seconds of the first execution and of each later epoch, accuracy."""

    name: str
    model: keras.Model
    first: float = 0.0
    epochs: list[float] = field(default_factory=list)
    accuracy: float = 0.0

    def fit(self, data: Data, epochs: int = 1, verbose: int = 0) -> float:
        """Train; return the seconds that it took."""
        start = time.perf_counter()
        self.model.fit(*data, batch_size=BATCH_SIZE, epochs=epochs, verbose=verbose)
        return time.perf_counter() - start

    def samples_per_second(self, samples: int) -> float:
        return samples / statistics.median(self.epochs)


def compare(name: str, build: Callable[[], keras.Model], epochs: int, rounds: int) -> str:
    """Train the model on the software IPU and, from the same weights, with plain Keras; return a row of the table."""
    train, test = train_and_test_data()
    epoch = (np.tile(train[0], (REPEATS, 1, 1, 1)), np.tile(train[1], REPEATS))
    first = STEPS_PER_EXECUTION * BATCH_SIZE
    with ipu.ipu_strategy.IPUStrategy().scope():
        ours = Contestant("software IPU", compiled(build()))
    # XLA makes plain Keras faster for some models only: the faster way counts.
    plain = [Contestant(f"plain Keras, jit_compile={jit}", compiled(build(), jit)) for jit in (True, False)]
    for each in plain:
        each.model.set_weights(ours.model.get_weights())

    for each in (ours, *plain):
        print(f"\n{name} on {each.name}", flush=True)
        # The first execution traces and compiles. Its time is not in the rates.
        each.first = each.fit((epoch[0][:first], epoch[1][:first]))
        each.fit(epoch, epochs, verbose=1 if each is ours else 2)
        each.accuracy = each.model.evaluate(*test, batch_size=len(test[0]), verbose=0)[1]
        print(f"first execution {each.first:.1f} s, accuracy on held-out digits {each.accuracy:.1%}")

    print(f"\n{name}: this training step on a real chip, estimated\n")
    print(chip_summary(ours.model), flush=True)

    print(f"\n{name}: {rounds} more epochs of each, alternately, for the rates", flush=True)
    for _ in range(rounds):
        for each in (ours, *plain):
            each.epochs.append(each.fit(epoch))

    samples = len(epoch[0])
    best = max(plain, key=lambda each: each.samples_per_second(samples))
    rates = [each.samples_per_second(samples) for each in (ours, best)]
    return (
        f"{name:6}{ours.accuracy:>9.1%}{best.accuracy:>8.1%}{rates[0]:>13,.0f}{rates[1]:>10,.0f}"
        f"{rates[0] / rates[1]:>7.1f}x{ours.first:>10.1f}{best.first:>8.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains two models on the software IPU and with plain Keras.")
    parser.add_argument("--epochs", type=int, default=3, help="epochs of 450 steps to train each model for")
    parser.add_argument("--rounds", type=int, default=5, help="epochs of each model to measure afterwards")
    arguments = parser.parse_args()

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    keras.utils.set_random_seed(1)
    rows = [compare(name, build, arguments.epochs, arguments.rounds) for name, build in MODELS.items()]

    print(f"\nBatch {BATCH_SIZE}, {STEPS_PER_EXECUTION} steps per execution.")
    print(f"Rates are medians of {arguments.rounds} epochs, without the first execution, which compiles.")
    print("Plain is the faster of jit_compile=True and False.\n")
    print("        test accuracy      samples per second          first execution, s")
    print("model     ours   plain         ours     plain   ratio      ours   plain")
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()
