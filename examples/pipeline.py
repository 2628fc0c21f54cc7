"""Train a pipeline of four stages, print their layers and the data that wait on each IPU, and draw the schedule.

python examples/pipeline.py [--chart pipeline.svg] [--schedule Grouped]
"""

import argparse

import keras
import numpy as np
from tensorflow.python import ipu

from keras_ext.pipelining.schedules import pipeline_report

BATCH, STEPS, UPDATES, WIDTH, CLASSES = 32, 8, 25, 64, 10


def make_model() -> keras.Model:
    """A residual perceptron, whose layers are assigned to stages by their calls."""
    inputs = keras.Input((WIDTH,))
    with keras.ipu.PipelineStage(0):
        x = keras.layers.Dense(WIDTH, "relu")(inputs)
    for stage in (1, 2):
        with keras.ipu.PipelineStage(stage):
            hidden = keras.layers.Dense(2 * WIDTH, "relu")(x)
            x = keras.layers.Add()([x, keras.layers.Dense(WIDTH)(hidden)])
    with keras.ipu.PipelineStage(3):
        outputs = keras.layers.Dense(CLASSES)(keras.layers.LayerNormalization()(x))
    return keras.Model(inputs, outputs, name="residual_perceptron")


def main() -> None:
    """Read the command line, train, print, draw."""
    parser = argparse.ArgumentParser(description="Trains a pipeline of four stages.")
    parser.add_argument("--chart", default="pipeline.svg", help="an .svg or .html file for the schedule")
    parser.add_argument("--schedule", default="Grouped", choices=[s.name for s in ipu.pipelining_ops.PipelineSchedule])
    options = parser.parse_args()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.configure_ipu_system()
    generator = np.random.default_rng(0)
    x = generator.normal(size=(BATCH * STEPS * UPDATES, WIDTH)).astype(np.float32)
    y = (x @ generator.normal(size=(WIDTH, CLASSES))).argmax(-1).astype(np.int32)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = make_model()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"], steps_per_execution=STEPS * 5)
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=STEPS,
            pipeline_schedule=ipu.pipelining_ops.PipelineSchedule[options.schedule],
        )
        model.print_pipeline_stage_assignment_summary()
        model.fit(x, y, batch_size=BATCH, epochs=6)
    print(pipeline_report(model).table())
    model.plot_pipeline(options.chart)


if __name__ == "__main__":
    main()
