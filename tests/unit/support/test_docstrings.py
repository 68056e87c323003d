"""A module's docstring begins with what the module does or is, since it is read beside those of its
neighbours; and the pages and sections that docstrings name are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.jars import PROJECT

#: Of a question that the reader has to answer.
QUESTION = re.compile(r"(What|Which|How|Who|Whose|Whoever|Where|When|Whether|Why)\b")
PAGE = re.compile(r"(docs/[\w/-]+\.md)(?:, \"([^\"]+)\"(?: and \"([^\"]+)\")?)?")


def docstrings() -> Iterator[tuple[Path, str]]:
    """Yields the modules of the package, each with its docstring."""
    for path in (PROJECT / "rocketmq_tw").rglob("*.py"):
        if not path.name.endswith("_pb2.py"):
            yield path, ast.get_docstring(ast.parse(path.read_text())) or ""


def test_each_module_says_what_it_does() -> None:
    assert [path.name for path, text in docstrings() if not text or QUESTION.match(text)] == []


def test_the_pages_and_sections_that_docstrings_name_are_there() -> None:
    missing = []
    for path, text in docstrings():
        for page, *sections in PAGE.findall(" ".join(text.split())):
            place = PROJECT / page
            headings = re.findall(r"^#+ (.+)$", place.read_text(), re.M) if place.exists() else []
            if not headings or any(name and name not in headings for name in sections):
                missing.append((path.name, page, sections))
    assert missing == []
