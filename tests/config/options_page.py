"""The tables of docs/options.md: printed from effects.py and from the flags that the package knows."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from ipu._internal.config.effects import EFFECTS, KINDS, OLDER, Effect
from ipu._internal.config.library_flags import LIBRARIES, REPORT, LibraryFlags

WIDTH = 110


def show(effects: Mapping[str, Effect]) -> None:
    """Prints options with their effect, those of one kind together."""
    for kind in KINDS:
        rows = {name: effect.text for name, effect in effects.items() if effect.kind == kind}
        if rows:
            print(f"{kind}:")
        for name, text in rows.items():
            print(textwrap.fill(f"{name}: {text}", WIDTH, initial_indent="  ", subsequent_indent="      "))


def show_options() -> None:
    """Prints the options of IPUConfig."""
    show(EFFECTS)


def show_older_options() -> None:
    """Prints the options that only create_ipu_config and its setters have."""
    show(OLDER)


def show_flags() -> None:
    """Prints the flags of each library."""
    for name, library in {**LIBRARIES, "set_report_options": REPORT}.items():
        print(f"{library.title} ({name}):")
        _show_library(library)


def _show_library(library: LibraryFlags) -> None:
    for flag, text in library.acting.items():
        print(textwrap.fill(f"{flag}: {text}", WIDTH, initial_indent="  ", subsequent_indent="      "))
    inert = "  ".join(sorted(library.inert, key=str.lower))
    lines = textwrap.wrap(inert, WIDTH - 4, break_on_hyphens=False, break_long_words=False)
    print(textwrap.indent("\n".join(["none:", *(f"  {line}" for line in lines)]), "  "))
