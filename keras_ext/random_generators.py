"""The random generators of Python, NumPy, TensorFlow and both Kerases: their states, and how to set them."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from tensorflow.python.eager import context

_ABSENT = object()


class Generators:
    """The random generators that data, callbacks and traces draw from, and their states at the beginning."""

    def __init__(self, kept: bool) -> None:
        self._kept = self.states() if kept else {}

    def _all(self) -> dict[str, tuple[Callable[[], Any], Callable[[Any], None]]]:
        found: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
            "python": (random.getstate, random.setstate),
            "numpy": (np.random.get_state, np.random.set_state),
        }
        of_tensorflow = getattr(context.context(), "_rng", None)
        if of_tensorflow is not None:
            found["tensorflow"] = of_tensorflow.getstate, of_tensorflow.setstate
        if "tf_keras" in sys.modules:
            from tf_keras.src import backend

            generator = getattr(backend._SEED_GENERATOR, "generator", None)
            if generator is not None:
                found["tf_keras"] = generator.getstate, generator.setstate
        if "keras" in sys.modules:
            from keras.src.backend.common import global_state
            from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR

            found["keras"] = (
                lambda: _state_of(global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)),
                lambda state: _set_state(global_state, GLOBAL_SEED_GENERATOR, state),
            )
        return found

    def states(self) -> dict[str, Any]:
        """The present states, by generator."""
        return {name: read() for name, (read, _) in self._all().items()}

    def changes(self, before: dict[str, Any]) -> dict[str, Any]:
        """The states of the generators that have drawn since `before`."""
        return {name: state for name, state in self.states().items() if not _equal(state, before.get(name, _ABSENT))}

    def restore(self, states: dict[str, Any]) -> None:
        """Sets the generators to `states`, by name."""
        writers = self._all()
        for name, state in states.items():
            if name in writers:
                writers[name][1](state)

    def restore_all(self, but: tuple[str, ...] = ()) -> None:
        """Sets the states at the beginning, but for the generators of these names."""
        self.restore({name: state for name, state in self._kept.items() if name not in but})


def _state_of(generator: Any) -> Any:
    """A global seed generator of Keras 3 with its value; None before there is one."""
    return None if generator is None else (generator, np.array(generator.state))


def _set_state(global_state: Any, name: str, state: Any) -> None:
    global_state.set_global_attribute(name, None if state is None else state[0])
    if state is not None:
        state[0].state.assign(state[1])


def _equal(state: Any, other: Any) -> bool:
    if isinstance(state, tuple) and isinstance(other, tuple) and any(isinstance(each, np.ndarray) for each in state):
        return len(state) == len(other) and all(_equal(*pair) for pair in zip(state, other, strict=True))
    return bool(np.array_equal(state, other)) if isinstance(state, np.ndarray) else state is other or state == other
