"""The replicas of this process among those of all, as the launcher has set them."""

from __future__ import annotations

import os

from engine.errors import ConfigurationError
from ipu._internal.processes.active import initialise

LOCAL_REPLICAS = "POPDIST_NUM_LOCAL_REPLICAS"
"""The environment variable with the number of replicas of each process, as PopRun has it."""

IPUS_PER_REPLICA = "POPDIST_NUM_IPUS_PER_REPLICA"
"""The environment variable with the number of IPUs of each replica."""

GRADIENT_TYPE = "SOFTWARE_IPU_GRADIENT_TYPE"
"""The environment variable with the type of gradients between processes: float32, or bfloat16."""


BUCKET_BYTES = "SOFTWARE_IPU_GRADIENT_BUCKET_BYTES"
"""The environment variable with the bytes of gradients that are summed together; 4 MiB unless set."""


def local_replicas() -> int:
    """The number of replicas of this process, 1 without a launcher. Raises ConfigurationError for no number."""
    return _count(LOCAL_REPLICAS)


def ipus_per_replica() -> int:
    """The number of IPUs of a replica, 1 without a launcher. Raises ConfigurationError for no number."""
    return _count(IPUS_PER_REPLICA)


def _count(variable: str) -> int:
    text = os.environ.get(variable, "1")
    if not text.isdecimal() or int(text) < 1:
        raise ConfigurationError(f"Expected {variable} to be an integer of at least 1. Received: {text!r}.")
    return int(text)


def total_replicas() -> int:
    """The number of replicas of all processes."""
    return initialise().size * local_replicas()
