"""The files that the pages name are there: of code, of tests, and of links between pages.

A path in backticks is below the project, one of `ROOMS`, or below a folder that its section named
before: "Paths are below ...", or that of another path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jars import PROJECT

PAGES = [
    *(
        PROJECT / name
        for name in ("ARCHITECTURE.md", "README.md", "tests/README.md", "tests/MORE.md")
    ),
    *sorted(PROJECT.glob("docs/*.md")),
]
ROOMS = ("rocketmq_tw", "tests", "tests/support", "docs", "docs/formats")
BASES = [PROJECT, *(PROJECT / name for name in ROOMS)]

#: A module, page or folder, and the test that is named in it. Folders of stores and jars have other
#: names than those of the code, see `OF_A_STORE`.
PATH = re.compile(r"`((?:[\w.-]+/)*(?:[\w.-]+\.(?:py|md|cfg)|[\w.-]+/))(?:::(\w+))?`")
#: Folders of a store, of a distribution, of a benchmark's results.
OF_A_STORE = {"consumequeue/", "index/", "commitlog/", "bin/", "bench/results/", "./data/"}
BELOW = re.compile(r"Paths are below `([^`]+)`")
HEADING = re.compile(r"^#+ ", re.M)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def missing_paths(page: Path) -> Iterator[str]:
    for section in HEADING.split(page.read_text()):
        folders = [base / below for below in BELOW.findall(section) for base in BASES] + BASES
        for name, test in PATH.findall(section):
            if name in OF_A_STORE:
                continue
            place = next((folder / name for folder in folders if (folder / name).exists()), None)
            if place is None:
                yield name
                continue
            if test and not re.search(rf"(def|class) {test}\b", place.read_text()):
                yield f"{name}::{test}"
            named = [place] if place.is_dir() else [place.parent, place.parent.parent]
            folders = [*named, *(folder for folder in folders if folder not in named)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: "-".join(page.parts[-2:]))
def test_every_path_that_a_page_names_is_there(page: Path) -> None:
    assert list(missing_paths(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: "-".join(page.parts[-2:]))
def test_every_page_that_a_page_links_to_is_there(page: Path) -> None:
    links = LINK.findall(page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_a_cell_of_the_map_is_read_at_a_glance() -> None:
    rows = [row for row in PAGES[0].read_text().split("\n") if row.startswith("|")]
    assert [cell for row in rows for cell in row.split(" | ") if len(cell) > 300] == []


def test_each_module_of_support_has_its_line_in_a_page_on_tests() -> None:
    support, tests = PROJECT / "tests/support", PROJECT / "tests"
    page = (tests / "README.md").read_text() + (tests / "MORE.md").read_text()
    modules = (str(each.relative_to(support)) for each in support.rglob("*.py"))
    unnamed = [name for name in modules if not re.search(rf"[`/]{re.escape(name)}[`\]]", page)]
    assert [name for name in unnamed if not name.endswith("__init__.py")] == []
