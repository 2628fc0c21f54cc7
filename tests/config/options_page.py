"""The tables of docs/options.md, made from effects.py and from the flags that the package knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ipu._internal.config.effects import EFFECTS, KINDS, OLDER, Effect
from ipu._internal.config.library_flags import LIBRARIES, REPORT, LibraryFlags

HEADINGS = {
    "results": "Acts on results",
    "cost report": "Acts on the cost report",
    "host": "Acts on the host",
    "none": "No effect",
}


def effects_tables(effects: Mapping[str, Effect]) -> Iterator[str]:
    """Tables of options and their effects, one for each kind of effect."""
    for kind in KINDS:
        rows = [f"| `{name}` | {effect.text} |" for name, effect in effects.items() if effect.kind == kind]
        if rows:
            second = "why" if kind == "none" else "what it does"
            yield "\n".join([f"| {HEADINGS[kind]} | {second} |", "|---|---|", *rows])


def options_tables() -> str:
    """The options of IPUConfig."""
    return "\n\n".join(effects_tables(EFFECTS))


def older_options_tables() -> str:
    """Tables of the options that only create_ipu_config and its setters have."""
    return "\n\n".join(effects_tables(OLDER))


def flags_table() -> str:
    """Tables of the flags of each library."""
    return "\n\n".join(
        f"### Flags of {library.title}\n\nGiven by `{name}`.\n\n{_library_table(library)}"
        for name, library in {**LIBRARIES, "set_report_options": REPORT}.items()
    )


def _library_table(library: LibraryFlags) -> str:
    acting = [f"| `{flag}` | {text} |" for flag, text in library.acting.items()]
    table = ["| Flag | what it does |", "|---|---|", *acting, ""] if acting else []
    inert = ", ".join(f"`{flag}`" for flag in sorted(library.inert, key=str.lower))
    return "\n".join([*table, f"Accepted, without effect: {inert}."] if inert else table)
