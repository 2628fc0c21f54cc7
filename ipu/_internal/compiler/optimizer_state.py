"""Optimizers' notes on their variables in a function being traced: which are state, and where a chip keeps them."""

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
    """The variables used by updates only, and the sums of gradients, by id of TensorFlow's variables.

    `slots` has the names of the optimizer and of the variable, `sums` the name of the variable whose gradients are
    summed.
    `storage` is the optimizer's, with the defaults of the present configuration; there is an update for each `interval`
    iterations of the loop around it.
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

    `sums` are the sums of gradients, by the names of the gradients' variables.
    """
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        found = _states.setdefault(graph, OptimizerState(storage, interval))
        found.slots |= {id(variable): (optimizer, _owner(variable)) for variable in slots}
        found.sums |= {id(variable): name.partition(":")[0] for name, variable in sums.items()}
        graph = getattr(graph, "outer_graph", None)


def optimizer_state_of(graph: tf.Graph) -> OptimizerState | None:
    """The optimizer state noted in the graph of a function, or None."""
    return _states.get(graph)


def _owner(slot: Variable) -> str:
    """The name of a slot's variable, with which TensorFlow begins the slot's name; else the slot's own name."""
    name = str(slot.name).partition(":")[0]
    return name.rpartition("/")[0] or name
