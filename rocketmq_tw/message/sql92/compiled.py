"""Compiled expressions, and a memory of those that were compiled before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from rocketmq_tw.message.properties import PropertiesMatch, parse_properties
from rocketmq_tw.message.sql92.evaluation import Compiler, Evaluate, Values
from rocketmq_tw.message.sql92.parser import Parser
from rocketmq_tw.message.sql92.syntax import MAX_EXPRESSION, EvaluationError, ExpressionError

#: Characters of new expressions that may be compiled in one turn of a reactor, which the last one
#: may go beyond; and what each expression costs beside its own.
CHARACTERS_PER_TURN, COST_OF_EXPRESSION = 2048, 64
#: Characters of all expressions that are remembered; made, each takes up to 100 bytes.
_REMEMBERED = 1 << 18
#: With more names it is cheaper to take the properties apart.
_FEW_NAMES = 4
#: Tests that an expression has without being slow.
_USUAL_TESTS = 16
#: Characters behind CONTAINS and its kind that take as long as the tests of a usual expression:
#: at worst each is compared with each of a property.
_USUAL_TEXT = 128
#: Values whose result an expression remembers, and how long they may be.
_KNOWN_VALUES = 64
_SHORT_VALUE = 64
#: Bytes of what slow expressions were asked last, of all together.
_KNOWN_RESULTS = 4 << 20
_OF_ONE_RESULT = 200


class Compiled(NamedTuple):
    """What was made of `text`. `tests` counts its comparisons and the like; `searched` are the
    characters that it looks for within properties; `rest` is the column of what stands behind the
    expression and was passed over, 0 where nothing does."""

    text: str
    matches: PropertiesMatch
    tests: int
    searched: int
    rest: int

    @property
    def weight(self) -> int:
        """How many times as long as a usual one it takes at most."""
        return 1 + self.tests // _USUAL_TESTS + self.searched // _USUAL_TEXT


class _Memory:
    """Expressions by their text, the one used last at the end; refused ones too."""

    def __init__(self, characters: int) -> None:
        self._room = characters
        self._known: OrderedDict[str, Compiled | ExpressionError] = OrderedDict()

    def __contains__(self, text: str) -> bool:
        return text in self._known

    def get(self, text: str) -> Compiled | ExpressionError | None:
        found = self._known.get(text)
        if found is not None:
            self._known.move_to_end(text)
        return found

    def keep(self, text: str, made: Compiled | ExpressionError) -> None:
        self._known[text] = made
        # A short one takes memory too.
        self._room -= 64 + len(text)
        while self._room < 0:
            oldest, _ = self._known.popitem(last=False)
            self._room += 64 + len(oldest)


class _Results:
    """Remembers what slow expressions made of the properties that they met last: many reads may
    wait with one expression, and are all asked about what arrives."""

    def __init__(self, size: int) -> None:
        self._size = self._room = size
        self._numbers = count()
        self._known: dict[tuple[int, bytes], bool] = {}

    def remembering(self, matches: PropertiesMatch) -> PropertiesMatch:
        """Returns `matches`, asked once about equal properties."""
        number, longest = next(self._numbers), self._size // 64

        def match(properties: bytes) -> bool:
            asked = (number, properties)
            result = self._known.get(asked)
            if result is None:
                result = matches(properties)
                if len(properties) <= longest:
                    self._keep(asked, result)
            return result

        return match

    def _keep(self, asked: tuple[int, bytes], result: bool) -> None:
        size = _OF_ONE_RESULT + len(asked[1])
        if self._room < size:
            self._known.clear()
            self._room = self._size
        self._room -= size
        self._known[asked] = result


_memory = _Memory(_REMEMBERED)
_results = _Results(_KNOWN_RESULTS)


def check_expression_length(text: str) -> None:
    """Raises `ExpressionError` where a text is too long to be looked at as an expression."""
    if len(text) > MAX_EXPRESSION:
        raise ExpressionError(
            MAX_EXPRESSION + 1, f"{len(text)} characters, {MAX_EXPRESSION} are the limit"
        )


def is_remembered(text: str) -> bool:
    """Returns whether `compile_expression` need not read the text."""
    return text in _memory


def compile_expression(text: str) -> Compiled:
    """Makes an expression of text, or finds it made already; raises `ExpressionError`, which says
    where it is wrong and what was expected."""
    made = _memory.get(text)
    if made is None:
        check_expression_length(text)
        try:
            made = _compile(text)
        except ExpressionError as error:
            made = error.copy()
        _memory.keep(text, made)
    if isinstance(made, ExpressionError):
        raise made.copy()
    return made


def _compile(text: str) -> Compiled:
    parser = Parser(text)
    compiler = Compiler()
    evaluate = compiler.compile(parser.parse())
    matches = _match(compiler.names, evaluate)
    made = Compiled(text, matches, parser.tests, parser.searched, parser.rest)
    return made._replace(matches=_results.remembering(matches)) if made.weight > 1 else made


def _match(names: list[str], evaluate: Evaluate) -> PropertiesMatch:
    def decide(values: Values) -> bool:
        try:
            return evaluate(values) is True
        except EvaluationError:
            return False

    if len(names) == 1:
        return _match_one(names[0], decide)
    if len(names) > _FEW_NAMES:

        def match_all(properties: bytes) -> bool:
            get = parse_properties(properties).get
            return decide([get(name) for name in names])

        return match_all
    keys = [_key(name) for name in names]

    def match_few(properties: bytes) -> bool:
        return decide([_value(properties, key) for key in keys])

    return match_few


def _match_one(name: str, decide: Callable[[Values], bool]) -> PropertiesMatch:
    """Remembers what came of the values met last: often there are few."""
    key = _key(name)
    first, length = key[1:], len(key)
    without = decide((None,))
    known: dict[bytes, bool] = {}

    def match_one(properties: bytes) -> bool:
        start = properties.rfind(key)
        if start >= 0:
            start += length
        elif properties.startswith(first):
            start = length - 1
        else:
            return without
        end = properties.find(2, start)
        value = properties[start:end] if end >= 0 else properties[start:]
        result = known.get(value)
        if result is None:
            result = decide((_value(properties, key),))
            if value and len(value) <= _SHORT_VALUE:
                if len(known) >= _KNOWN_VALUES:
                    known.clear()
                known[value] = result
        return result

    return match_one


def _key(name: str) -> bytes:
    """Returns a name with the separators around it."""
    return f"\x02{name}\x01".encode()


def _value(properties: bytes, key: bytes) -> str | None:
    """Returns the value that `parse_properties` has for the name of a key."""
    start = properties.rfind(key)
    if start >= 0:
        start += len(key)
    elif properties.startswith(key[1:]):
        start = len(key) - 1
    else:
        return None
    end = properties.find(2, start)
    value = properties[start:end] if end >= 0 else properties[start:]
    if value:
        return value.decode("utf-8", "replace")
    # Without a value it does not count, and the name may stand in front of that with one.
    return parse_properties(properties).get(key[1:-1].decode())
