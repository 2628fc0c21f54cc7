"""Costs of operations on a processor: a table by processor, with defaults for processors that were not measured.

`SOFTWARE_IPU_COSTS` names a TOML file with other values, as `python -m benchmarks.tune` writes it. Values in its
section "schedule" never change the bits of a result; values in "results" do.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields, replace
from functools import cache
from math import inf
from pathlib import Path

from engine.errors import ConfigurationError
from engine.machine_code.caches import LARGE, second_level
from engine.machine_code.processor import target
from engine.private_files import read_regular

VARIABLE = "SOFTWARE_IPU_COSTS"
MOST_BYTES = 1 << 20
"""Most bytes of a file of costs."""
WINOGRAD = "SOFTWARE_IPU_WINOGRAD"
RESULTS = ("multiply_add", "split_multiply_add", "split", "gather")
"""Costs that decide how products are computed."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs in nanoseconds on one worker, and the size of its cache in bytes."""

    multiply_add: float
    """One float32 multiply-add in the micro-kernels."""
    split_multiply_add: float
    """One multiply-add on matrix registers: six products of three bfloat16 parts. Infinite where they are not used."""
    split: float
    """Splitting one float32 element into three bfloat16 parts."""
    gather: float
    """Extra cost of an element of A whose neighbours along k are not contiguous."""
    barrier: float = 200.0
    """A barrier of two workers: loops whose compute sets take less time run on one worker."""
    small_element: float = 0.1
    """An element or multiply-add of a compute set that takes about as long as a barrier."""
    threads: float = 390_000.0
    """Starting and ending the threads of a call: a call that takes less runs on one worker."""
    cache_bytes: int = 1 << 21
    """Bytes of a worker's second-level cache: passes fuse arrays above a share of it. Caches of 1 MiB and more count as
    2 MiB, smaller ones as they are."""


DEFAULT = Costs(multiply_add=1 / 77, split_multiply_add=inf, split=0.28, gather=0.4)
"""Costs of a processor that was not measured: no product is split."""
MEASURED = {"amx-bf16": Costs(multiply_add=1 / 77, split_multiply_add=1 / 172, split=0.28, gather=0.4)}
"""Costs by a feature of the processor, because a hypervisor may hide the model.

amx-bf16: two cores of a Xeon with AVX-512, AMX and 2 MiB of second-level cache, November 2026.
"""


@cache
def costs() -> Costs:
    """Costs on the processor that code is compiled for, or of the file that `SOFTWARE_IPU_COSTS` names.

    Raises ConfigurationError for a file that cannot be read or has something other than positive costs.
    """
    found = next((each for feature, each in MEASURED.items() if feature in target()[1]), DEFAULT)
    if second_level() < LARGE:
        found = replace(found, cache_bytes=second_level())
    path = os.environ.get(VARIABLE, "").strip()
    return with_file(found, Path(path)) if path else found


def most_winograd_outputs() -> int:
    """Most outputs along each side of a tile of Winograd's transforms; 0 if no convolution is transformed.

    The environment variable SOFTWARE_IPU_WINOGRAD sets it, by default to 4. Raises ConfigurationError for values other
    than 0, 2 and 4.
    """
    given = os.environ.get(WINOGRAD, "").strip() or "4"
    if given not in ("0", "2", "4"):
        raise ConfigurationError(
            f"Expected {WINOGRAD} in the environment to be 0 (no transformed convolutions), 2 (tiles of 2 x 2 outputs) "
            f"or 4 (tiles of up to 4 x 4, the default). Received: {given!r}."
        )
    return int(given)


def with_file(found: Costs, path: Path) -> Costs:
    """Replaces costs by a file's; raises ConfigurationError as `costs` does."""
    import tomllib  # needed only where a file is named

    try:
        sections = tomllib.loads(read_regular(path, MOST_BYTES).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"Expected {VARIABLE} to name a TOML file of costs. Received {path}: {error}"
        ) from None
    names = {field.name for field in fields(Costs)}
    legal = {"results": set(RESULTS), "schedule": names - set(RESULTS)}
    given: dict[str, float] = {}
    for section, values in sections.items():
        if section not in legal or not isinstance(values, dict):
            raise ConfigurationError(f'Expected sections "schedule" and "results" in {path}. Received: {section!r}')
        for name, value in values.items():
            if name not in legal[section]:
                expected = ", ".join(sorted(legal[section]))
                raise ConfigurationError(f'Expected {expected} in section "{section}" of {path}. Received: {name!r}')
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ConfigurationError(f"Expected a positive number for {name} in {path}. Received: {value!r}")
            given[name] = value
    return replace(found, **given)  # type: ignore[arg-type]
