"""What groups filter by: versions, who is there, and the file in stock's form."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.filters import table as table_module
from rocketmq_tw.broker.filters.table import FilterTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.sql92 import MAX_EXPRESSION, Compiled, compile_expression
from rocketmq_tw.wire.bodies.clients import SubscriptionData

T = TypeVar("T")
DAY_MS = 86_400_000

#: Written by stock 5.3.3 (`ConsumerFilterManager.encode`) with its default configuration's bits.
STOCK_FILE = b"""{"filterDataByTopic":{"topic0":{"groupFilterData":{\
"CID_1":{"bloomFilterData":{"bitNum":112,"bitPos":[46,11,74]},"bornTime":1795329909080,\
"clientVersion":8,"consumerGroup":"CID_1","dead":true,"deadTime":1795329909082,\
"expression":"a in ('x','it''s')","expressionType":"SQL92","topic":"topic0"},\
"CID_0":{"bloomFilterData":{"bitNum":112,"bitPos":[80,66,42]},"bornTime":1795329908974,\
"clientVersion":7,"consumerGroup":"CID_0","dead":false,"deadTime":0,"expression":"a > 5",\
"expressionType":"SQL92","topic":"topic0"}},"topic":"topic0"}}}"""


class File:
    """A file in memory."""

    path = "/store/config/consumerFilter.json"

    def __init__(self, data: bytes | None = None) -> None:
        self.data = data

    def read(self, parse: Callable[[bytes], T]) -> T | None:
        return None if self.data is None else parse(self.data)

    def write(self, data: bytes) -> None:
        self.data = data


class Clock:
    def __init__(self, now: int = 1_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def new_table(
    file: File | None = None, clock: Clock | None = None, **changes: Any
) -> tuple[FilterTable, Clock]:
    clock = clock or Clock()
    size = changes.pop("max_size", 1 << 20)
    table = FilterTable(BrokerConfig(**changes), file or File(), clock, size)
    table.load()
    return table, clock


def wanted(text: str | None, version: int = 1, topic: str = "T", kind: str = "SQL92") -> Any:
    return SubscriptionData(topic=topic, sub_string=text, sub_version=version, expression_type=kind)


def expression(table: FilterTable, topic: str = "T", group: str = "G") -> str | None:
    known = table.get(topic, group)
    return None if known is None else known.data.expression


def is_dead(table: FilterTable, topic: str = "T", group: str = "G") -> bool:
    known = table.get(topic, group)
    assert known is not None
    return known.data.dead_time >= known.data.born_time


def test_a_newer_version_counts() -> None:
    table, clock = new_table()
    table.subscribed("G", [wanted("a > 1", 5)])
    clock.now += 1000
    for text, version, kept in [
        ("a > 2", 4, "a > 1"),
        ("a > 2", 5, "a > 1"),
        ("a > 2", 6, "a > 2"),
        ("a > 2", 9, "a > 2"),
    ]:
        table.subscribed("G", [wanted(text, version)])
        assert expression(table) == kept
    known = table.get("T", "G")
    assert known is not None
    assert (known.data.client_version, known.data.born_time) == (9, 1_001_000)
    assert known.expression.matches(b"a\x013\x02")
    assert not known.expression.matches(b"a\x012\x02")


def test_a_wrong_one_takes_the_former_away() -> None:
    table, _ = new_table()
    table.subscribed("G", [wanted("a > 1", 5)])
    table.subscribed("G", [wanted("a between 10,20", 6)])
    assert expression(table) is None
    table.subscribed("G", [wanted("a between 10 and 20", 6)])
    assert expression(table) == "a between 10 and 20"


@pytest.mark.parametrize(
    ("text", "kind", "size"),
    [("a > 1", "SQL92", 1 << 30), ("a > 1", "JS", 1 << 30), ("a > 1", "SQL92", 0)],
    ids=["new", "wrong", "no room"],
)
def test_the_log_tells_of_few_expressions_of_one_heartbeat(text: str, kind: str, size: int) -> None:
    table, _ = new_table(max_size=size)
    many = [wanted(text, topic=f"T{number}", kind=kind) for number in range(300)]
    for version in (1, 2):
        with capturedLogs() as logs:
            table.subscribed(f"G{version}", many)
        assert len(logs) == 11
        assert "has 290 more expressions" in (formatEvent(logs[-1]) or "")


def test_what_is_no_sql_is_not_kept() -> None:
    table, _ = new_table()
    for each in (wanted("*", kind="TAG"), wanted("a", kind=""), wanted("a = 1", kind="JS")):
        table.subscribed("G", [each])
    table.subscribed("G", [wanted(""), wanted(None)])
    assert list(table.of_topic("T")) == []


def test_who_leaves_is_remembered_for_a_day() -> None:
    table, clock = new_table()
    table.subscribed("G", [wanted("a > 1"), wanted("b > 1", topic="U")])
    table.left("G")
    assert is_dead(table) and is_dead(table, "U")
    clock.now += DAY_MS - 1
    table.subscribed("G", [wanted("a > 1")])
    assert not is_dead(table)
    clock.now += 1
    table.forget_dead()
    assert (expression(table), expression(table, "U")) == ("a > 1", None)


def test_a_topic_that_is_not_subscribed_any_more() -> None:
    table, _ = new_table()
    table.subscribed("G", [wanted("a > 1"), wanted("b > 1", topic="U")])
    table.subscribed("G", [wanted("a > 1"), wanted("*", topic="V", kind="TAG")])
    assert not is_dead(table) and is_dead(table, "U")


def test_the_file_is_stocks() -> None:
    file, clock = File(), Clock(1795329908974)
    table, _ = new_table(file, clock)
    table.subscribed("CID_0", [wanted("a > 5", 7, "topic0")])
    clock.now = 1795329909080
    table.subscribed("CID_1", [wanted("a in ('x','it''s')", 8, "topic0")])
    clock.now += 2
    table.left("CID_1")
    assert json.loads(table.encode()) == json.loads(STOCK_FILE)


def test_stocks_file_is_read() -> None:
    table, _ = new_table(File(STOCK_FILE), Clock(1795329909080 + 60_000))
    zero, one = table.get("topic0", "CID_0"), table.get("topic0", "CID_1")
    assert zero is not None and one is not None
    assert (zero.data.client_version, zero.data.expression) == (7, "a > 5")
    assert zero.data.dead_time == 1795329909080 + 30_000, "nobody is there before a heartbeat"
    assert one.data.dead_time == 1795329909082
    assert one.expression.matches(b"a\x01it's")
    assert table.pending_write() is None


def test_a_start_takes_over_what_was_kept() -> None:
    file, clock = File(), Clock()
    table, _ = new_table(file, clock)
    table.subscribed("G", [wanted("a > 1", 5)])
    encode = table.pending_write()
    assert encode is not None and table.pending_write() is None
    table.write(encode())
    again, _ = new_table(file, clock)
    assert expression(again) == "a > 1" and is_dead(again)
    again.subscribed("G", [wanted("a > 2", 5)])
    assert expression(again) == "a > 1" and not is_dead(again)


def test_other_bits_make_it_forget_what_was_kept() -> None:
    assert expression(new_table(File(STOCK_FILE))[0], "topic0", "CID_0") == "a > 5"
    table, _ = new_table(File(STOCK_FILE), expect_consumer_num_use_filter=64)
    assert expression(table, "topic0", "CID_0") is None


def test_a_wrong_expression_in_the_file_is_dropped() -> None:
    table, _ = new_table(File(STOCK_FILE.replace(b"a > 5", b"a >")))
    assert expression(table, "topic0", "CID_0") is None
    assert expression(table, "topic0", "CID_1") is not None


def test_those_who_left_make_room() -> None:
    table, _ = new_table(max_size=5000)
    for number in range(3):
        table.subscribed(f"G{number}", [wanted("a > 1")])
    table.left("G1")
    for number in range(3, 6):
        table.subscribed(f"G{number}", [wanted("a > 1")])
    kept = [known.data.consumer_group for known in table.of_topic("T")]
    assert kept == ["G0", "G2", "G3", "G4"]


def test_expressions_of_one_heartbeat_are_made_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    def compile_noted(text: str) -> Compiled:
        made.append(text)
        return compile_expression(text)

    monkeypatch.setattr(table_module, "compile_expression", compile_noted)
    file = File()
    table, _ = new_table(file)
    table.subscribed("g", [wanted(f"a = {n}", topic=f"T{n}") for n in range(20)])
    table.subscribed("g2", [wanted("a >", topic="T1")])
    assert made == []
    assert table.get("T7", "g") is not None
    assert made == ["a = 7"]
    steps = table.check()
    next(steps)
    assert made == ["a = 7", "a = 0"]
    assert len(list(steps)) == 19
    assert table.shown("T1", "g2") == "null"
    assert len(made) == 21, "each once"
    assert list(table.check()) == []


def test_expressions_that_were_replaced_are_not_kept_to_be_checked() -> None:
    table, _ = new_table()
    for version in range(1_000):
        table.subscribed("g", [wanted(f"a = {version}", version)])
    assert len(list(table.check())) == 1
    for version in range(2_000, 3_000):
        table.subscribed("g", [wanted(f"a = {version}", version)])
    assert len(table._unchecked) == 1


def test_what_is_too_long_takes_no_room() -> None:
    table, _ = new_table(max_size=5000)
    table.subscribed("g", [wanted(f"a = '{'x' * MAX_EXPRESSION}'", version=1)])
    table.subscribed("g", [wanted("a = 1", topic="U")])
    assert table.get("T", "g") is None
    assert table.get("U", "g") is not None
