"""Documented names that do not exist here, and their replacements; a module's own entry is for the rest of it."""

NOT_HERE: dict[str, str] = {}
