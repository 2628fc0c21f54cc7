"""Extends TensorFlow's sessions, which keep their classes: hooks and monitored sessions call them, too."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as sessions

from engine.errors import UnsupportedOperation
from ipu._internal.function_code import wraps
from ipu._internal.graphs.clusters import replaced_run
from ipu._internal.graphs.errors import original_error
from ipu._internal.graphs.global_step import extend_global_step
from ipu._internal.graphs.placement import note_placed
from ipu._internal.graphs.sessions import ATTRIBUTE, RunUses, moved, programs_of, reached, use_of
from ipu._internal.graphs.variables import Session

LEAST_THREADS = 4
"""Least number of threads of sessions: a program occupies one while others dequeue what it has enqueued."""


def install() -> None:
    """Extends TensorFlow's sessions and global steps, once."""
    base = sessions.BaseSession
    if getattr(base, "_ipu_installed", False):
        return
    base._ipu_installed = True
    _extend_initialisation(base)
    _extend_placement(base)
    _extend_runs(base)
    _extend_callables(base)
    extend_global_step()


def _extend_initialisation(base: Any) -> None:
    """Places operations in scopes of /device:IPU, of which TensorFlow's runtime has no device, on the host."""
    initialise = base.__init__

    @wraps(initialise)
    def __init__(self: Session, target: str = "", graph: tf.Graph | None = None, config: Any = None) -> None:
        if config is None or isinstance(config, tf.compat.v1.ConfigProto):
            given, config = config, tf.compat.v1.ConfigProto()
            if given is not None:
                config.CopyFrom(given)
            config.allow_soft_placement = True
            # Operations that only an IPU executes, as collectives are, have no kernel of the host, where none is run.
            config.graph_options.place_pruned_graph = True
            if not config.inter_op_parallelism_threads:
                config.inter_op_parallelism_threads = max(LEAST_THREADS, os.cpu_count() or 1)
        initialise(self, target, graph, config)

    base.__init__ = __init__


def _placed(session: Session) -> dict[tf.Operation, int]:
    """The ordinals of the operations of a session's graph that are on IPUs."""
    config = session._config
    return note_placed(session._graph, moves_all=config is None or not config.allow_soft_placement)


def _with_clusters(
    session: Session, targets: list[Any], fetches: list[Any], fed: list[Any]
) -> tuple[list[Any], list[Any]]:
    """The targets and fetches, with programs for operations on IPUs that are in none. Raises as `replaced_run`."""
    placed = _placed(session)
    if not placed:
        return targets, fetches
    return replaced_run(placed, targets, fetches, fed)


def _extend_placement(base: Any) -> None:
    """Variables in scopes of /device:IPU are placed on the host: TensorFlow itself would warn at length.

    So is all else there in sessions that were created before their class was extended.
    """
    extend = base._extend_graph

    @wraps(extend)
    def _extend_graph(self: Session) -> None:
        _placed(self)
        extend(self)

    base._extend_graph = _extend_graph


def _extend_runs(base: Any) -> None:
    do_run = base._do_run

    @wraps(do_run)
    def _do_run(
        self: Session, handle: Any, targets: list[Any], fetches: list[Any], feeds: Any, options: Any, metadata: Any
    ) -> Any:
        if handle is None:
            targets, fetches = _with_clusters(self, targets, fetches, [each.deref() for each in feeds])
        programs = getattr(self._graph, ATTRIBUTE, None)
        use = None if programs is None else use_of(self, programs, targets, fetches)
        try:
            with contextlib.nullcontext() if use is None else moved(self, use) as number:
                if programs is not None and use is not None and use.executes:
                    feeds = {**feeds, programs.run_number.ref(): number}
                return do_run(self, handle, targets, fetches, feeds, options, metadata)
        except tf.errors.OpError as error:
            raise original_error(error) from None

    base._do_run = _do_run


def _extend_callables(base: Any) -> None:
    """Callables of sessions have their fetches from the start."""
    make, from_options, set_up = base.make_callable, base._make_callable_from_options, base.partial_run_setup

    @wraps(make)
    def make_callable(self: Session, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Any:
        return make(self, fetches, feed_list or [], accept_options)  # with a list of feeds it calls Session.run

    @wraps(from_options)
    def _make_callable_from_options(self: Session, options: Any) -> Any:
        graph = self._graph
        fetches = [graph.as_graph_element(name, allow_operation=False) for name in options.fetch]
        targets = [graph.as_graph_element(name) for name in options.target]
        fed = [graph.as_graph_element(name, allow_operation=False) for name in options.feed]
        targets, fetches = _with_clusters(self, targets, fetches, fed)
        given, options = options, config_pb2.CallableOptions()
        options.CopyFrom(given)
        options.target[:], options.fetch[:] = [each.name for each in targets], [each.name for each in fetches]

        def used() -> RunUses | None:  # programs may be added to the graph after this
            programs = getattr(graph, ATTRIBUTE, None)
            return None if programs is None else use_of(self, programs, targets, fetches)

        first = used()
        executes = first is not None and first.executes
        if executes:
            options.feed.append(programs_of(graph).run_number.name)
        made = from_options(self, options)

        def call(*arguments: Any, **named: Any) -> Any:
            use = used()
            try:
                with contextlib.nullcontext() if use is None else moved(self, use) as number:
                    return made(*arguments, *([number] if executes else []), **named)
            except tf.errors.OpError as error:
                raise original_error(error) from None

        return call

    @wraps(set_up)
    def partial_run_setup(self: Session, fetches: Any, feeds: Any = None) -> Any:
        graph = self._graph
        roots = [graph.as_graph_element(each) for each in tf.nest.flatten(fetches)]
        fed = [graph.as_graph_element(each, allow_operation=False) for each in feeds or ()]
        operations = [getattr(each, "op", each) for each in roots]
        _, fetched = _with_clusters(self, [], [each for each in roots if isinstance(each, tf.Tensor)], fed)
        programs = getattr(graph, ATTRIBUTE, None)
        found = set(reached([*operations, *(each.op for each in fetched)]))
        if programs is not None and not programs.operations.isdisjoint(found):
            raise UnsupportedOperation(
                "Expected results of IPU programs to be fetched by Session.run, or by a callable of the session. "
                "Received: a partial run of them. Fetch them in a run of their own."
            )
        return set_up(self, fetches, feeds)

    base.make_callable, base.partial_run_setup = make_callable, partial_run_setup
    base._make_callable_from_options = _make_callable_from_options
