"""Embeddings: every optimizer gives the weights and slots of either Keras on TensorFlow; big tables change by rows.

TensorFlow gives an embedding's gradient as IndexedSlices. Keras 3 takes rows that are named twice as two gradients, and
adds their squares; tf_keras adds the rows, and its legacy optimizers leave momentum of other rows alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from engine.codelets.rows.touched_rows import TouchedRowsWork
from engine.compile import build_program
from engine.host.passes.pass_list import HOST_PASSES
from engine.host.passes.touched_rows import skip_untouched_rows
from engine.program.program import ComputeSet, Program
from engine.program.run_passes import run_passes
from ipu._internal.compiler.trace import trace_step
from ipu.ipu_strategy import IPUStrategy
from keras_ext.frameworks.keras3 import Keras3
from keras_ext.frameworks.tf_keras import TFKeras
from tests.keras.helpers import Kit, assert_close
from tests.keras.micro_batches import configure

VOCABULARY, WIDTH, LENGTH, BATCH, STEPS = 40, 6, 5, 8, 3
RANDOM = np.random.default_rng(6)
# Few of the rows, many of them twice; the first one is the mask's.
TOKENS = [RANDOM.integers(0, 12, (BATCH * STEPS, LENGTH)) for _ in range(2)]
TARGETS = RANDOM.normal(size=(BATCH * STEPS, 3)).astype(np.float32)
Model = Any
Build = Callable[..., Model]


def pooled(kit: Kit, vocabulary: int = VOCABULARY, width: int = WIDTH, mask_zero: bool = False) -> Model:
    layers = kit.keras.layers
    tokens = layers.Input((LENGTH,), dtype="int32")
    rows = layers.Embedding(vocabulary, width, mask_zero=mask_zero)(tokens)
    return kit.keras.Model(tokens, layers.Dense(3)(layers.GlobalAveragePooling1D()(rows)))


def flattened(kit: Kit, vocabulary: int = VOCABULARY, width: int = WIDTH) -> Model:
    layers = kit.keras.layers
    start = [layers.Input((LENGTH,), dtype="int32"), layers.Embedding(vocabulary, width)]
    return kit.keras.Sequential([*start, layers.Flatten(), layers.Dense(3)])


def shared(kit: Kit, vocabulary: int = VOCABULARY, width: int = WIDTH) -> Model:
    """A model with one table for two inputs."""
    layers = kit.keras.layers
    table = layers.Embedding(vocabulary, width)
    tokens = [layers.Input((LENGTH,), dtype="int32") for _ in TOKENS]
    both = [layers.GlobalAveragePooling1D()(table(each)) for each in tokens]
    return kit.keras.Model(tokens, layers.Dense(3)(layers.Concatenate()(both)))


def masked(kit: Kit) -> Model:
    return pooled(kit, mask_zero=True)


def masked_recurrence(kit: Kit) -> Model:
    layers = kit.keras.layers
    start = [layers.Input((LENGTH,), dtype="int32"), layers.Embedding(VOCABULARY, WIDTH, mask_zero=True)]
    return kit.keras.Sequential([*start, layers.LSTM(4), layers.Dense(3)])


def positions(kit: Kit) -> Model:
    """A model with a second table, of positions, which all sequences name, and a look-up of the first in a function."""

    class Positions(kit.keras.layers.Layer):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words = kit.keras.layers.Embedding(VOCABULARY, WIDTH)
            self.places = kit.keras.layers.Embedding(LENGTH, WIDTH)

        def call(self, tokens: Any) -> Any:
            places = tf.broadcast_to(tf.range(LENGTH), tf.shape(tokens))
            rows = tf.recompute_grad(lambda ids: tf.tanh(self.words(ids)))(tf.reverse(tokens, [1]))
            return self.words(tokens) + self.places(places) * rows

    tokens = kit.keras.layers.Input((LENGTH,), dtype="int32")
    rows = kit.keras.layers.Flatten()(Positions()(tokens))
    return kit.keras.Model(tokens, kit.keras.layers.Dense(3)(rows))


def tied(kit: Kit) -> Model:
    """A model whose table is also the output layer's kernel: part of the gradient names rows, part does not."""

    class Tied(kit.keras.Model):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table = kit.keras.layers.Embedding(VOCABULARY, WIDTH)
            self.head = kit.keras.layers.Dense(3)

        def call(self, tokens: Any) -> Any:
            hidden = tf.reduce_mean(self.table(tokens), axis=1)
            return self.head(tf.matmul(hidden, tf.convert_to_tensor(self.table.embeddings), transpose_b=True))

    return Tied()


