"""Train a small network and write reports on its cost on a chip.

    pip install 'software-ipu[report]'
    python examples/report.py [--folder reports]

Open reports/small.html and reports/large.html in a browser. The second has a section that compares it with the first.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras
import numpy as np
from keras import layers
from tensorflow.python import ipu

BATCH, FEATURES, CLASSES = 64, 256, 10


def compiled(width: int) -> keras.Model:
    model = keras.Sequential(
        [
            layers.Input((FEATURES,)),
            layers.Dense(width, "relu", name="first"),
            layers.Dense(width, "relu", name="second"),
            layers.Dense(CLASSES, name="last"),
        ],
        name=f"network_of_width_{width}",
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, steps_per_execution=20)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes reports on the cost of a network on a chip.")
    parser.add_argument("--folder", type=Path, default=Path("reports"), help="where the reports go")
    folder = parser.parse_args().folder
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    generator = np.random.default_rng(0)
    x = generator.normal(size=(BATCH * 40, FEATURES)).astype(np.float32)
    y = generator.integers(0, CLASSES, len(x)).astype(np.int32)

    with ipu.ipu_strategy.IPUStrategy().scope():
        # The callback reports on the program that `fit` runs, and on its waits for data.
        small = compiled(128)
        small.fit(x, y, batch_size=BATCH, epochs=2, callbacks=[ipu.ProfileReport(folder / "small.html")])

        # Nothing runs: this compiles the training step for batches of 64, and compares the reports.
        large = compiled(1024)
        report = ipu.profile(large, batch_size=BATCH, path=folder / "large.html", baseline=folder / "small.json")

    print(report.text())
    print(report.data["comparison"]["verdict"])
    print("fits:", report.fits, " cycles:", report.cycles["total"])


if __name__ == "__main__":
    main()
