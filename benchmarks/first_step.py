"""A process of its own that trains one step; prints the seconds from after Keras' import to the step's end.

python -m benchmarks.first_step {ipu,keras}
"""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np

from benchmarks.models import BATCH_SIZE, compiled, mlp


def strategy_scope() -> Any:
    """Imported here: loading the software IPU is part of what is timed."""
    from tensorflow.python import ipu

    return ipu.ipu_strategy.IPUStrategy().scope()


def main(where: str) -> None:
    x, y = np.zeros((BATCH_SIZE, 784), np.float32), np.zeros(BATCH_SIZE, np.int64)
    keras.ops.convert_to_tensor(0)  # TensorFlow's own start belongs to neither side
    start = time.perf_counter()
    with strategy_scope() if where == "ipu" else nullcontext():
        model = compiled(mlp(), jit_compile=True, steps_per_execution=1)
        model.fit(x, y, batch_size=BATCH_SIZE, verbose=0)
    print(f"seconds to first step: {time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main(sys.argv[1])
