"""New seeds that keep TensorFlow's kernels if nothing has drawn from them.

With each seed TensorFlow forgets the kernels of all eager operations, because kernels with seeds hold a state. Making
one again takes up to a millisecond, and all of them a tenth of the processor time of Keras' tests. Few tests have
kernels with seeds: most layers and initializers draw stateless numbers.

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
    """Notes whether operations with seeds are made during a file's tests, and until then keeps kernels."""
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
    """Calls TensorFlow's own, and notes that an operation with a seed is made."""
    global _drawn
    _drawn = True
    return _get_seed(op_seed)


def set_global_seed(seed: int) -> None:
    """Calls TensorFlow's own, but keeps the kernels if nothing has drawn from them."""
    if _drawn:
        _set_global_seed(seed)
    else:
        state = context.context()
        state._seed, state._rng = seed, random.Random(seed)
