"""The message of configurations that old programs name: here it is the configuration itself."""

from __future__ import annotations

from ipu._internal.config.legacy import IpuOptions

__all__ = ["IpuOptions"]
