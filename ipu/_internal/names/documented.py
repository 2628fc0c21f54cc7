"""Documented names that do not exist here, and their replacements; a module's entry holds for its other names."""

NOT_HERE: dict[str, str] = {}
