"""Features of the IPU's API: accumulation, replicas, stages, processes, and options that change no numbers.

A program makes its model with `note.on_device`; plain Keras then takes the rows of an update as micro-batches.
"""

from __future__ import annotations

from tests.crossings.plan import MICRO, Draft, feature


def _set(d: Draft, **settings: object) -> None:
    d.need(not d.device.keys() & settings.keys())
    d.device |= {name: repr(value) for name, value in settings.items()}
    d.tags |= {MICRO, "whole batches"}


@feature("device", "2 sum", "3 mean", "2 running_mean", "4 sum", weight=3)
def accumulation(d: Draft, option: str) -> None:
    """Gradients of several micro-batches make an update; pipelines take a multiple."""
    steps, reduction = option.split()
    _set(d, accumulate=int(steps), reduction=reduction)


@feature("device", "2", "3", weight=2)
def replicas(d: Draft, option: str) -> None:
    _set(d, replicas=int(option))


@feature("device", *(f"{count} {kind}" for kind in ("Grouped", "Interleaved", "Sequential") for count in (2, 3)))
def stages(d: Draft, option: str) -> None:
    count, schedule = option.split()
    _set(d, stages=int(count), schedule=schedule)


@feature("device", "2", "4", weight=0.2)
def processes(d: Draft, option: str) -> None:
    """Replicas in several processes."""
    _set(d, processes=int(option))


FREE = {
    "recomputed": "recompute",
    "offloaded": "offload",
    "rounded stochastically": "stochastic",
    "asynchronous callbacks": "asynchronous",
    "read ahead": "prefetch",
    "accumulated outfeed": "accumulate_outfeed",
}


@feature("device", *FREE, weight=2)
def device_option(d: Draft, option: str) -> None:
    """An option that changes no numbers of float32."""
    _set(d, **{FREE[option]: True})
