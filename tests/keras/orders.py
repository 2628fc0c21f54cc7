"""Programs that build, compile, fit, load and clone models in any order in and around the scopes of this project.

`python -m tests.keras.orders --count 300` runs 300 programs of either Keras, and compares each with plain Keras.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import ipu
from ipu.ipu_strategy import IPUStrategy
from keras_ext.acceleration import _in_force
from tests.keras.helpers import KITS, data

PLACES: dict[str, Callable[[], Any]] = {
    "outside": contextlib.nullcontext,
    "accelerate": ipu.accelerate,
    "strategy": lambda: IPUStrategy().scope(),
}
X, Y = data(24, seed=5)
BATCH = 8


@dataclass
class Program:
    """The objects of one program, and the numbers that it has produced."""

    keras: Any
    folder: Path
    parts: dict[str, Any] = field(default_factory=dict)
    numbers: list[Any] = field(default_factory=list)

    @property
    def model(self) -> Any:
        return self.parts["model"]

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """An object that may have been made earlier in another place; each is used once."""
        return self.parts.pop(name, None) or make()


def make_optimizer(program: Program) -> None:
    program.parts["optimizer"] = optimizer(program.keras)


def optimizer(keras: Any) -> Any:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.05, 4, 0.5)
    return keras.optimizers.Adam(schedule)


def make_built_optimizer(program: Program) -> None:
    """Makes an optimizer and its variables here, for the model's variables if there is a model."""
    made = program.parts["optimizer"] = optimizer(program.keras)
    if "model" in program.parts and program.model.built:
        made.build(program.model.trainable_variables)


def make_scaled_optimizer(program: Program) -> None:
    inner = program.keras.optimizers.SGD(0.05, momentum=0.9)
    program.parts["optimizer"] = (
        program.keras.mixed_precision.LossScaleOptimizer(inner)
        if hasattr(program.keras, "mixed_precision") and hasattr(program.keras.mixed_precision, "LossScaleOptimizer")
        else program.keras.optimizers.LossScaleOptimizer(inner)
    )


def make_metric(program: Program) -> None:
    program.parts["metric"] = program.keras.metrics.SparseCategoricalAccuracy(name="hits")


def make_layer(program: Program) -> None:
    program.parts["layer"] = layer = program.keras.layers.Dense(6, "tanh", kernel_initializer=initial(program, 1))
    layer.build((None, 5))


def initial(program: Program, seed: int) -> Any:
    return program.keras.initializers.GlorotUniform(seed=seed)


def layers(program: Program) -> list[Any]:
    dense = program.keras.layers.Dense
    first = program.kept("layer", lambda: dense(6, "tanh", kernel_initializer=initial(program, 1)))
    return [first, dense(3, "softmax", kernel_initializer=initial(program, 2))]


def build(program: Program) -> None:
    keras = program.keras
    program.parts["model"] = keras.Sequential([keras.layers.Input((5,)), *layers(program)])


def build_normalized(program: Program) -> None:
    keras = program.keras
    inputs = keras.Input((5,))
    first, last = layers(program)
    program.parts["model"] = keras.Model(inputs, last(keras.layers.BatchNormalization()(first(inputs))))


def build_late(program: Program) -> None:
    """Makes a model that has no variables before its first use."""
    program.parts["model"] = program.keras.Sequential(layers(program))


def compile_(program: Program) -> None:
    metric = program.kept("metric", lambda: program.keras.metrics.SparseCategoricalAccuracy(name="hits"))
    made = program.kept("optimizer", lambda: optimizer(program.keras))
    program.model.compile(made, "sparse_categorical_crossentropy", metrics=[metric])


def compile_by_names(program: Program) -> None:
    program.model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])


def fit(program: Program) -> None:
    history = program.model.fit(X, Y, batch_size=BATCH, shuffle=False, verbose=0, validation_data=(X[:9], Y[:9]))
    program.numbers.append([history.history[name] for name in sorted(history.history)])
    program.numbers.append(int(np.asarray(program.model.optimizer.iterations)))


def fit_generator(program: Program) -> None:
    def batches() -> Iterator[Any]:
        while True:
            for first in range(0, 24, BATCH):
                yield X[first : first + BATCH], Y[first : first + BATCH]

    program.numbers.append(program.model.fit(batches(), steps_per_epoch=4, verbose=0).history["loss"])


def fit_observed(program: Program) -> None:
    """Fits with a callback that changes the learning rate after each batch."""
    seen = []

    class Observer(program.keras.callbacks.Callback):  # type: ignore[name-defined]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append((batch, logs["loss"]))
            if batch == 1:
                self.model.stop_training = True

    program.model.fit(X, Y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=[Observer()])
    program.numbers.append(seen)


def evaluate(program: Program) -> None:
    program.numbers.append(program.model.evaluate(X, Y, batch_size=BATCH, verbose=0))


def predict(program: Program) -> None:
    program.numbers.append(program.model.predict(X[:10], batch_size=4, verbose=0))


def on_batches(program: Program) -> None:
    program.numbers.append(program.model.train_on_batch(X[:BATCH], Y[:BATCH]))
    program.numbers.append(program.model.test_on_batch(X[:BATCH], Y[:BATCH]))
    program.numbers.append(program.model.predict_on_batch(X[:BATCH]))


def call(program: Program) -> None:
    program.numbers.append(np.asarray(program.model(X[:3])))


def own_loop(program: Program) -> None:
    """Updates weights in the program's own loop, with its own optimizer."""
    own, model = program.keras.optimizers.Adam(0.01), program.model
    model(X[:2])
    for _ in range(2):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(X[:BATCH], training=True)))
        own.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True))
        program.numbers.append(float(loss))


