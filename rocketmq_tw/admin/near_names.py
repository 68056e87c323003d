"""Guesses the name that was meant by one that is not there."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str]) -> str | None:
    """Returns the question whether the nearest of `names` was meant; None where none is near."""
    # Few calls have a name that is not there.
    import difflib

    folded = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), folded, 1)
    return f"did you mean {folded[close[0]]}?" if close else None
