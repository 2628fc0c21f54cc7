"""The states of all random generators of a fit and its position in the data: for backups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.errors import ConfigurationError
from engine.ops.generators import RNG_STATE, ROUNDING_STATE
from keras_ext.runs import passes_of_training

GENERATORS, ENGINE, ROUNDINGS, PLACE_IN_DATA = "generators", "engine", "roundings", "place_in_data"
NUMPY = ("numpy_key", "numpy_position", "numpy_has_gauss", "numpy_gauss")


def random_states(generators: Sequence[Any]) -> dict[str, np.ndarray]:
    """Copies of the states: those of `generators`, Keras' variables of equal shape, of the engine, and of NumPy.

    PLACE_IN_DATA is the position of the fit under way in its data, if they are of tf.data. NumPy's generator gives
    the order of shuffled arrays without a seed; it is left out if it has been replaced by another kind.
    """
    states = {GENERATORS: np.array([np.asarray(state) for state in generators])}
    states |= {ENGINE: RNG_STATE.read(), ROUNDINGS: ROUNDING_STATE.read()}
    kind, *of_numpy = np.random.get_state()
    if kind == "MT19937":
        states |= {name: np.asarray(value) for name, value in zip(NUMPY, of_numpy, strict=True)}
    passes = passes_of_training()
    return states if passes is None else {**states, PLACE_IN_DATA: np.array(passes.position())}


def restore_random_states(states: Mapping[str, np.ndarray], generators: Sequence[Any]) -> None:
    """Restores the states; raises ConfigurationError for a number of generators other than at the backup."""
    if len(states[GENERATORS]) != len(generators):
        raise ConfigurationError(
            f"Expected a model with as many random layers as the one that was backed up: {len(states[GENERATORS])} "
            f"seed generators. Received: {len(generators)}. Build the same model, or empty the backup's directory."
        )
    for variable, state in zip(generators, states[GENERATORS], strict=True):
        variable.assign(state)
    RNG_STATE.write(states[ENGINE])
    if ROUNDINGS in states:  # backups of older versions have none
        ROUNDING_STATE.write(states[ROUNDINGS])
    passes = passes_of_training()
    if PLACE_IN_DATA in states and passes is not None:
        passes.resume(*map(int, states[PLACE_IN_DATA]))
    if NUMPY[0] in states:
        key, position, has_gauss, gauss = (states[name] for name in NUMPY)
        np.random.set_state(("MT19937", key, int(position), int(has_gauss), float(gauss)))