MODELS: dict[str, Build] = {
    "flattened": flattened,
    "pooled": pooled,
    "shared": shared,
    "masked": masked,
    "masked_recurrence": masked_recurrence,
    "positions": positions,
    "tied": tied,
}


def same_as_keras(
    kit: Kit, build: Build, optimizer: Callable[[], Any], *size: int, prepare: Callable[[Any], None] = lambda _: None
) -> None:
    """Asserts that three steps give TensorFlow's weights and slots; `prepare` gets TensorFlow's optimizer."""
    given = TOKENS if build is shared else TOKENS[0]
    # Without momentum, tf_keras keeps the last step as a velocity, which nothing reads.
    idle = isinstance(optimizer(), tf_keras.optimizers.SGD) and not optimizer().momentum

    def trained(model: Model) -> tuple[Any, Any, Any]:
        history = model.fit(given, TARGETS, batch_size=BATCH, shuffle=False, verbose=0).history
        return history, model.get_weights(), [] if idle else [np.array(v) for v in variables_of(model.optimizer)]

    plain = build(kit, *size)
    counts_traces = isinstance(optimizer(), tf_keras.optimizers.Nadam)
    plain.compile(optimizer(), "mse", run_eagerly=not counts_traces)
    prepare(plain.optimizer)
    with IPUStrategy().scope():
        ours = build(kit, *size)
        ours.compile(optimizer(), "mse", steps_per_execution=STEPS)
    for model in (plain, ours):
        model.predict(given, verbose=0)
    if counts_traces:  # a step that has metrics to build is traced twice
        plain.evaluate(given, TARGETS, batch_size=BATCH, verbose=0)
    ours.set_weights(plain.get_weights())
    if hasattr(plain.optimizer, "build"):
        # If built in its first step, ScheduleFreeAdamW on TensorFlow would forget its first weights, and Nadam of
        # tf_keras would count another trace.
        plain.optimizer.build(plain.trainable_variables)
    if isinstance(ours.optimizer, tf_keras.optimizers.Optimizer):
        ours.optimizer.build(ours.trainable_variables)
    before = plain.get_weights()
    expected = trained(plain)
    assert max(float(np.abs(a - b).max()) for a, b in zip(expected[1], before, strict=True)) > 1e-3
    assert_close(trained(ours), expected)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MODELS)
def test_models(kit: Kit, name: str) -> None:
    same_as_keras(kit, MODELS[name], lambda: kit.keras.optimizers.Adam(0.02))


# Tables of which a step may touch only the rows it names: 1.28 million numbers.

ROWS, COLUMNS = 20_000, 64
BY_ROWS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda family: family.SGD(0.1),
    "SGD with a schedule": lambda family: family.SGD(family.schedules.ExponentialDecay(0.1, 2, 0.5)),
    "SGD with clipvalue": lambda family: family.SGD(0.1, clipvalue=0.5),
    "Adagrad": lambda family: family.Adagrad(0.1),
}
WHOLE: dict[str, Callable[[Any], Any]] = {
    "momentum": lambda family: family.SGD(0.1, momentum=0.9),
    "Adam": lambda family: family.Adam(0.1),
    "weight decay": lambda family: family.SGD(0.1, weight_decay=0.1),
    "decoupled weight decay": lambda family: family.AdamW(0.1),
}


def program_of(kit: Kit, build: Build, make: Callable[[Any], Any]) -> Program:
    """The program of one training step with a big table, which is not run."""
    framework = Keras3() if kit.is_keras3 else TFKeras()
    with IPUStrategy().scope():
        model = build(kit, ROWS, COLUMNS)
        model.compile(make(kit.keras.optimizers), "mse")
        model.optimizer.build(model.trainable_variables)
    tokens: Any = tf.TensorSpec([BATCH, LENGTH], tf.int32)
    batch = [(tokens, tokens) if build is shared else tokens, tf.TensorSpec([BATCH, 3])]
    traced = trace_step(lambda *data: framework.step(model, "train", data), batch)
    return build_program(traced.module, traced.roles, traced.constants)


