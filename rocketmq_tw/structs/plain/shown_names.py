"""The names that a parser was shown which forgets none: PyPy's `json.loads` keeps each name of a
member for ever, some 600 bytes, and peers can make up as many as they like."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r'"([^"\\]*)"[ \t\r\n]*:')
#: A longer name counts as several.
_LONG = 64


class ShownNames:
    """Lets the parser see texts until `most` names in them were new. From then on it sees only
    those of which it has seen every name before, and the others have to be read another way.

    It is told of all names of what was parsed: by `know` of those that code asks for, by `see` of
    others, by `see_all` of a text that was not understood."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._known: set[str] = set()

    def know(self, names: Iterable[str]) -> None:
        """Takes in names that are not a peer's choice."""
        self._known.update(names)

    def see(self, name: str) -> None:
        """Counts a name, unless it is known."""
        if name not in self._known:
            self._left -= 1 + len(name) // _LONG
            if self._left > 0 and len(name) <= _LONG:
                self._known.add(name)

    def see_all(self, text: str) -> None:
        """Counts what names there may be in `text`."""
        self._left -= 1 + len(text) // _LONG
        for name in _NAME.findall(text):
            self.see(name)

    def may_show(self, text: str) -> bool:
        """Returns whether the parser may see `text`."""
        if self._left > 0:
            return True
        # Escapes can hide a name; what merely looks like one is read another way for nothing.
        return "\\" not in text and self._known.issuperset(_NAME.findall(text))
