"""Checks before a program runs that it fits into the tile memory of the configured chip."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import ConfigurationError, OutOfTileMemory
from engine.partition.storage import Storage
from ipu._internal.compiler.storage import has_remote_buffers
from ipu._internal.config.chip import configured_assumptions, configured_target
from ipu._internal.config.engine_flags import engine_flags
from ipu._internal.thread_values import ThreadValue

if TYPE_CHECKING:
    from engine.profile.options import Assumptions
    from engine.profile.program_estimate import Estimate
    from engine.program.program import Program

logger = logging.getLogger("ipu")
ALLOW = "debug.allowOutOfMemory"
Source = Callable[[str], str]
"""The line of the user's program for an op_name, empty if it is unknown."""
_allowed = False
_warned: set[str] = set()
chip_is_checked = ThreadValue(True)
"""Whether this thread's programs must fit the configured chip; False for users who have no chip in mind."""


def with_storage(assumptions: Assumptions, storage: Storage, state_shards: int, interval: int = 1) -> Assumptions:
    """The assumptions for a model that offloads data, its optimizer state sharded over `state_shards` replicas.

    An optimizer in a loop updates in one of `interval` iterations. Nothing is offloaded without remote buffers in the
    configured system.
    """
    from engine.profile.options import GRADIENT_ACCUMULATORS, OPTIMIZER_STATE_VARIABLES

    assumptions = replace(assumptions, state_interval=interval)
    if not has_remote_buffers():
        return assumptions
    offloaded = set(assumptions.offloaded)
    if storage.offloads_optimizer_state:
        offloaded.add(OPTIMIZER_STATE_VARIABLES)
    if storage.offload_gradient_accumulation_buffers:
        offloaded.add(GRADIENT_ACCUMULATORS)
    return replace(assumptions, offloaded=frozenset(offloaded), state_shards=state_shards)


def check_program(
    program: Program,
    stored: Callable[[Assumptions], Assumptions] = lambda each: each,
    ipus: int = 1,
    source: Source = OutOfTileMemory.source,
    recomputing: Callable[[], Program] | None = None,
) -> None:
    """Raises OutOfTileMemory for a program that the configured chip cannot hold, or warns of it.

    `stored` adds the data in streaming memory to the assumptions, `source` finds lines for the error. A replica with
    shards has the tiles of `ipus` chips, on which its arrays are spread evenly: what one shard alone needs is not
    checked. `recomputing` compiles the program with recomputation of activations, as the error may propose.

    It warns after `allow_out_of_memory`, and where Poplar's option debug.allowOutOfMemory is set, in
    IPUConfig.compilation_poplar_options or in the JSON of the environment variable POPLAR_ENGINE_OPTIONS. Raises
    ConfigurationError for an option that is no boolean.
    """
    from engine.profile.fit import check_fit

    assumptions = stored(configured_assumptions())
    chip = configured_target()
    target = replace(chip, tiles=chip.tiles * ipus)

    def check(allowed: bool) -> None:
        check_fit(program, target, assumptions, proposing=not allowed, source=source, recomputing=recomputing)

    _allowing(check)


def check_estimate(estimate: Estimate, source: Source) -> None:
    """Checks that the cost report of a pipeline fits on all of its IPUs; raises OutOfTileMemory."""
    from engine.profile.refusal import out_of_tile_memory

    def check(_: bool) -> None:
        if not estimate.fits:
            raise out_of_tile_memory(estimate, source=source)

    _allowing(check)


def certainly_fits(program: Program) -> bool:
    """Whether the check can be skipped: the program is small for one configured chip, for any mapping to tiles."""
    from engine.profile.fit import certainly_fits

    return not chip_is_checked.value or certainly_fits(program, configured_target(), configured_assumptions())


def _allowing(check: Callable[[bool], None]) -> None:
    """Runs a check, and passes whether its error is only a warning; each warning is logged once in a process."""
    allowed = out_of_memory_is_allowed()
    try:
        check(allowed)
    except OutOfTileMemory as error:
        if not allowed:
            raise
        text = str(error).splitlines()[0]
        if text not in _warned:
            _warned.add(text)
            logger.warning("The program would not fit a chip, and runs here as %s is set. %s", ALLOW, text)


def allow_out_of_memory(allowed: bool = True) -> None:
    """Runs programs that no chip would hold, from now on and in this process, each with one warning.

    This is Poplar's option debug.allowOutOfMemory for all later configurations, unless POPLAR_ENGINE_OPTIONS sets it.

    Args:
        allowed: with False, such programs raise OutOfTileMemory again, unless the configuration sets the option.
    """
    global _allowed
    _allowed = allowed


def out_of_memory_is_allowed() -> bool:
    """Whether debug.allowOutOfMemory is set; the environment overrides the program.

    Raises ConfigurationError for a value that is neither true nor false, or an environment that is not JSON or has
    a flag that the engine lacks.
    """
    given = engine_flags({ALLOW: "true"} if _allowed else {}).get(ALLOW, False)
    if str(given).lower() not in ("true", "false"):
        raise ConfigurationError(f"Expected the Poplar option {ALLOW} to be 'true' or 'false'. Received: {given!r}.")
    return str(given).lower() == "true"
