"""How the log tells what administrators change: the new value, and behind it what it was."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

#: Entries of one change that the log tells of.
NAMED = 100
#: Characters of one value that the log tells.
MAX_TOLD = 1_000


def changed(now: Any, before: Any) -> str:
    """Returns `now`, with what it was `before`; None is what is not there."""
    return f"{_told(now)} (was {_told(before)})"


def listed(entries: Iterable[str], number: int | None = None) -> str:
    """Returns the first of so many `entries`, and how many more there are; where to count them
    costs too much, whether there are more."""
    found = iter(entries)
    told = ", ".join(islice(found, NAMED)) or "nothing"
    if number is None:
        return told if next(found, None) is None else f"{told} and more"
    return told if number <= NAMED else f"{told} and {number - NAMED} more"


def _told(value: Any) -> str:
    if value is None:
        return "not there"
    text = str(value)
    return text if len(text) <= MAX_TOLD else f"{text[:MAX_TOLD]}..."
