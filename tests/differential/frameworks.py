"""Facts of a framework that the suite uses: its public names and its state."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import tensorflow as tf

KINDS = {
    "layers": ("layers", "Layer"),
    "losses": ("losses", "Loss"),
    "metrics": ("metrics", "Metric"),
    "optimizers": ("optimizers", "Optimizer"),
    "legacy optimizers": ("optimizers.legacy", "Optimizer"),
    "schedules": ("optimizers.schedules", "LearningRateSchedule"),
    "activations": ("activations", ""),
}
NOT_ACTIVATIONS = {"get", "serialize", "deserialize"}


@dataclass(frozen=True)
class Framework:
    """A Keras under test."""

    name: str
    keras: ModuleType
    reference_scope: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Scope for models of the reference, in which they draw the same random numbers as on the engine."""

    def public_names(self, kind: str) -> list[str]:
        """Each public class (or activation function) of a kind, once: of several names, the one of its definition."""
        path, base_name = KINDS[kind]
        module: Any = self.keras
        for part in path.split("."):
            module = getattr(module, part, None)
        public = {name: value for name, value in vars(module).items() if name[0] != "_"} if module else {}
        if not base_name:
            found = {name: v for name, v in public.items() if callable(v) and name not in NOT_ACTIVATIONS}
        else:
            base = getattr(module, base_name)
            found = {name: v for name, v in public.items() if _below(v, base)}
        names: dict[int, list[str]] = {}
        for name, value in sorted(found.items()):
            names.setdefault(id(value), []).append(name)
        return sorted(_defined_name(getattr(found[each[0]], "__name__", ""), each) for each in names.values())

    def state(self, model: Any) -> list[Any]:
        """All that training changes, of a compiled model: weights, random states, the optimizer's variables."""
        optimizer = model.optimizer
        build = getattr(optimizer, "build", None) or optimizer._create_all_weights
        build(model.trainable_variables)
        mine = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
        # Nadam of tf_keras does not list the product of its momenta.
        unlisted = [value for value in vars(optimizer).values() if isinstance(value, tf.Variable)]
        known = {id(each) for each in mine}
        return [*model.variables, *mine, *(each for each in unlisted if id(each) not in known)]


def _below(value: Any, base: type) -> bool:
    return isinstance(value, type) and issubclass(value, base) and value is not base


def _defined_name(defined: str, public: list[str]) -> str:
    return defined if defined in public else public[0]


def framework(name: str) -> Framework:
    """Raises ValueError for a name that is neither `keras` nor `tf_keras`."""
    if name not in ("keras", "tf_keras"):
        raise ValueError(f"Expected a framework, keras or tf_keras. Received: {name!r}.")
    keras = importlib.import_module(name)
    if name == "keras":
        return Framework(name, keras)
    # Otherwise tf_keras draws from a state inside TensorFlow, which nobody can put back.
    keras.backend.experimental.enable_tf_random_generator()
    # Under any strategy, a tf.random.Generator mixes the number of its replica into its key.
    return Framework(name, keras, tf.distribute.OneDeviceStrategy("/cpu:0").scope)
