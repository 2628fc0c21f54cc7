"""Lines of Python that make a change for a Keras model, as the error for tile memory prints them."""

from __future__ import annotations

from collections.abc import Iterator

from engine.profile.change import Change
from engine.profile.options import Assumptions

CONFIGURATION = "config = ipu.config.IPUConfig()  # or your program's own"
LIBRARIES = ("matmuls", "convolutions", "slices")
MICRO_BATCHES = 8
"""Micro-batches for each stage of a proposed pipeline."""


def lines(change: Change, batch: int, before: Assumptions) -> tuple[str, ...]:
    """The lines that make a change: the configuration, then what a new model needs, then the model and its `fit`.

    `batch` is the present batch size, `before` are the present assumptions. Lines that do not begin with `model`
    come before the model is made.
    """
    return (*_before_the_model(change, before), *_of_the_model(change, batch, before))


def _before_the_model(change: Change, before: Assumptions) -> Iterator[str]:
    then = change.assumptions or before
    ipus = change.replicas * change.ipus
    options = []
    if then.available_memory_proportion != before.available_memory_proportion:
        given = f'{{"availableMemoryProportion": "{then.available_memory_proportion:g}"}}'
        options += [f"config.{library}.poplar_options = {given}" for library in LIBRARIES]
    if change.recomputes or change.ipus > 1:  # estimates of stages recompute
        options.append("config.allow_recompute = True")
    if ipus > 1:
        options.append(f"config.auto_select_ipus = {ipus}")
    if options:
        yield from (CONFIGURATION, *options, "config.configure_ipu_system()")
    if change.half_precision:
        yield 'keras.mixed_precision.set_global_policy("mixed_float16")'


def _of_the_model(change: Change, batch: int, before: Assumptions) -> Iterator[str]:
    offloads = change.assumptions is not None and bool(change.assumptions.offloaded - before.offloaded)
    of_step = change.batch or batch
    if change.ipus > 1:
        count = MICRO_BATCHES * change.ipus
        arguments = f"batch_size={of_step}, gradient_accumulation_steps_per_replica={count}"
        yield f"model.plan_pipeline({change.ipus}, {arguments}).apply()"
        yield f"model.steps_per_execution = {count}; model.fit(x, y, batch_size={of_step})"
        return
    steps = batch // of_step if change.accumulates else 1
    if offloads:  # only a program that accumulates gradients can offload them
        steps = max(steps, 2)
    if steps > 1:
        state = ", offload_weight_update_variables=True" if offloads else ""
        of_step = change.batch or batch // steps
        yield f"model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica={steps}{state})"
        yield f"model.steps_per_execution = {steps}; model.fit(x, y, batch_size={of_step})"
    elif change.batch:
        yield f"model.fit(x, y, batch_size={of_step})"
