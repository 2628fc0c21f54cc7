"""Environment variables that turn a part of the engine off."""

from __future__ import annotations

import os

from engine.errors import ConfigurationError


def is_on(variable: str) -> bool:
    """Whether a part of the engine is switched on: its variable, which is read at each call, is not 0.

    Raises ConfigurationError for values other than 0 and 1: "false" must not count as "on" in silence.
    """
    text = os.environ.get(variable, "").strip()
    if text not in ("", "0", "1"):
        raise ConfigurationError(
            f"Expected 0 or 1 in {variable}. Received: {text!r}. Nearest legal value: 0 to turn it off; "
            f"unset it otherwise."
        )
    return text != "0"