def is_big(compute_set: ComputeSet) -> bool:
    return any(s.buffer.shape.elements >= ROWS * COLUMNS for s in (*compute_set.reads, *compute_set.writes))


def touches_whole_table(program: Program, compute_set: ComputeSet) -> bool:
    """Whether a compute set does more with the table than gather some of its rows, or change some in place."""
    moved = [count for kind, count in compute_set.work_estimate.elements.items() if kind in ("gather", "scatter")]
    written = [s.buffer for s in compute_set.writes if s.buffer.shape.elements >= ROWS * COLUMNS]
    in_place = all(b is compute_set.overwrites and b in program.variables.values() for b in written)
    return not moved or max(moved) > 10 * BATCH * LENGTH * COLUMNS or not in_place


@pytest.mark.parametrize("optimizer", BY_ROWS)
@pytest.mark.parametrize("build", [flattened, pooled, shared])
def test_big_tables_are_updated_by_rows(kit: Kit, build: Build, optimizer: str) -> None:
    program = program_of(kit, build, BY_ROWS[optimizer])
    concerned = [each for each in program.compute_sets if is_big(each)]
    assert any(each.writes[0].buffer in program.variables.values() for each in concerned)
    assert [each.name for each in concerned if touches_whole_table(program, each)] == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("optimizer", WHOLE)
def test_optimizers_that_change_every_row_do(kit: Kit, optimizer: str) -> None:
    """Momentum and decay move rows that no batch names; a norm is summed over all of the gradient."""
    program = program_of(kit, pooled, WHOLE[optimizer])
    assert any(touches_whole_table(program, each) for each in program.compute_sets if is_big(each))


@pytest.mark.sample(2)
@pytest.mark.parametrize("optimizer", BY_ROWS)
@pytest.mark.parametrize("build", [flattened, pooled, shared])
def test_updates_by_rows_give_what_keras_gives(kit: Kit, build: Build, optimizer: str) -> None:
    """The table is just big enough to be updated by rows."""
    same_as_keras(kit, build, lambda: BY_ROWS[optimizer](kit.keras.optimizers), 9000, 32)


def scaled(family: Any) -> Any:
    """The wrapper of an optimizer that scales the loss, and updates only if all gradients are finite."""
    return getattr(family, "LossScaleOptimizer", tf_keras.mixed_precision.LossScaleOptimizer)


MOMENTS: dict[str, Callable[[Any], Any]] = {
    "Adam": lambda family: family.Adam(0.1),
    "AMSGrad": lambda family: family.Adam(0.1, amsgrad=True, clipvalue=0.5),
    "Nadam": lambda family: family.Nadam(0.1),
    "Lion": lambda family: family.Lion(0.1),
    "Adamax": lambda family: family.Adamax(0.1),
    "Adadelta": lambda family: family.Adadelta(1.0),
    "RMSprop": lambda family: family.RMSprop(0.1, momentum=0.9, centered=True),
    "Nesterov": lambda family: family.SGD(0.1, momentum=0.9, nesterov=True),
    "AdamW": lambda family: family.AdamW(0.1),
    "moving average": lambda family: family.Adam(0.1, use_ema=True, ema_momentum=0.9),
    "clipnorm": lambda family: family.Adam(0.1, clipnorm=0.01),
    "global_clipnorm": lambda family: family.SGD(0.1, momentum=0.9, global_clipnorm=0.01),
    "loss scale": lambda family: scaled(family)(family.Adam(0.1)),
    "loss scale, global_clipnorm": lambda family: scaled(family)(family.Adam(0.1, global_clipnorm=0.01)),
}


