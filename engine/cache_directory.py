"""Where compiled code is kept between processes."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory(kind: str) -> Path:
    """$XDG_CACHE_HOME (or ~/.cache)/software-ipu/<kind>; not created here."""
    root = os.environ.get("XDG_CACHE_HOME")
    base = Path(root) if root else Path.home() / ".cache"
    return base / "software-ipu" / kind
