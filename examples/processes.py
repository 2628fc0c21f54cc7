"""Train a model of handwritten digits in several processes, each with its own part of the data.

python -m ipu.run --processes 2 -- examples/processes.py [--epochs 5]
"""

import argparse

import keras
import numpy as np
import popdist
import popdist.tensorflow
from sklearn.datasets import load_digits
from tensorflow.python.ipu.config import IPUConfig
from tensorflow.python.ipu.distributed.popdist_strategy import PopDistStrategy

SAMPLES, GLOBAL_BATCH = 1536, 64


def main() -> None:
    """Train; process 0 prints the metrics of all processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    popdist.init()
    config = IPUConfig()
    popdist.tensorflow.set_ipu_config(config)
    config.configure_ipu_system()
    strategy = PopDistStrategy()
    count, index = popdist.getNumInstances(), popdist.getInstanceIndex()

    images, labels = load_digits(return_X_y=True)
    images = images[index:SAMPLES:count].astype(np.float32) / 16
    labels = labels[index:SAMPLES:count].astype(np.int32)
    keras.utils.set_random_seed(1)  # for the order of samples: each process shuffles its own
    with strategy.scope():
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.005), loss, metrics=["accuracy"], steps_per_execution=8)
        batch = GLOBAL_BATCH // strategy.num_replicas_in_sync
        history = model.fit(images, labels, batch_size=batch, epochs=options.epochs, verbose=0)
    if index == 0:
        seconds, megabytes = strategy.transport.seconds, strategy.transport.bytes / 1e6
        for epoch, loss_value in enumerate(history.history["loss"]):
            print(f"epoch {epoch + 1}: loss {loss_value:.3f}, accuracy {history.history['accuracy'][epoch]:.1%}")
        print(f"{count} processes, {megabytes:.1f} MB reduced in {seconds:.2f} s")


if __name__ == "__main__":
    main()
