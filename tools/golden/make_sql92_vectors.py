"""Records what a stock version makes of random SQL92 expressions, for tests/unit/message/sql92.

    python -m tools.golden.make_sql92_vectors --jars DIRECTORY_OF_JARS --out FILE [--seed N]
        [--count N]

needs a JDK (17 or later) on the path; the directory holds rocketmq-broker of that version and all
that it depends on (`mvn dependency:copy-dependencies`). Without `--out` nothing is written: then
stock's answers are compared with ours, and what differs is printed.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from rocketmq_tw.message.sql92 import ExpressionError, compile_expression

NAMES = ("a", "b", "c", "TAGS", "_x$1")
VALUES = (
    *("1", "5", "10", "-3", "+7", "007", "0", "2147483647", "2147483648", "-2147483648"),
    *("9223372036854775807", "9223372036854775808", "1.5", "1.50", "1e3", "0.0", "-0.0", "-0"),
    *("NaN", "Infinity", "-Infinity", "1f", "2D", "0x1p3", "0x10", " 5", "5 ", "\t6", "\u00a05"),
    *("true", "TRUE", "false", "hello", "axb", "'q'", "Ünï", "٣", "\uff13", "😀", "", "x"),
    *("1_0", "5L", "nan", "inf", ".5", "5.", "1e400", "-1e400"),
)
CONSTANTS = (
    *("1", "5", "10", "-3", "0", "2147483647", "2147483648", "-2147483648", "5L", "0L", "007"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "1.5", "1e3"),
    *("0.0", "-0.0", ".5", "5.", "1e400", "1e-400", "4.9e-324", "1e308", "9007199254740993"),
    *("9007199254740992.0", "'1'", "'5'", "'1.5'", "'hello'", "'true'", "'x'", "''", "'it''s'"),
    *("TRUE", "FALSE", "NULL", "true", "null", "--5", "- 5", "+5", "-+5", "-'x'", "-a", "-TRUE"),
    "-(a > 5)",
)
STRINGS = ("'1'", "'x'", "''", "'ax'", "'b'", "'hello'", "'5'", "'it''s'", "'😀'")
WORDS = (
    *("AND", "OR", "NOT", "(", ")", "=", "'", "--", "/* c */", "-- c\n", "&", "+", "1", "IS"),
    *("x", ".", " ", "LIKE", "%", "\u00e9", "NULL", "'x'", ",", "<>", "<=>", ">="),
)
TEXT_WORDS = ("CONTAINS", "STARTSWITH", "ENDSWITH", "contains")
Case = tuple[str, str]


class Generator:
    """Expressions, some of them wrong, and properties in the wire's form."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._of = self._random.choice

    def case(self) -> Case:
        return self._changed(self._expression(self._random.randint(0, 3))), self._properties()

    def _value(self, depth: int) -> str:
        chance = self._random.random()
        if chance < 0.5:
            return self._of(NAMES)
        if chance < 0.9 or not depth:
            return self._of(CONSTANTS)
        return f"({self._expression(depth - 1)})"

    def _test(self, depth: int) -> str:
        left = self._value(depth)
        chance = self._random.random()
        if chance < 0.35:
            return f"{left}{self._of((' > ', ' >= ', '<', '<='))}{self._value(depth)}"
        if chance < 0.55:
            return f"{left}{self._of((' = ', ' <> ', '=', '<>'))}{self._value(depth)}"
        if chance < 0.62:
            return left + self._of((" IS NULL", " IS NOT NULL", " is null"))
        negated = self._of(("", "NOT "))
        if chance < 0.72:
            return f"{left} {negated}BETWEEN {self._value(depth)} AND {self._value(depth)}"
        if chance < 0.8:
            texts = ",".join(self._of(STRINGS) for _ in range(self._random.randint(1, 6)))
            return f"{left} {negated}IN ({texts})"
        if chance < 0.9:
            return f"{left} {negated}{self._of(TEXT_WORDS)} {self._of(STRINGS)}"
        if chance < 0.93:
            return left
        return f"NOT ({self._expression(depth - 1)})" if depth else f"NOT {left}"

    def _expression(self, depth: int) -> str:
        chance = self._random.random()
        if not depth or chance < 0.4:
            return self._test(depth)
        if chance < 0.6:
            return f"{self._expression(depth - 1)} AND {self._expression(depth - 1)}"
        if chance < 0.8:
            return f"{self._expression(depth - 1)} or {self._expression(depth - 1)}"
        if chance < 0.9:
            return f"({self._expression(depth - 1)})"
        further = self._of((" = ", " <> ", " > ", " IS NULL", " CONTAINS 'x'"))
        return self._test(depth) + further + self._of(("", self._value(depth)))

    def _changed(self, expression: str) -> str:
        chance = self._random.random()
        words = expression.split(" ")
        place = self._random.randrange(len(words))
        if chance < 0.03:
            del words[place]
        elif chance < 0.07:
            words.insert(place, self._of(WORDS))
        elif chance < 0.1:
            words[place] = self._of(WORDS)
        return " ".join(words)

    def _properties(self) -> str:
        text = ""
        for name in NAMES:
            if self._random.random() < 0.65:
                text += f"{name}\x01{self._of(VALUES)}\x02"
        if self._random.random() < 0.1:
            text += self._of(("a", "a\x01", "a\x01\x02", "\x01x\x02", "zz\x01a\x015\x02"))
        return text[:-1] if self._random.random() < 0.1 else text


def stock_answers(jars: Path, cases: Iterable[Case]) -> list[str]:
    """`refused`, `true`, `false`, `null` or `error` for each case."""
    source = Path(__file__).with_name("Sql92Vectors.java")
    lines = [" ".join(base64.b64encode(part.encode()).decode() for part in case) for case in cases]
    with tempfile.TemporaryDirectory() as classes:
        classpath = f"{classes}:{jars}/*"
        subprocess.run(
            ["javac", "-nowarn", "-cp", classpath, "-d", classes, str(source)], check=True
        )
        done = subprocess.run(
            ["java", "-cp", classpath, "Sql92Vectors"],
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            check=True,
        )
    answers = done.stdout.split()
    if len(answers) != len(lines):
        raise RuntimeError(f"{len(answers)} answers to {len(lines)} cases:\n{done.stderr}")
    return answers


def our_answer(expression: str, properties: str) -> str:
    """`refused`, `true` or, for all other answers of stock, `no`."""
    try:
        made = compile_expression(expression)
    except ExpressionError:
        return "refused"
    return "true" if made.matches(properties.encode()) else "no"


def balanced(rows: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """As many rows of each answer as the rarest one has."""
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for row in rows:
        groups.setdefault(row[2], []).append(row)
    fewest = min(map(len, groups.values()))
    return [row for answer in sorted(groups) for row in groups[answer][:fewest]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jars", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20_000)
    given = parser.parse_args()
    generator = Generator(given.seed)
    cases = [generator.case() for _ in range(given.count)]
    rows = [
        (*case, answer)
        for case, answer in zip(cases, stock_answers(given.jars, cases), strict=True)
    ]
    if given.out is not None:
        lines = ",\n".join(json.dumps(row, ensure_ascii=True) for row in balanced(rows))
        given.out.write_text(f"[\n{lines}\n]\n")
        return 0
    differing = 0
    for expression, properties, answer in rows:
        ours = our_answer(expression, properties)
        if ours != (answer if answer in ("refused", "true") else "no"):
            differing += 1
            print(f"{expression!r} with {properties!r}: stock {answer}, ours {ours}")
    print(f"{differing} of {len(rows)} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
