"""Holding pulls: woken by what may match, at their time, and gone with their peer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from rocketmq_tw.broker.reading.held_pulls import HeldPulls
from rocketmq_tw.broker.reading.held_requests import ANY_QUEUE
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.store.dispatch_entries import BatchEntry, DispatchEntry
from rocketmq_tw.store.interface import EVERY_MESSAGE, MessageFilter
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer


def arrived(topic: str = "T", queue_id: int = 0, end: int = 6, code: int = 0) -> DispatchEntry:
    return DispatchEntry(topic, queue_id, end - 1, 0, 0, code, 0, True, ())


class Holder:
    """A `HeldPulls` on an empty store; `woken` are the names of what was resumed."""

    def __init__(self, limit: int = 10, **config: bool | int) -> None:
        self.plane = BrokerInMemory()
        self.clock = self.plane.clock
        #: Set: what is to be gone through in slices stands there.
        self.slices: list[Iterator[None]] | None = None
        self.held = HeldPulls(
            self.plane.store, BrokerConfig(**config), self.plane.now_ms, self.in_slices, limit
        )
        PeriodicCall(self.clock, "the check", self.held.check_interval, self.check).start()
        self.peer = FakePeer()
        self.woken: list[str] = []

    def in_slices(self, steps: Iterator[None]) -> Deferred[Any]:
        if self.slices is not None:
            self.slices.append(steps)
            return Deferred()
        for _ in steps:
            pass
        return succeed(None)

    def check(self) -> None:
        for _ in self.held.check():
            pass

    def hold(self, name: str, **given: object) -> bool:
        fields: dict[str, Any] = {
            "queue": (given.pop("topic", "T"), given.pop("queue_id", 0)),
            "offset": 5,
            "wanted": EVERY_MESSAGE,
            "timeout_ms": 15_000,
            "peer": self.peer,
            "resume": lambda: self.woken.append(name),
        }
        return self.held.hold(**fields | given)

    def arrive(self, topic: str = "T", queue_id: int = 0, end: int = 6, code: int = 0) -> None:
        self.held.arrived([arrived(topic, queue_id, end, code)])
        self.held.resume_woken()


def test_an_arrival_wakes_its_queue_only() -> None:
    holder = Holder()
    holder.hold("mine")
    holder.hold("other queue", queue_id=1)
    holder.hold("other topic", topic="U")
    holder.arrive()
    assert holder.woken == ["mine"]
    assert len(holder.held) == 2
    holder.arrive()
    assert holder.woken == ["mine"], "once"


def test_what_arrives_is_resumed_at_the_turns_end() -> None:
    holder = Holder()
    holder.hold("mine")
    holder.held.arrived([arrived()])
    assert holder.woken == []
    holder.held.resume_woken()
    assert holder.woken == ["mine"]


@pytest.mark.parametrize(
    ("offset", "codes", "woken"),
    [
        (3, None, True),
        (5, None, True),
        (7, None, True),
        (8, None, False),
        (5, {1}, False),
        (6, {1, 2}, True),
        (6, {3}, True),
        (7, {2}, False),
    ],
)
def test_a_batch_wakes_who_waits_for_one_of_its_messages(
    offset: int, codes: set[int] | None, woken: bool
) -> None:
    holder = Holder()
    match = None if codes is None else codes.__contains__
    holder.hold("mine", offset=offset, wanted=MessageFilter(match))
    batch = BatchEntry("T", 0, 5, 0, 300, 0, [0, 100, 200], [100] * 3, [4, 2, 3], (), 3)
    holder.held.arrived([batch])
    holder.held.resume_woken()
    assert holder.woken == ["mine"] * woken


def test_an_old_message_wakes_nobody() -> None:
    holder = Holder()
    holder.hold("mine", offset=6)
    holder.arrive(end=6)
    assert holder.woken == []


def test_the_tag_is_looked_at_first() -> None:
    holder = Holder()
    holder.hold("a", wanted=MessageFilter({97}.__contains__))
    holder.hold("all")
    holder.arrive(code=98)
    assert holder.woken == ["all"]
    holder.arrive(end=7, code=97)
    assert holder.woken == ["all", "a"]


def test_time_ends_a_hold_at_the_next_check() -> None:
    holder = Holder()
    holder.hold("short", timeout_ms=3_000)
    holder.hold("long", timeout_ms=12_000)
    holder.clock.advance(4.9)
    assert holder.woken == []
    holder.clock.advance(0.2)
    assert holder.woken == ["short"]
    holder.clock.pump([5, 5])
    assert holder.woken == ["short", "long"]


def test_the_check_finds_what_no_arrival_told() -> None:
    holder = Holder()
    holder.hold("mine", topic="Topic", offset=0, wanted=MessageFilter(set[int]().__contains__))
    holder.plane.send()
    holder.clock.advance(5.1)
    assert holder.woken == ["mine"]


def test_short_polling_has_its_own_time() -> None:
    holder = Holder(long_polling_enable=False, short_polling_time_mills=500)
    holder.hold("mine")
    holder.clock.pump([0.5, 0.1])
    assert holder.woken == ["mine"]


def test_short_polling_holds_no_longer_than_asked() -> None:
    holder = Holder(long_polling_enable=False, short_polling_time_mills=9 * 10**18)
    holder.hold("mine", timeout_ms=15_000)
    holder.clock.pump([5.1] * 4)
    assert holder.woken == ["mine"]


def test_a_lost_peer_takes_its_reads_along_and_listens_once() -> None:
    holder = Holder()
    for name in "abc":
        holder.hold(name)
    holder.hold("other", peer=FakePeer())
    assert len(holder.peer._lost) == 1
    holder.peer.lose()
    assert len(holder.held) == 1
    holder.arrive()
    assert holder.woken == ["other"]


def test_a_peer_that_is_lost_already_leaves_nothing_behind() -> None:
    holder = Holder()
    holder.hold("first", peer=FakePeer())
    holder.peer.lose()
    holder.hold("late")
    holder.hold("later")
    assert len(holder.held) == 1
    holder.clock.advance(20)
    assert holder.woken == ["first"]


def test_a_peer_lost_between_arrival_and_resumption_is_not_answered() -> None:
    holder = Holder()
    holder.hold("mine")
    holder.held.arrived([arrived()])
    holder.peer.lose()
    holder.held.resume_woken()
    assert holder.woken == []


def test_too_many_are_not_held() -> None:
    holder = Holder(limit=2)
    assert holder.hold("a") and holder.hold("b")
    assert not holder.hold("c")
    holder.arrive()
    assert holder.hold("d")


def test_a_peer_that_does_not_keep_up_is_resumed_later() -> None:
    holder = Holder()
    holder.hold("slow")
    holder.hold("other", peer=FakePeer())
    holder.peer.ready = False
    holder.arrive()
    assert holder.woken == ["other"]
    assert len(holder.held) == 0
    holder.peer.go_on()
    assert holder.woken == ["other", "slow"]


def test_a_resumption_that_fails_leaves_the_others() -> None:
    holder = Holder()

    def broken() -> None:
        raise ZeroDivisionError

    holder.hold("a", resume=broken)
    holder.hold("b")
    holder.arrive()
    assert holder.woken == ["b"]


def test_the_end_of_a_role_resumes_all() -> None:
    holder = Holder()
    holder.hold("a")
    holder.hold("b", queue_id=3)
    holder.held.resume_all()
    assert sorted(holder.woken) == ["a", "b"]
    assert len(holder.held) == 0


def test_a_read_of_any_queue_is_woken_by_each_of_them() -> None:
    holder = Holder()
    for queue_id in (0, 3):
        name = f"any, woken by {queue_id}"
        holder.hold(name, queue_id=ANY_QUEUE, offset=0, wanted=MessageFilter({97}.__contains__))
        holder.arrive("U", queue_id, code=97)
        holder.arrive("T", queue_id, code=98)
        assert name not in holder.woken
        holder.arrive("T", queue_id, end=1, code=97)
        assert holder.woken[-1] == name
    holder.hold("any, its time over", queue_id=ANY_QUEUE, offset=0)
    holder.clock.advance(14)
    assert len(holder.held) == 1
    holder.clock.advance(6)
    assert holder.woken[-1] == "any, its time over"
    assert len(holder.held) == 0


def test_many_queues_are_looked_at_bit_by_bit() -> None:
    holder = Holder(limit=5_000)
    for queue_id in range(2_000):
        assert holder.hold(f"read {queue_id}", queue_id=queue_id, offset=0)
    assert len(list(holder.held.check())) > 2 and not holder.woken
    look = holder.held.check()
    next(look)
    holder.held.resume_all()
    assert list(look) and len(holder.woken) == 2_000, "what is gone meanwhile is passed over"


def test_many_that_wait_for_one_queue_end_bit_by_bit() -> None:
    holder = Holder(limit=5_000)
    for number in range(2_000):
        assert holder.hold(f"read {number}", offset=0)
    holder.clock.rightNow += 100
    look = holder.held.check()
    next(look)
    assert 0 < len(holder.woken) < 1_000
    assert len(list(look)) > 1 and len(holder.woken) == 2_000


def run_of(properties: list[bytes]) -> Any:
    """A batch with these properties that arrives at offset 5."""

    class Run:
        topic, queue_id, queue_offset, size = "T", 0, 5, 100
        count, tags_codes = len(properties), [0] * len(properties)

        def properties_of(self, number: int) -> bytes:
            return properties[number]

    return Run()


def test_one_filter_is_asked_once_for_all_who_wait_with_it() -> None:
    holder = Holder(limit=100)
    asked = []

    def by_properties(properties: bytes) -> bool:
        asked.append(properties)
        return properties == b"b"

    for number in range(20):
        holder.hold(f"{number}", wanted=MessageFilter(None, by_properties), offset=5 + number % 2)
    holder.held.arrived([run_of([b"a", b"c"])])
    assert asked == [b"a", b"c", b"c"]
    holder.held.arrived([run_of([b"a", b"b"])])
    holder.held.resume_woken()
    assert len(holder.woken) == 20
    assert len(asked) == 6


def test_reads_with_slow_filters_are_resumed_one_by_one() -> None:
    holder = Holder(limit=100)
    holder.slices = []
    slow = MessageFilter(None, lambda properties: True, 5)
    for name in ("one", "two"):
        holder.hold(name, wanted=slow)
    holder.hold("quick")
    holder.arrive()
    assert holder.woken == ["quick"]
    holder.hold("three", wanted=slow)
    holder.arrive()
    (steps,) = holder.slices
    next(steps)
    assert holder.woken == ["quick", "one"]
    assert list(steps) == [None, None]
    assert holder.woken == ["quick", "one", "two", "three"]
    holder.hold("four", wanted=slow)
    holder.arrive()
    assert len(holder.slices) == 2


def test_the_end_of_a_role_resumes_slow_ones_too() -> None:
    holder = Holder()
    holder.slices = []
    holder.hold("slow", wanted=MessageFilter(None, lambda properties: True, 5))
    holder.held.resume_all()
    assert holder.woken == ["slow"]
