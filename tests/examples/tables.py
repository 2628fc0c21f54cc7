"""Tables of pages that are made from tables of the package: python -m tests.examples.tables writes them.

A page has each table between `<!-- python -m tests.examples.tables NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.config.options_page import flags_table, older_options_tables, options_tables
from tests.examples.operations import elementwise_table, rewritten_list, structured_table

DOCS = Path(__file__).parent.parent.parent / "docs"
MADE = {
    "options": options_tables,
    "older": older_options_tables,
    "flags": flags_table,
    "elementwise": elementwise_table,
    "structured": structured_table,
    "rewritten": rewritten_list,
}
MARKED = re.compile(r"(<!-- python -m tests\.examples\.tables (\w+) -->\n).*?(<!-- end -->)", re.S)


def written(page: str) -> str:
    """The page with its tables renewed."""
    return MARKED.sub(lambda found: f"{found[1]}\n{MADE[found[2]]()}\n\n{found[3]}", page)


if __name__ == "__main__":
    for path in DOCS.glob("*.md"):
        page = path.read_text()
        if page != (now := written(page)):
            path.write_text(now)
