"""Bits of messages: what reads may pass over without a look at properties, and what not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.broker.filters import message_bits
from rocketmq_tw.broker.filters.bloom import BloomFilter
from rocketmq_tw.broker.filters.message_bits import MessageBits
from rocketmq_tw.broker.filters.part import Filters
from rocketmq_tw.broker.filters.table import FilterTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.change import change
from rocketmq_tw.store.queue_extension import UnitExtra
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.clients import ConsumeQueueBody, SubscriptionData
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.pull import QueryConsumeQueueRequestHeader
from tests.support.broker import BrokerInMemory, messages_of, ok
from tests.support.stores import START_MS

SWITCHES = {"enable_property_filter": True, "enable_calc_filter_bit_map": True}

STORE: dict[str, Any] = {
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext": 4096,
    "mapped_file_size_consume_queue": 2000,
}


class TestBits:
    """What is calculated."""

    def made(self, **changes: Any) -> tuple[MessageBits, FilterTable]:
        config = BrokerConfig(**{"enable_calc_filter_bit_map": True} | changes)

        class NoFile:
            path = "/store/config/consumerFilter.json"

            def read(self, parse: Any) -> None: ...
            def write(self, data: bytes) -> None: ...

        table = FilterTable(config, NoFile(), lambda: START_MS)
        self.steps: list[Iterator[None]] = []

        def in_slices(steps: Iterator[None]) -> Deferred[None]:
            self.steps.append(steps)
            return Deferred()

        return MessageBits(config, table, in_slices), table

    def go_on(self) -> None:
        while self.steps:
            for _ in self.steps.pop(0):
                pass

    def subscribe(self, table: FilterTable, group: str, text: str, version: int = 1) -> None:
        table.subscribed(
            group,
            [
                SubscriptionData(
                    topic="T", sub_string=text, sub_version=version, expression_type="SQL92"
                )
            ],
        )

    def of(self, bits: MessageBits, a: int) -> bytes:
        return bits.of("T", b"a\x01%d\x02" % a, START_MS + 1)

    def test_those_of_the_groups_that_it_matches(self) -> None:
        bits, table = self.made()
        self.subscribe(table, "G", "a > 5")
        self.subscribe(table, "H", "a > 7")
        # While expressions are made ready there are none.
        assert self.of(bits, 9) == b""
        self.go_on()
        own = table.bloom.data_of("G", "T").bit_pos, table.bloom.data_of("H", "T").bit_pos
        assert self.of(bits, 9) == table.bloom.bit_map(own[0] + own[1])
        assert self.of(bits, 6) == table.bloom.bit_map(own[0])
        assert self.of(bits, 5) == bytes(14)
        assert bits.of("U", b"a\x019\x02", START_MS) == b""

    def test_a_change_counts_at_once(self) -> None:
        bits, table = self.made()
        self.subscribe(table, "G", "a > 5")
        self.of(bits, 9)
        self.go_on()
        self.subscribe(table, "H", "a > 7")
        assert self.of(bits, 9) == b""
        steps = self.steps.pop()
        next(steps)
        next(steps)
        self.subscribe(table, "H", "a > 8", 2)
        assert self.of(bits, 8) == b""
        # What was begun before the change makes nothing ready.
        assert list(steps) == []
        assert self.of(bits, 8) == b""
        self.go_on()
        assert self.of(bits, 8) == table.bloom.bit_map(table.bloom.data_of("G", "T").bit_pos)

    def test_what_is_no_expression_is_left_out(self) -> None:
        bits, table = self.made()
        self.subscribe(table, "G", "a > 5")
        self.subscribe(table, "H", "a >")
        for _ in range(2):
            self.of(bits, 9)
            self.go_on()
        assert self.of(bits, 9) == table.bloom.bit_map(table.bloom.data_of("G", "T").bit_pos)

    @pytest.mark.parametrize("text", ["a > 5", " OR ".join(f"a = {n}" for n in range(64))])
    def test_what_takes_too_long_is_not_asked(self, text: str) -> None:
        bits, table = self.made(expect_consumer_num_use_filter=3)
        for number in range(2):
            self.subscribe(table, f"G{number}", text)
        self.of(bits, 9)
        self.go_on()
        assert (self.of(bits, 9) == b"") == (len(text) > 10)
        for number in range(2, 7):
            self.subscribe(table, f"G{number}", text)
        self.of(bits, 9)
        self.go_on()
        assert self.of(bits, 9) == b"" and not self.steps

    def test_texts_have_a_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(message_bits, "_MOST_CHARACTERS", 7)
        bits, table = self.made()
        self.subscribe(table, "G", "a > 5")
        self.subscribe(table, "G", "a > 50", 2)
        self.of(bits, 99)
        self.go_on()
        assert self.of(bits, 99)
        self.subscribe(table, "H", "a > 5")
        self.of(bits, 99)
        self.go_on()
        assert self.of(bits, 99) == b""
        # What gives way makes room.
        table.subscribed("H", [])
        table._remove(table.get("T", "H"))  # type: ignore[arg-type]
        self.of(bits, 99)
        self.go_on()
        assert self.of(bits, 99)

    def test_switched_off(self) -> None:
        bits, table = self.made(enable_calc_filter_bit_map=False)
        self.subscribe(table, "G", "a > 5")
        assert self.of(bits, 9) == b"" and not self.steps


class TestWhoMayRelyOnThem:
    def matches(self, group_born: int, extra: UnitExtra) -> bool:
        test = TestBits()
        bits, table = test.made()
        test.subscribe(table, "G", "a > 5")
        known = table.get("T", "G")
        assert known is not None
        known.data.born_time = group_born
        return bits.may_match(known)(extra, 0)

    def test_it(self) -> None:
        own = BloomFilter(20, 32)
        hit = own.bit_map(own.positions("G#T"))
        assert self.matches(99, UnitExtra(0, 100, hit))
        assert self.matches(99, UnitExtra(0, 100, b"\xff" * 14))
        assert not self.matches(99, UnitExtra(0, 100, bytes(14)))
        # Stored when nobody asked yet, without bits, and with those of another configuration.
        assert self.matches(100, UnitExtra(0, 100, bytes(14)))
        assert self.matches(99, UnitExtra(0, 100))
        assert self.matches(99, UnitExtra(0, 100, bytes(15)))


def broker_with_bits(files: Any = None, **settings: Any) -> BrokerInMemory:
    broker = BrokerInMemory(files, broker=SWITCHES | settings.pop("broker", {}), **STORE | settings)
    if broker.broker.parts:
        broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    return broker


def subscribe(broker: BrokerInMemory, group: str, text: str, version: int = 1) -> None:
    broker.subscribe(
        group,
        broker.peer,
        topic="Topic",
        expression_type="SQL92",
        sub_string=text,
        sub_version=version,
    )


def send(broker: BrokerInMemory, *values: int) -> None:
    for value in values:
        ok(broker.send(b"%d" % value, properties={"a": str(value)}))


def bits_of(broker: BrokerInMemory) -> list[bool]:
    units = broker.store.queue_units("Topic", 0, 0, 1000)
    return [bool(unit.extra and unit.extra.bits) for unit in units]


def ready(broker: BrokerInMemory, value: int = 0) -> None:
    """A first message has the expressions made ready."""
    broker.clock.advance(0.01)
    send(broker, value)
    broker.clock.advance(0.01)


def pulled(broker: BrokerInMemory, group: str = "G") -> list[bytes]:
    response = broker.pull(consumer_group=group, sys_flag=0)
    assert response is not None
    return [message.body for message in messages_of(response.body)]


class TestBroker:
    def test_what_the_bits_rule_out_is_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        broker = broker_with_bits()
        subscribe(broker, "G", "a > 5")
        ready(broker)
        send(broker, *range(10))
        assert bits_of(broker) == [False] + [True] * 10
        asked: list[list[bytes]] = []
        read: Any = broker.store.read_queue

        def reading(*args: Any, **how: Any) -> Any:
            wanted = args[-1]
            asked_properties: list[bytes] = []

            def by_properties(properties: bytes) -> bool:
                asked_properties.append(properties)
                return bool(wanted.by_properties(properties))

            asked.append(asked_properties)
            return read(*args[:-1], wanted._replace(by_properties=by_properties), **how)

        monkeypatch.setattr(broker.store, "read_queue", reading)
        assert pulled(broker) == [b"6", b"7", b"8", b"9"]
        # The one from before and those that match.
        assert len(asked[0]) == 5

    def test_who_asks_later_gets_what_came_before(self) -> None:
        broker = broker_with_bits()
        subscribe(broker, "G", "a > 5")
        ready(broker)
        send(broker, *range(10))
        subscribe(broker, "H", "a > 7")
        ready(broker)
        send(broker, *range(10))
        assert pulled(broker, "H") == [b"8", b"9"] * 2
        subscribe(broker, "H", "a < 2", 2)
        ready(broker, 5)
        send(broker, *range(10))
        assert pulled(broker, "H") == [b"0", b"0", b"1", b"0", b"0", b"1", b"0", b"1"]

    def test_the_clock_is_set_back(self) -> None:
        """A message has a later store time than the group's first heartbeat behind it."""
        broker = broker_with_bits()
        subscribe(broker, "G", "a > 5")
        ready(broker)
        broker.shift_ms += 3_600_000
        send(broker, 8)
        broker.shift_ms -= 3_600_000
        subscribe(broker, "H", "a > 7")
        broker.clock.advance(1)
        assert pulled(broker, "H") == [b"8"]

    @pytest.mark.parametrize("shift", [0, -3_600_000])
    def test_another_start(self, shift: int) -> None:
        broker = broker_with_bits()
        subscribe(broker, "G", "a > 5")
        ready(broker)
        send(broker, *range(10))
        broker.stop()
        again = BrokerInMemory(
            broker.files,
            clock=broker.clock,
            broker=SWITCHES,
            started=False,
            **STORE,
        )
        again.shift_ms = shift
        again.start()
        subscribe(again, "H", "a > 7")
        subscribe(again, "G", "a > 5")
        assert bits_of(again) == [False] + [True] * 10
        assert pulled(again, "G") == [b"6", b"7", b"8", b"9"]
        assert pulled(again, "H") == [b"8", b"9"]

    @pytest.mark.parametrize("shift", [0, -3_600_000])
    def test_back_to_the_former_expression_after_a_kill(self, shift: int) -> None:
        """What the group asked in between never came into the file of filters; by the time of the
        last message it may be to come."""
        broker = broker_with_bits()
        subscribe(broker, "G", "a < 5")
        ready(broker, 3)
        broker.clock.pump([1.0] * 30)
        subscribe(broker, "G", "a > 5", 2)
        ready(broker, 8)
        send(broker, 1, 9)
        broker.shift_ms = shift
        send(broker, 7)
        # As after each 64 MB: a start does not put them into their queue again.
        broker.flusher.checkpoint_soon()
        broker.clock.pump([0.1] * 10)
        again = broker_with_bits(broker.files.kill(), clock=broker.clock)
        subscribe(again, "G", "a < 5", 3)
        assert bits_of(again) == [False, False, True, True, True]
        assert pulled(again) == [b"3", b"1"]

    def test_switched_while_it_runs(self) -> None:
        broker = broker_with_bits(broker={"enable_calc_filter_bit_map": False})
        subscribe(broker, "G", "a > 5")
        ready(broker)
        send(broker, 6)
        change(broker.config, {"enableCalcFilterBitMap": "true"})
        ready(broker)
        send(broker, 7)
        change(broker.config, {"enableCalcFilterBitMap": "false"})
        send(broker, 8)
        assert bits_of(broker) == [False, False, False, True, False]
        assert pulled(broker) == [b"6", b"7", b"8"]

    def test_without_extensions_there_are_none(self) -> None:
        broker = BrokerInMemory(broker=SWITCHES)
        assert broker.broker[Filters].bits is None

    def test_units_of_a_queue_are_shown_with_them(self) -> None:
        broker = broker_with_bits()
        subscribe(broker, "G", "a > 5")
        ready(broker)
        send(broker, 5, 6)

        def units(group: str | None) -> list[Any]:
            header = QueryConsumeQueueRequestHeader(
                topic="Topic", queue_id=0, consumer_group=group, count=9
            )
            answer = broker.ask(RequestCode.QUERY_CONSUME_QUEUE, header).body
            return decode_body(ConsumeQueueBody, answer).queue_data or []

        before, five, six = units("G")
        assert (before.bit_map, before.eval) == (None, True)
        assert (five.eval, six.eval) == (False, True)
        # G#Topic has these bits.
        table = broker.broker[Filters].table
        positions = table.bloom.data_of("G", "Topic").bit_pos
        text = six.bit_map.replace("\n", "")
        assert len(text) == 112
        assert {111 - n for n, bit in enumerate(text) if bit == "1"} == set(positions)
        assert six.bit_map.index("\n") == 48 and six.bit_map[-1] == "\n"
        shown = json.loads(six.extend_data_json)
        assert set(shown) == {"filterBitMap", "msgStoreTime", "size", "tagsCode"}
        assert shown["size"] == 34
        assert not any(unit.eval for unit in units(None))