BOTH: dict[str, Callable[[Any], Any]] = {
    "decay and average": lambda family: family.RMSprop(0.1, weight_decay=0.1, use_ema=True)
}
"""Optimizers with two effects, which update touched rows in Keras 3."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("optimizer", MOMENTS)
def test_optimizers_with_moments_update_touched_rows(kit: Kit, optimizer: str) -> None:
    program = run_passes(program_of(kit, shared, MOMENTS[optimizer]), HOST_PASSES)
    assert any(isinstance(each.work, TouchedRowsWork) for each in program.compute_sets)


@pytest.mark.sample(2)
@pytest.mark.parametrize("optimizer", MOMENTS | BOTH)
def test_updates_of_touched_rows_have_the_bits_of_all(
    kit: Kit, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, moments and rates come from outside between calls, and batches of two sizes share one table."""

    def trained() -> list[bytes]:
        kit.keras.utils.set_random_seed(1)
        with IPUStrategy().scope():
            model = pooled(kit, 9000, 32)
            model.compile((MOMENTS | BOTH)[optimizer](kit.keras.optimizers), "mse", steps_per_execution=2)
        found = []
        for outside in range(4):
            model.fit(TOKENS[outside % 2], TARGETS, batch_size=5, shuffle=False, verbose=0)
            found += [each.tobytes() for each in model.get_weights()]
            if outside == 0:
                model.set_weights([each - 0.5 for each in model.get_weights()])
            elif outside == 1:
                moment = next(v for v in variables_of(model.optimizer) if tuple(v.shape) == (9000, 32))
                moment.assign(np.where(np.arange(9000)[:, None] % 7, np.zeros((9000, 32), np.float32), 0.25))
            else:
                model.optimizer.learning_rate.assign(0.0)
        return found

    touched = trained()
    kept = tuple(each for each in HOST_PASSES if each is not skip_untouched_rows)
    monkeypatch.setattr("engine.runtime.encode.HOST_PASSES", kept)
    assert trained() == touched


def accumulated(kit: Kit, model: Model) -> None:
    model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=3)


def pipelined(kit: Kit, model: Model) -> None:
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    assignments = model.get_pipeline_stage_assignment()
    for number, each in enumerate(assignments):
        each.pipeline_stage = number // (len(assignments) - 1)
    model.set_pipeline_stage_assignment(assignments)


@pytest.mark.sample(1)
@pytest.mark.parametrize("arrange", [accumulated, pipelined])
def test_accumulated_rows_have_the_bits_of_tables(
    kit: Kit, arrange: Callable[[Kit, Model], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are read, evaluated and written between calls."""
    tokens, targets = np.tile(TOKENS[0], (2, 1)), np.tile(TARGETS, (2, 1))

    def trained() -> list[bytes]:
        kit.keras.utils.set_random_seed(1)
        configure(2)
        with IPUStrategy().scope():
            model = pooled(kit, 20_000, 16)
            arrange(kit, model)
            model.compile(kit.keras.optimizers.Adam(0.1), "mse", steps_per_execution=12)
        found = []
        for _ in range(3):
            model.fit(tokens, targets, batch_size=4, shuffle=False, verbose=0)
            found += [each.tobytes() for each in model.get_weights()]
            found.append(np.float32(model.evaluate(tokens, targets, batch_size=4, verbose=0)).tobytes())
            model.set_weights([each / 2 for each in model.get_weights()])
        return found

    by_rows = trained()
    monkeypatch.setattr("engine.partition.loop_state.is_of_rows", lambda *arguments: False)
    assert trained() == by_rows


def variables_of(optimizer: Any) -> list[Any]:
    return optimizer.variables() if callable(optimizer.variables) else list(optimizer.variables)


def test_rows_that_do_not_exist_are_as_under_xla_unless_checked(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow on a CPU raises, as do checks. Without checks the nearest row is read, and none is updated."""
    monkeypatch.setenv("SOFTWARE_IPU_VALUE_CHECKS", "none")
    tokens = TOKENS[0].copy()
    tokens[::2, 1] = VOCABULARY + 3

    def run(model: Model) -> tuple[Any, Any]:
        predicted = model.predict(tokens, verbose=0)
        return predicted, (model.fit(tokens, TARGETS, batch_size=BATCH, shuffle=False, verbose=0), model.get_weights())[
            1
        ]

    plain = pooled(kit)
    plain.compile(kit.keras.optimizers.SGD(0.5), "mse", jit_compile=True)
    with IPUStrategy().scope():
        ours = pooled(kit)
        ours.compile(kit.keras.optimizers.SGD(0.5), "mse")
    ours.set_weights(plain.get_weights())
    last = plain.get_weights()[0][-1]
    expected = run(plain)
    assert_close(run(ours), expected)
    np.testing.assert_array_equal(ours.get_weights()[0][-1], last)
