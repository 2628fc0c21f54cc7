"""The pipelines of functions that run on the device: built when a function is compiled, and kept for inspection."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from engine.ir import Module
from engine.ir.device_operations import PIPELINE_ITERATION, target_of
from engine.partition.schedule import Devices

if TYPE_CHECKING:
    from engine.partition.pipeline import Pipelined

_ipus: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""The IPUs of the pipelines and shards traced into a graph."""
latest: list[Pipelined] = []
"""The pipelines of the last compiled function that has any, in the order in which it calls them."""


def has_pipeline_marks(module: Module) -> bool:
    """Whether loops of a module were traced as pipelines."""
    return any(target_of(i) == PIPELINE_ITERATION for i in module.instructions())


def with_traced_pipelines(module: Module) -> tuple[Module, list[Pipelined]]:
    """Turns the loops of a module that were traced as pipelines into pipelines; returns the module and the pipelines.

    Raises as `engine.partition.traced_pipelines.with_pipelines`.
    """
    if not has_pipeline_marks(module):
        return module, []
    # The engine's passes load Numba, which takes long: imported only for a pipeline.
    from engine.partition.traced_pipelines import with_pipelines

    module, made = with_pipelines(module)
    latest[:] = made
    return module, made


def note_ipus(devices: Devices) -> None:
    """Notes in the function being traced that its pipeline or operations use these IPUs."""
    graph, ipus = tf.compat.v1.get_default_graph(), ipus_of_replica(devices)
    while graph is not None:
        _ipus[graph] = max(_ipus.get(graph, 1), ipus)
        graph = getattr(graph, "outer_graph", None)


def ipus_of_function(graph: tf.Graph, made: Iterable[Pipelined]) -> int:
    """Number of IPUs of a replica of a traced function, from its shards and the pipelines built from its loops."""
    return max([_ipus.get(graph, 1), *(ipus_of_replica(each.schedule.devices) for each in made)])


def ipus_of_replica(devices: Devices) -> int:
    """Number of IPUs of a replica of a pipeline: a power of two, as they are wired."""
    shards = max(ipu for ipus in devices for ipu in ipus) + 1
    return 1 << (shards - 1).bit_length()
