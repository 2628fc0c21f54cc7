"""The checkpoint from which the variables of an estimator start."""

from __future__ import annotations

import os
from collections import namedtuple
from typing import Any

from engine.errors import ConfigurationError

WarmStart = namedtuple(
    "WarmStart", "ckpt_to_initialize_from vars_to_warm_start var_name_to_vocab_info var_name_to_prev_var_name"
)


class WarmStartSettings(WarmStart):
    """Choice of the variables that start with values of a checkpoint, as tf.estimator.WarmStartSettings."""

    __slots__ = ()

    def __new__(
        cls,
        ckpt_to_initialize_from: str,
        vars_to_warm_start: Any = ".*",
        var_name_to_vocab_info: Any = None,
        var_name_to_prev_var_name: Any = None,
    ) -> WarmStartSettings:
        if not ckpt_to_initialize_from:
            raise ConfigurationError("Expected ckpt_to_initialize_from to name a checkpoint. Received: none.")
        return super().__new__(
            cls, ckpt_to_initialize_from, vars_to_warm_start, var_name_to_vocab_info, var_name_to_prev_var_name
        )


def warm_start_settings(given: Any) -> WarmStartSettings | None:
    """The settings for a checkpoint, its folder, a SavedModel, settings or None."""
    return (
        WarmStartSettings(_variables_of(os.fsdecode(given))) if isinstance(given, str | bytes | os.PathLike) else given
    )


def _variables_of(path: str) -> str:
    """The checkpoint of a SavedModel; another path unchanged."""
    inside = os.path.join(path, "variables", "variables")
    return inside if os.path.exists(f"{inside}.index") else path
