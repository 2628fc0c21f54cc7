"""The seconds for which a process waits for the others, from the environment."""

from __future__ import annotations

import os

from engine.errors import ConfigurationError

COLLECTIVE = "SOFTWARE_IPU_COLLECTIVE_TIMEOUT"
"""The environment variable with the seconds for which a collective waits for other processes; 600 unless set."""
CONNECTION = "SOFTWARE_IPU_CONNECTION_TIMEOUT"
"""The environment variable with the seconds within which all workers of a cluster must have started; 20 unless set."""
SILENCE = "SOFTWARE_IPU_SILENCE_TIMEOUT"
"""The environment variable with the seconds after which a process that gives no sign of life is lost; 30 unless set."""
_SECONDS = {COLLECTIVE: "600", CONNECTION: "20", SILENCE: "30"}


def time_limit(variable: str) -> float:
    """The seconds that an environment variable sets. Raises ConfigurationError for text that is no number above 0."""
    text = os.environ.get(variable, _SECONDS[variable])
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ConfigurationError(f"Expected {variable} to be a number of seconds above 0. Received: {text!r}.")
    return seconds