def clone(program: Program) -> None:
    cloned = program.keras.models.clone_model(program.model)
    if program.model.built:
        if not cloned.built:
            cloned.build((None, 5))
        cloned.set_weights(program.model.get_weights())
    program.parts["model"] = cloned


def save_and_load(program: Program) -> None:
    path = program.folder / f"{len(program.numbers)}.keras"
    program.model.save(path)
    program.parts["model"] = program.keras.models.load_model(path)


def save_and_load_weights(program: Program) -> None:
    path = str(program.folder / f"{len(program.numbers)}.weights.h5")
    program.model.save_weights(path)
    program.model.set_weights([weight * 0 for weight in program.model.get_weights()])
    program.model.load_weights(path)


def freeze(program: Program) -> None:
    program.model.layers[0].trainable = not program.model.layers[0].trainable


def set_weights(program: Program) -> None:
    program.model.set_weights([weight * 0.5 for weight in program.model.get_weights()])


def copy(program: Program) -> None:
    """Replaces the model by a copy on the engine; plain Keras keeps the model."""
    if program.parts["copies"]:
        program.parts["model"] = ipu.accelerate(program.model)


Action = Callable[[Program], None]
PARTS: tuple[Action, ...] = (*(make_optimizer, make_built_optimizer, make_scaled_optimizer, make_metric, make_layer),)
BUILDS: tuple[Action, ...] = (build, build, build_normalized, build_late)
COMPILES: tuple[Action, ...] = (compile_, compile_, compile_by_names)
UNCOMPILED: tuple[Action, ...] = (clone, set_weights, save_and_load_weights, call)
USES: tuple[Action, ...] = (fit, fit, fit_generator, fit_observed, evaluate, predict, on_batches)
CHANGES: tuple[Action, ...] = (*UNCOMPILED, save_and_load, own_loop, copy)


@dataclass(frozen=True)
class Step:
    """An action, its place, and whether `ipu.accelerate()` is called before it, for all that follows."""

    action: Action
    place: str
    calls: bool = False

    def __str__(self) -> str:
        return f"{'accelerate(); ' * self.calls}{self.action.__name__} {self.place}"


def program_of(seed: int) -> list[Step]:
    """Draws a program: some parts, a model, `compile` at any time before its use, and uses, each anywhere."""
    draw = random.Random(seed)
    actions: list[Action] = draw.choices(PARTS, k=draw.randint(0, 2))
    actions += [draw.choice(BUILDS)]
    if draw.random() < 0.4:
        actions += [draw.choice([call, *PARTS])]
    actions += [draw.choice(COMPILES)]
    for _ in range(draw.randint(2, 5)):
        kind = draw.random()
        if kind < 0.6:
            actions += [draw.choice(USES)]
        elif kind < 0.85:
            change = draw.choice(CHANGES)
            actions += [change, draw.choice(COMPILES)] if change is clone else [change]
        else:
            actions += [freeze, *draw.choices(PARTS, k=draw.randint(0, 1)), draw.choice(COMPILES)]
    places = draw.sample(sorted(PLACES), draw.choice((2, 3)))
    calls = draw.choice((None, None, draw.randrange(len(actions))))
    return [_step(action, draw.choice(places), number == calls) for number, action in enumerate(actions)]


def _step(action: Action, place: str, calls: bool) -> Step:
    # In the scope of a strategy optimizers update in `run` alone, as TensorFlow has it.
    return Step(action, "outside" if action is own_loop and place == "strategy" else place, calls)


def numbers_of(keras: Any, steps: list[Step], plain: bool) -> list[Any]:
    """The numbers of a program, run in its places or with plain Keras alone, and the final weights."""
    keras.utils.set_random_seed(7)
    kept = list(_in_force)
    with tempfile.TemporaryDirectory() as folder:
        program = Program(keras, Path(folder), {"copies": not plain})
        try:
            for step in steps:
                if step.calls and not plain:
                    ipu.accelerate()
                with contextlib.nullcontext() if plain else PLACES[step.place]():
                    step.action(program)
        finally:
            for each in [each for each in _in_force if each not in kept]:
                each.__exit__(None, None, None)
    return [*program.numbers, program.model.get_weights()]


def flat(numbers: Any) -> list[float]:
    """All numbers of a nest, in order."""
    if isinstance(numbers, dict):
        return [number for key in sorted(numbers) for number in flat(numbers[key])]
    if isinstance(numbers, list | tuple):
        return [number for each in numbers for number in flat(each)]
    return np.ravel(np.asarray(numbers, np.float64)).tolist()


def difference(name: str, steps: list[Step]) -> str | None:
    """Describes a difference from plain Keras; None if there is none. Errors of plain Keras are not compared."""
    keras = KITS[name].keras
    try:
        expected = flat(numbers_of(keras, steps, plain=True))
    except Exception:
        return None
    try:
        received = flat(numbers_of(keras, steps, plain=False))
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}\n{''.join(traceback.format_tb(error.__traceback__)[-3:])}"
    if len(received) != len(expected):
        return f"{len(received)} numbers, {len(expected)} of plain Keras"
    wrong = ~np.isclose(received, expected, rtol=2e-3, atol=2e-4)
    return f"{wrong.sum()} of {len(wrong)} numbers differ, the first at {wrong.argmax()}" if wrong.any() else None


def main() -> int:
    """Runs programs; prints those that differ, and their number."""
    parser = argparse.ArgumentParser(prog="python -m tests.keras.orders", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    failed = 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        name = sorted(KITS)[seed % 2]
        steps = program_of(seed)
        found = difference(name, steps)
        if found is not None:
            failed += 1
            print(f"seed {seed}, {name}: {' | '.join(map(str, steps))}\n{found}", flush=True)
    print(f"{arguments.count} programs, {failed} differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
