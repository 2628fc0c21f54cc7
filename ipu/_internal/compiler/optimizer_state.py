"""What optimizers say of their variables in a function being traced: which are state, and where a chip keeps them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from engine.partition.storage import Storage
from ipu._internal.types import Variable


@dataclass
class OptimizerState:
    """The variables that only updates use and the sums of gradients, by id of TensorFlow's variables.

    `slots` have the names of the optimizer and of the variable, `sums` that of the variable whose gradients they sum.
    `storage` is what the optimizer was asked for, in the reading of the configuration in force; there is an update for
    each `interval` iterations of the loop around it.
    """

    storage: Storage
    interval: int
    slots: dict[int, tuple[str, str]] = field(default_factory=dict)
    sums: dict[int, str] = field(default_factory=dict)


_states: weakref.WeakKeyDictionary[Any, OptimizerState] = weakref.WeakKeyDictionary()


def note_optimizer_state(
    optimizer: str, slots: Iterable[Any], sums: Mapping[str, Any], storage: Storage, interval: int
) -> None:
    """Notes an optimizer's variables in the function being traced; the storage of the first optimizer holds for all.

    `sums` are those of gradients, by the names of the variables that these belong to.
    """
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        found = _states.setdefault(graph, OptimizerState(storage, interval))
        found.slots |= {id(variable): (optimizer, _owner(variable)) for variable in slots}
        found.sums |= {id(variable): name.partition(":")[0] for name, variable in sums.items()}
        graph = getattr(graph, "outer_graph", None)


def optimizer_state_of(graph: tf.Graph) -> OptimizerState | None:
    """What was noted in the graph of a function; None if nothing was."""
    return _states.get(graph)


def _owner(slot: Variable) -> str:
    """The name of the variable that a slot belongs to, with which TensorFlow begins the slot's; else the slot's own."""
    name = str(slot.name).partition(":")[0]
    return name.rpartition("/")[0] or name
