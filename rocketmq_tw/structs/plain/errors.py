"""Errors for JSON and values that are not as a type asks, with the place in them."""

from __future__ import annotations


class MsgspecError(Exception):
    """Base of all errors of this package."""


class DecodeError(MsgspecError, ValueError):
    """A text is no JSON."""


class ValidationError(DecodeError):
    """A value is not of the type asked for."""


#: The step from a dict to one of its keys, or to one of its values.
KEY, VALUE = "key", "[...]"


class Misfit(Exception):
    """A value does not fit its type. Each container that it stands in adds its own step on the way
    out: `KEY`, `VALUE`, an index in brackets or a name behind a dot."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.steps: list[str] = []

    def error(self) -> ValidationError:
        """Returns what the caller is told: what is wrong, and where unless it is the whole."""
        return ValidationError(f"{self.what} - at {self._place()}" if self.steps else self.what)

    def _place(self) -> str:
        places = ["$"]
        for step in reversed(self.steps):
            if step == KEY:
                places.append(KEY)
            else:
                places[-1] += step
        return " in ".join(f"`{place}`" for place in reversed(places))
