"""Text of peers, for terminals."""

from __future__ import annotations


def printable(text: str) -> str:
    """Returns one line in which nothing acts on a terminal: what is not printable is escaped."""
    if text.isprintable():
        return text
    return "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text
    )
