"""Identifiers, comments and docstrings of the packages, and sentences of pages, keep to docs/terms.md."""

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
DANGLING = re.compile(r"(?:^|[.:;|] |[-*] )(Those (?:of|that|which|with)|That of|Of (?:a|an|the|its) |The same[,;])")
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def dialect(path: Path) -> Iterator[str]:
    """The line and word of each name, comment and docstring for which the page of terms has another word."""
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


def test_sentences_of_pages_begin_with_a_noun() -> None:
    """Sentences may not begin with a pronoun or a genitive whose noun is in another sentence."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").glob("t*/*.py")]
    found = [
        f"{page.relative_to(ROOT)}:{number}: {begin[1]}"
        for page in sorted(pages)
        if page.name != "terms.md"  # has examples of these
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        for begin in DANGLING.finditer(line)
    ]
    assert len(pages) > 50 and not found, "docs/terms.md, Style:\n" + "\n".join(found)
