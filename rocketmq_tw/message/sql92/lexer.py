"""The tokens of an expression, read one after the other as they are asked for.

Grammar: docs/filters.md.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple

from rocketmq_tw.message.sql92.syntax import ExpressionError


class TokenKind(Enum):
    """What a word is; keywords and signs are told apart by their text."""

    KEYWORD = auto()
    NAME = auto()
    STRING = auto()
    DECIMAL = auto()
    FLOAT = auto()
    SIGN = auto()
    END = auto()


class Token(NamedTuple):
    """A word and its column, from 1; `text` is in upper case for a keyword and without its quotes
    for a string."""

    kind: TokenKind
    text: str
    column: int

    def __str__(self) -> str:
        if self.kind is TokenKind.END:
            return "the end"
        if self.kind is TokenKind.STRING:
            return f"the string {shortened(self.text)!r}"
        return shortened(self.text)


KEYWORDS = frozenset(
    [
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "IN",
        "TRUE",
        "FALSE",
        "NULL",
        "IS",
        "CONTAINS",
        "STARTSWITH",
        "ENDSWITH",
    ]
)

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\n|\r)|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)
    |(?P<FLOAT>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?
        |[0-9]+[eE][+-]?[0-9]+)
    |(?P<DECIMAL>0|[1-9][0-9]*[lL]?)
    |(?P<STRING>'(?:''|[^'])*')
    |(?P<NAME>[A-Za-z_$][A-Za-z0-9_$]*)
    |(?P<SIGN><>|<=|>=|[=<>(),+-])
    """,
    re.VERBOSE,
)


def shortened(text: str) -> str:
    """Returns a piece of an expression as a message quotes it."""
    return text if len(text) <= 40 else f"{text[:40]}…"


class Lexer:
    """Reads lazily: what stands behind the end of an expression is never looked at."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self._ahead: list[Token] = []

    def peek(self, number: int = 0) -> Token:
        """Returns the next word, or the one so many behind it; raises `ExpressionError` if it is
        none."""
        while len(self._ahead) <= number:
            self._ahead.append(self._read())
        return self._ahead[number]

    def next(self) -> Token:
        """Takes the next word."""
        token = self.peek()
        del self._ahead[0]
        return token

    def _read(self) -> Token:
        text = self._text
        while True:
            found = _TOKEN.match(text, self._place)
            if found is None:
                break
            self._place = found.end()
            if found.lastgroup != "blank":
                return _token(found)
        column = self._place + 1
        if self._place == len(text):
            return Token(TokenKind.END, "", column)
        rest = text[self._place]
        if rest == "'":
            raise ExpressionError(column, "the string that begins here has no closing quote")
        raise ExpressionError(column, f"{rest!r} means nothing in an expression")


def _token(found: re.Match[str]) -> Token:
    kind, text, column = TokenKind[found.lastgroup or ""], found.group(), found.start() + 1
    if kind is TokenKind.STRING:
        return Token(kind, text[1:-1].replace("''", "'"), column)
    if kind is TokenKind.NAME and text.upper() in KEYWORDS:
        return Token(TokenKind.KEYWORD, text.upper(), column)
    return Token(kind, text, column)
