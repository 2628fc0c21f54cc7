"""`import` of modules that do not exist below this project's names."""

from __future__ import annotations

import sys
from types import FrameType

from ipu._internal.names.errors import MissingModule
from ipu._internal.names.missing import documented_name, message
from ipu._internal.names.typed import typed_name

IMPORTING = "_find_and_load_unlocked"


def refuse(name: str) -> None:
    """Raises MissingModule in an import statement or `import_module`; does nothing in `find_spec`."""
    frame: FrameType | None = sys._getframe(3)  # skips this function, the finder and importlib's loop over finders
    if frame is None or frame.f_code.co_name != IMPORTING:
        return
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    typed = typed_name(frame)[0] if frame is not None else None
    if typed is None or not f"{typed}.".startswith(f"{name}."):
        typed = name
    error = MissingModule(message(typed, documented_name(typed)))
    error.name = name
    raise error
