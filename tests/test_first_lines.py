"""The first line of a docstring says what its object does or is, and can be read without its neighbours."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("benchmarks", "engine", "examples", "ipu", "keras_ext", "tests")
FRAGMENTS = (
    *("After", "Against", "Along", "Also", "Among", "And", "As", "At", "Because", "Before", "Between", "But", "By"),
    *("For", "From", "Here", "How", "If", "In", "Into", "Its", "It", "Less", "Not", "Nothing", "Of", "On", "Once"),
    *("Only", "Or", "Out", "Over", "Per", "Since", "So", "Such", "Than", "That", "Their", "Them", "Then", "There"),
    *("These", "They", "This", "Those", "Through", "To", "Too", "Under", "Unless", "Until", "Up", "Via", "What"),
    *("Whatever", "When", "Where", "Which", "While", "Who", "Whose", "With", "Within", "Without"),
)
"""Words with which a fragment begins, or a sentence whose subject is in another docstring."""
FRAGMENT = rf"(?:{'|'.join(FRAGMENTS)})\b|The (?:ones?|others?|rest|same)\b|[\w-]+\W*$"
BEGINNING = re.compile(rf'^\s*r?"""\s*(?:{FRAGMENT})', re.MULTILINE)


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Strings that are statements: of modules, classes and functions, and below assignments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def fragments(path: Path) -> Iterator[str]:
    """Position and first line of each docstring of a file that begins with a fragment."""
    source = path.read_text()
    if not BEGINNING.search(source):  # a tree takes a hundred times as long, and files should not need it
        return
    for each in docstrings(ast.parse(source)):
        first = str(each.value).strip().partition("\n")[0]
        if re.match(FRAGMENT, first):
            yield f"{path.relative_to(ROOT)}:{each.lineno}: {first}"


def test_first_lines_can_be_read_alone() -> None:
    paths = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    found = [each for path in paths for each in fragments(path)]
    assert not found, "Begin with a verb, an article, a number or the thing itself:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("line", "is_fragment"),
    [
        ("Those of the arrays.", True),
        ("The same for bias.", True),
        ("What a user declares.", True),
        ("Within, names are looked up.", True),
        ("Nothing.", True),
        ("The addresses of the arrays.", False),
        ("Whether a row fits.", False),
        ("Adds a row.", False),
        ("y[i] = x[i] + 1.", False),
        ("Asks for a row.", False),
    ],
)
def test_fragments_are_recognised(line: str, is_fragment: bool) -> None:
    assert bool(BEGINNING.search(f'    """{line}"""\n')) == is_fragment == bool(re.match(FRAGMENT, line))
