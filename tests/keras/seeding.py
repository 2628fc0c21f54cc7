"""New seeds that leave TensorFlow's kernels where nothing has drawn from one.

With each seed TensorFlow forgets the kernels of all eager operations, since those with seeds go on from their state. To
make one again takes up to a millisecond, and all of them a tenth of the processor time of Keras' tests, few of which
have kernels with seeds: most layers and initializers draw stateless numbers.

Only while tests of Keras run: others may call functions of earlier files, which draw without a new operation.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tensorflow.python.eager import context
from tensorflow.python.framework import random_seed

_get_seed, _set_global_seed = random_seed.get_seed, context.set_global_seed
_drawn = True


@contextmanager
def kernels_kept() -> Iterator[None]:
    """Notes during a file's tests whether operations with seeds are made: functions may outlive a test."""
    global _drawn
    before = random_seed.get_seed, context.set_global_seed
    _set_global_seed(0)
    _drawn = False
    random_seed.get_seed, context.set_global_seed = get_seed, set_global_seed
    try:
        yield
    finally:
        random_seed.get_seed, context.set_global_seed = before
        _drawn = True


def get_seed(op_seed: int | None) -> tuple[int | None, int | None]:
    """TensorFlow's own, which each operation with seeds calls."""
    global _drawn
    _drawn = True
    return _get_seed(op_seed)


def set_global_seed(seed: int) -> None:
    """TensorFlow's own, without clearing kernels that have drawn nothing."""
    if _drawn:
        _set_global_seed(seed)
    else:
        state = context.context()
        state._seed, state._rng = seed, random.Random(seed)
