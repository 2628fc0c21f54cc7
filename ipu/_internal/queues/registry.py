"""The host's queues by the names that programs use, and the binding of a program's queues for one run."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import tensorflow as tf

from engine.ir.device_operations import QueueSignature

if TYPE_CHECKING:
    from engine.runtime.rings import AnyRing


class Endpoint(Protocol):
    """The host's endpoint of a queue."""

    name: str

    def begin(self, signature: QueueSignature, replicas: int, sequential: int = 1) -> AnyRing:
        """The ring for a program that is about to run.

        The program has `replicas` replicas that run together, or `sequential` that run one after the other.
        """

    def end(self) -> None:
        """Notes that the program has ended, by an error or not."""


_lock = threading.Lock()
_endpoints: weakref.WeakValueDictionary[str, Endpoint] = weakref.WeakValueDictionary()
_deleted: weakref.WeakValueDictionary[str, Endpoint] = weakref.WeakValueDictionary()
"""The last deleted queue of each name: programs of an outfeed may register it again."""
_numbers = itertools.count()


def register(endpoint: Endpoint, kind: str, name: str | None) -> str:
    """Registers the endpoint while it lives under `name`, or a new name; returns the name.

    Raises ValueError when another endpoint has it.
    """
    with _lock:
        name = name or f"{kind}_{next(_numbers)}"
        if name in _endpoints:
            raise ValueError(
                f"Expected feed_name to be unique among all infeed and outfeed queues. Received: {name!r} a second "
                f"time. Leave it out, or delete the other queue first."
            )
        _endpoints[name] = endpoint
        return name


def forget(endpoint: Endpoint) -> None:
    """Frees the endpoint's name for another queue."""
    with _lock:
        if _endpoints.get(endpoint.name) is endpoint:
            del _endpoints[endpoint.name]
            _deleted[endpoint.name] = endpoint


def remember(endpoint: Endpoint) -> None:
    """Registers the endpoint's name again after `forget`; raises ValueError when another queue has it now."""
    if _endpoints.get(endpoint.name) is not endpoint:
        register(endpoint, "", endpoint.name)


def endpoint_of(name: str) -> Any:
    """The endpoint of that name. Raises NotFoundError where there is none."""
    endpoint = _endpoints.get(name)
    if endpoint is None:
        raise tf.errors.NotFoundError(
            None, None, f"Queue with id={name!r} not found. Create one with feed_name={name!r} first."
        )
    return endpoint


def puts_replicas_together(name: str) -> bool:
    """Whether an outfeed stacks the rows of replicas that run one after the other into one."""
    return getattr(_endpoints.get(name), "puts_replicas_together", True)


@contextmanager
def bound(queues: Mapping[str, QueueSignature], replicas: int, sequential: int = 1) -> Iterator[dict[str, AnyRing]]:
    """The rings of a program's queues while it runs; `replicas` and `sequential` as for `Endpoint.begin`.

    Raises FailedPreconditionError for a queue that was deleted or not initialised, or that programs of another number
    of replicas use.
    """
    with ExitStack() as stack:
        rings = {}
        for name, signature in queues.items():
            endpoint = _endpoints.get(name) or _deleted.get(name)
            if endpoint is None:
                raise tf.errors.FailedPreconditionError(
                    None,
                    None,
                    f"Expected {signature.direction} queue {name!r} of the program to exist. Received: it was "
                    f"deleted. Keep the queue object as long as functions use it.",
                )
            rings[name] = endpoint.begin(signature, replicas, sequential)
            stack.callback(endpoint.end)
        yield rings
