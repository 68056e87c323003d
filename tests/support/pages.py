"""The blocks of code and commands that stand in README and docs, as a reader finds them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.jars import PROJECT

PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
_LOOP = re.compile(r"for (\w+) in (\S+); do (.*?) & done$")
_ITEM = re.compile(r" *(?:[-*]|\d+\.) +")
_INLINE = re.compile(r"`((?:\.venv/bin/)?(?:rmqadmin|rmqspark|twistd|make|python -m) [^`]*)`")


class Block(NamedTuple):
    """A block of a page; `language` is empty where it is indented."""

    page: str
    line: int
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in their order, with those that stand below an item of a list."""
    found: list[Block] = []
    fence: str | None = None
    taken: list[str] = []
    lines = page.read_text().splitlines()
    #: Where the text of the list's item begins, 0 outside of lists.
    column = 0
    blank = True
    for number, line in enumerate([*lines, ""], 1):
        if fence is not None:
            if line.startswith("```"):
                start = number - len(taken)
                found.append(Block(page.name, start, fence, "\n".join(taken) + "\n"))
                fence, taken = None, []
            else:
                taken.append(line)
        elif line.startswith(" " * (column + 4)) and (taken or blank or not column):
            taken.append(line[column + 4 :])
        else:
            if taken:
                start = number - len(taken)
                found.append(Block(page.name, start, "", "\n".join(taken).rstrip() + "\n"))
                taken = []
            if line.startswith("```"):
                fence = line[3:].strip()
            if item := _ITEM.match(line):
                column = item.end()
            elif line.strip() and not line.startswith(" "):
                column = 0
        blank = not line.strip()
    return found


def block(page: str, start: str) -> Block:
    """The block of a page of docs, or of README, that begins with this text; raises `LookupError`
    unless there is one."""
    path = PROJECT / page if page == "README.md" else PROJECT / "docs" / page
    found = [each for each in blocks(path) if each.text.startswith(start)]
    if len(found) != 1:
        raise LookupError(f"{page} has {len(found)} blocks that begin with {start!r}")
    return found[0]


def typed(block: Block) -> list[str]:
    """The lines of a block of a shell as they are typed; what they print in examples is left
    out."""
    text = block.text.replace("\\\n", " ")
    lines = text.splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    return [line for line in lines if line]


def commands(block: Block) -> Iterator[str]:
    """The commands of a block of a shell, one a line, without comments and what starts them in the
    background."""
    for line in typed(block):
        if loop := _LOOP.match(line):
            for path in sorted(PROJECT.glob(loop[2])):
                yield loop[3].replace(f"${loop[1]}", str(path.relative_to(PROJECT)))
            continue
        words = shlex.split(re.sub(r"\s# .*", "", line))
        if words:
            yield shlex.join(words[: -1 if words[-1] == "&" else None])


def inline_commands(page: Path) -> list[str]:
    """The commands in the text of a page that stand between backticks, without examples in which
    something is left out."""
    return [
        found
        for found in _INLINE.findall(page.read_text())
        if "…" not in found and "..." not in found
    ]
