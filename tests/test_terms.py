"""Identifiers, comments and docstrings of the packages keep to docs/terms.md."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
NOT_IN_NAMES = {
    "account",
    "anew",
    "crew",
    "effort",
    "judge",
    "meet",
    "meets",
    "nobody",
    "piece",
    "pieces",
    "somebody",
    "strange",
    "turn",
    "turned",
    "turns",
    "whoever",
}
NOT_IN_PROSE = {"anew", "crew", "laid", "somebody", "strange", "whoever"}
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def dialect(path: Path) -> Iterator[str]:
    """Line and word of each name, comment and docstring that the page of terms has another word for."""
    # Tokens take ten times as long as words, and few files have one of these.
    if not {each.lower() for each in PART.findall(path.read_text())} & (NOT_IN_NAMES | NOT_IN_PROSE):
        return
    with path.open() as source:
        for token in tokenize.generate_tokens(source.readline):
            is_prose = token.type == tokenize.COMMENT or (token.type == tokenize.STRING and '"""' in token.string[:4])
            words = NOT_IN_NAMES if token.type == tokenize.NAME else NOT_IN_PROSE if is_prose else set()
            for word in {each.lower() for each in PART.findall(token.string)} & words:
                yield f"{path.relative_to(ROOT)}:{token.start[0]}: {word}"


def test_names_and_prose_keep_to_the_page_of_terms() -> None:
    paths = (path for package in ("engine", "ipu", "keras_ext") for path in sorted((ROOT / package).rglob("*.py")))
    found = [each for path in paths for each in dialect(path)]
    assert not found, "docs/terms.md has other words:\n" + "\n".join(found)
