"""What one message wakes is resumed a little in each turn where it is much or slow."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from rocketmq_tw.broker.pop.held_pops import HeldPops, HoldResult
from rocketmq_tw.broker.reading.held_requests import (
    ANY_QUEUE,
    RESUMED_AT_ONCE,
    HeldRequest,
    ResumeQueue,
)
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.store.dispatch_entries import DispatchEntry
from rocketmq_tw.store.interface import EVERY_MESSAGE, MessageFilter
from tests.support.network import FakePeer

SLOW = MessageFilter(None, lambda properties: True, 5)


class Slices:
    """Keeps the steps that are to be gone through."""

    def __init__(self) -> None:
        self.waiting: list[Iterator[None]] = []

    def __call__(self, steps: Iterator[None]) -> Deferred[Any]:
        self.waiting.append(steps)
        return succeed(None)


class Woken:
    def __init__(self) -> None:
        self.slices = Slices()
        self.queue = ResumeQueue(self.slices)
        self.resumed: list[str] = []
        self.peer = FakePeer()

    def add(self, name: str, wanted: MessageFilter = EVERY_MESSAGE) -> None:
        self.queue.add([HeldRequest("T", wanted, 0, self.peer, lambda: self.resumed.append(name))])


def test_many_quick_ones_let_others_in_between() -> None:
    woken = Woken()
    for number in range(RESUMED_AT_ONCE + 3):
        woken.add(f"{number}")
    assert woken.queue and not woken.resumed
    woken.queue.resume()
    assert len(woken.resumed) == RESUMED_AT_ONCE and not woken.queue
    (steps,) = woken.slices.waiting
    next(steps)
    assert len(woken.resumed) == RESUMED_AT_ONCE + 1
    woken.add("later")
    woken.queue.resume()
    assert woken.resumed[-1] == "later" and len(woken.slices.waiting) == 1
    assert len(list(steps)) == 2 and len(woken.resumed) == RESUMED_AT_ONCE + 4


def test_the_end_of_a_role_resumes_all() -> None:
    woken = Woken()
    woken.add("slow", SLOW)
    woken.queue.resume()
    woken.add("new")
    woken.queue.resume_all()
    assert woken.resumed == ["slow", "new"]
    (steps,) = woken.slices.waiting
    assert list(steps) == []


def fail() -> None:
    raise ValueError("once")


def test_one_that_fails_or_has_lost_its_peer_keeps_back_no_other() -> None:
    woken = Woken()
    gone = FakePeer()
    gone.lose()
    woken.queue.add(
        [HeldRequest("T", EVERY_MESSAGE, 0, gone, lambda: woken.resumed.append("gone"))]
    )
    woken.queue.add([HeldRequest("T", EVERY_MESSAGE, 0, woken.peer, fail)])
    woken.add("last")
    woken.queue.resume()
    assert woken.resumed == ["last"]


#: One message that arrived.
ONE = DispatchEntry(
    topic="T",
    queue_id=0,
    queue_offset=0,
    physical_offset=0,
    size=1,
    tags_code=0,
    store_timestamp=0,
    in_queue=True,
    keys=(),
)


class Pops:
    def __init__(self) -> None:
        self.clock, self.slices = Clock(), Slices()
        self.pops = HeldPops(BrokerConfig(), self.clock, self._now_ms, self._now_ms, self.slices)
        self.peer = FakePeer()
        self.resumed: list[str] = []

    def _now_ms(self) -> int:
        return round(self.clock.seconds() * 1000)

    def hold(self, name: str, wanted: MessageFilter, *, group: str = "G") -> None:
        held = self.pops.hold(
            ("T", group, ANY_QUEUE),
            5_000,
            wanted,
            self.peer,
            lambda: self.resumed.append(name),
        )
        assert held is HoldResult.HELD


def test_pops_with_slow_filters_are_resumed_one_by_one() -> None:
    pops = Pops()
    for number in range(3):
        pops.hold(f"slow {number}", SLOW, group=f"G{number}")
    pops.hold("quick", EVERY_MESSAGE)
    pops.pops.arrived([ONE])
    pops.pops.resume_woken()
    assert pops.resumed == ["quick"]
    (steps,) = pops.slices.waiting
    next(steps)
    assert pops.resumed == ["quick", "slow 0"]
    pops.pops.resume_all()
    assert pops.resumed == ["quick", "slow 0", "slow 1", "slow 2"]


def test_a_slow_pop_that_is_lost_before_its_turn_wakes_the_next() -> None:
    pops = Pops()
    lost = pops.peer
    pops.hold("lost", SLOW)
    pops.peer = FakePeer()
    pops.hold("next", SLOW)
    pops.pops.arrived([ONE])
    pops.pops.resume_woken()
    lost.lose()
    pops.clock.advance(0)
    (steps,) = pops.slices.waiting
    assert list(steps) is not None and pops.resumed == ["next"]


def test_pops_with_one_filter_ask_it_once_about_what_arrives() -> None:
    pops = Pops()
    asked: list[bytes] = []

    def by_properties(properties: bytes) -> bool:
        asked.append(properties)
        return False

    wanted = MessageFilter(None, by_properties)
    for number in range(100):
        pops.hold(f"{number}", wanted)
    pops.pops.arrived([ONE])
    assert len(asked) == 1 and not pops.resumed


@pytest.mark.parametrize("held", [20, 2_000])
def test_pops_whose_time_is_up_together_end_in_several_turns(held: int) -> None:
    pops = Pops()
    for number in range(held):
        pops.hold(f"{number}", EVERY_MESSAGE, group=f"G{number % 100}")
    looks = 0
    look = pops.pops._alarm._call

    def watched() -> None:
        nonlocal looks
        before = len(pops.pops)
        look()
        looks += 1
        assert before - len(pops.pops) <= 500

    pops.pops._alarm._call = watched
    pops.clock.pump([1.0] * 6)
    for steps in pops.slices.waiting:
        assert list(steps) is not None
    assert len(pops.resumed) == held and not len(pops.pops)


def test_deadlines_of_pops_that_were_woken_are_forgotten() -> None:
    pops = Pops()
    pops.hold("first", EVERY_MESSAGE, group="another")
    for number in range(5_000):
        pops.hold(f"{number}", EVERY_MESSAGE)
        pops.pops.wake(("T", "G", ANY_QUEUE))
        pops.pops.resume_woken()
    assert len(pops.pops) == 1 and len(pops.pops._deadlines) < 1_010
    pops.clock.pump([1.0] * 6)
    assert pops.resumed[-1] == "first" and len(pops.resumed) == 5_001


def test_equal_filters_by_tags_are_asked_once_about_many_messages() -> None:
    """20,000 held pops of a group held the reactor for 0.4 s at each batch of 1,000 messages."""
    asked: list[int] = []

    def by_tag(code: int) -> bool:
        asked.append(code)
        return False

    run = SimpleNamespace(queue_offset=0, count=100, tags_codes=[7] * 100)
    answers, peer = {}, FakePeer()
    for _ in range(50):
        held = HeldRequest("T", MessageFilter(by_tag), 0, peer, lambda: None)
        assert not held.may_want(run, answers)
    assert len(asked) == 100
