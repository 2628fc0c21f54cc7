"""A whole model: ResNet-50's training step, estimated, against Graphcore's published throughput."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.compile import build_program
from engine.errors import OutOfTileMemory
from engine.profile.fit import check_fit
from engine.profile.options import Assumptions
from engine.profile.program_estimate import Estimate, estimate
from engine.profile.validation import measurements
from engine.program.program import Program
from engine.target import target

ROW = next(each for each in measurements() if each.name == "ResNet-50 training")
ARGUMENTS = ROW.subject[1]


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    import keras
    import tensorflow as tf

    from ipu._internal.compiler.trace import trace_step

    keras.mixed_precision.set_dtype_policy("mixed_float16")
    try:
        model = keras.applications.ResNet50(weights=None, classifier_activation=None)
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        optimizer.build(model.trainable_variables)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                value = loss(labels, model(images, training=True))
            gradients = tape.gradient(value, [v.value for v in model.trainable_variables])
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return value

        batch = ARGUMENTS["batch"]
        specs = [tf.TensorSpec((batch, 224, 224, 3), tf.float32), tf.TensorSpec((batch,), tf.int32)]
        traced = trace_step(step, specs)
        yield build_program(traced.module, traced.roles, traced.constants)
    finally:
        keras.mixed_precision.set_dtype_policy("float32")


@pytest.fixture(scope="module")
def estimated(program: Program) -> Estimate:
    return estimate(program, target(ARGUMENTS["chip"]), assumptions=Assumptions(ARGUMENTS["partials_type"]))


@pytest.mark.explore
def test_throughput(estimated: Estimate) -> None:
    assert estimated.samples_per_replica == ARGUMENTS["batch"]
    assert estimated.samples_per_second == pytest.approx(ROW.published, rel=0.3)


@pytest.mark.explore
def test_share_of_the_matrix_engines_peak_is_realistic(program: Program, estimated: Estimate) -> None:
    flops = 2 * sum(compute_set.work_estimate.multiply_adds for compute_set in program.compute_sets)
    share = flops / estimated.seconds_per_step / estimated.target.peak_flops("f16", "f16")
    assert 0.12 < share < 0.25  # published models reach 19 to 23 %


@pytest.mark.explore
def test_micro_batch_20_does_not_fit_and_smaller_micro_batches_do(program: Program) -> None:
    with pytest.raises(OutOfTileMemory, match="suffices alone"):
        check_fit(program, target(ARGUMENTS["chip"]), Assumptions(ARGUMENTS["partials_type"]))
