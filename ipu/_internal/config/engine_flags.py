"""Flags of Poplar's engine: those of the configuration, overridden by those of the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from engine.errors import ConfigurationError
from ipu._internal.config.library_flags import ENGINE, check_flags
from ipu._internal.config.system import current_system

ENVIRONMENT = "POPLAR_ENGINE_OPTIONS"
SUPERVISOR_STACK = ("target.supervisorStackSizeInBytes", "debug.supervisorStackSizeInBytes")
WORKER_STACK = ("target.workerStackSizeInBytes", "debug.workerStackSizeInBytes")
"""The names of each flag, first that of later releases."""


def engine_flags(of_program: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The flags by name; those `of_program` override the configuration, and the environment overrides both.

    Raises ConfigurationError for an environment that is not JSON or has a flag that the engine lacks.
    """
    return {**current_system().config.compilation_poplar_options, **of_program, **_environment()}


def stack_bytes() -> tuple[int | None, int | None]:
    """The bytes of the supervisor's stack and of one worker's; None without a flag.

    Raises ConfigurationError for a value that is no number of bytes.
    """
    flags = engine_flags()
    return _bytes_in(flags, SUPERVISOR_STACK), _bytes_in(flags, WORKER_STACK)


def _bytes_in(flags: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    name = next((name for name in names if name in flags), None)
    if name is None:
        return None
    text = str(flags[name])
    if not text.isdecimal():
        raise ConfigurationError(
            f"Expected the engine flag {name} to be a number of bytes. Received: {flags[name]!r}. Use '256', or leave "
            "the flag out."
        )
    return int(text)


def _environment() -> Mapping[str, Any]:
    text = os.environ.get(ENVIRONMENT, "")
    if not text.strip():
        return {}
    try:
        options = json.loads(text)
    except ValueError as error:
        options = error
    if not isinstance(options, dict):
        raise ConfigurationError(
            f"Expected {ENVIRONMENT} to be a JSON object of Poplar's engine options, such as "
            f'{{"debug.allowOutOfMemory": "true"}}. Received: {text!r}.'
        )
    check_flags(ENVIRONMENT, options, ENGINE)
    return options
