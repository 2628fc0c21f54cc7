"""Hooks of MkDocs: pages of modules and notebooks, pages that no section lists, links beside the docs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import reference  # beside this file, which MkDocs finds by its path
import tutorials
from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

WORKER, STYLE = "assets/iframe_worker.js", "assets/cells.css"
ELSEWHERE = re.compile(r"https://unpkg\.com/iframe-worker/[\w.]+")
"""What the theme loads from elsewhere: the search's worker for pages that are files."""
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?!\w+\.md)[^)]*\)")
NOTEBOOK = re.compile(r"\]\(([^)]+)\.ipynb\)")


def on_config(config: Any) -> Any:
    """Adds unlisted pages to the how-to section, and notebooks' and modules' pages to theirs."""
    sections = {name: pages for section in config.nav for name, pages in section.items()}
    listed = {page for pages in sections.values() for page in _pages(pages)}
    sections["Tutorials"] += [path for path in tutorials.pages(Path(config.docs_dir)) if path not in listed]
    sections["How-to"] += sorted(path.name for path in Path(config.docs_dir).glob("*.md") if path.name not in listed)
    sections["Reference"].append({"API": [*reference.pages()]})
    return config


def _pages(section: list[Any]) -> Iterator[str]:
    """The pages of a section and of the sections in it."""
    for each in section:
        if isinstance(each, str):
            yield each
        else:
            for pages in each.values():
                yield from _pages(pages)


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages of the reference and of notebooks."""
    for path, text in {**reference.pages(), **tutorials.pages(Path(config.docs_dir))}.items():
        files.append(File.generated(config, path, content=text))
    for path in (WORKER, STYLE):
        files.append(File.generated(config, path, content=(Path(__file__).parent / Path(path).name).read_text()))
    return files


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Makes the page load nothing from elsewhere."""
    return ELSEWHERE.sub(get_relative_url(WORKER, page.url), output)


def on_post_template(output: str, **_: Any) -> str:
    """The same for the page of missing pages."""
    return ELSEWHERE.sub(WORKER, output)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leaves of links to sources their text, as the site has documents alone; notebooks are pages there."""
    return NOTEBOOK.sub(r"](\1.md)", OUTSIDE.sub(r"\1", markdown))
