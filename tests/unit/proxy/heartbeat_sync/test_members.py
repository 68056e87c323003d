"""The consumers that other proxies tell of."""

from __future__ import annotations

from time import process_time

import pytest

from rocketmq_tw.proxy.heartbeat_sync import members as module
from rocketmq_tw.proxy.heartbeat_sync.members import Members
from rocketmq_tw.proxy.heartbeat_sync.records import (
    REGISTER,
    UNREGISTER,
    ClientChannel,
    ConsumerHeartbeat,
)
from rocketmq_tw.runtime.clock import CLOCK_SKEW_MS


class Book:
    """Members at a time, and the groups that changed."""

    def __init__(self) -> None:
        self.members = Members(lambda: 120.0)
        self.changed: list[str] = []
        self.members.changed.add(self.changed.append)
        self.now = 0.0
        self._told = 0

    def tell(
        self,
        client_id: str,
        kind: str = REGISTER,
        *,
        group: str = "G",
        told: int | None = None,
        ahead: int = 0,
        address: str = "10.0.0.9:1",
        size: int = 100,
    ) -> None:
        """`told` is the time by the clock of its proxy, which is so many ms `ahead`."""
        self._told += 1
        told = self._told if told is None else told
        record = ConsumerHeartbeat(
            heartbeat_type=kind,
            client_id=client_id,
            group=group,
            local_proxy_id="p",
            last_update_timestamp=told,
        )
        channel = ClientChannel(remote_proxy_ip="10.0.0.5", remote_address=address)
        self.members.take(record, channel, size, self.now, told - ahead)

    def ids(self, group: str = "G") -> list[str]:
        return [member.connection.client_id or "" for member in self.members.of(group)]

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for _ in self.members.expire(self.now):
            pass


@pytest.fixture
def book() -> Book:
    return Book()


def test_members_come_and_go(book: Book) -> None:
    book.tell("a")
    book.tell("b")
    book.tell("a")
    assert (book.ids(), book.ids("H")) == (["a", "b"], [])
    book.tell("a", UNREGISTER)
    assert book.ids() == ["b"]
    assert book.changed == ["G", "G", "G"]


@pytest.mark.parametrize("wrong", [3_600_000, (1 << 63) - 1])
def test_a_clock_that_was_set_back_hides_nobody(book: Book, wrong: int) -> None:
    """Nor does whoever writes into the topic, once and for all."""
    now = 1_790_000_000_000
    book.tell("a", told=now)
    book.tell("a", UNREGISTER, told=now + wrong, ahead=wrong)
    assert book.ids() == []
    book.tell("a", told=now + 1000)
    assert book.ids() == ["a"]
    # A message of before that, by another queue.
    book.tell("a", UNREGISTER, told=now - 60_000)
    assert book.ids() == ["a"]
    book.pass_time(119)
    book.tell("a", told=now + 60_000)
    book.pass_time(119)
    assert book.ids() == ["a"]


def test_a_clock_that_is_ahead_has_its_own_order(book: Book) -> None:
    now, ahead = 1_790_000_000_000, 60_000
    book.tell("a", UNREGISTER, told=now + ahead + 2, ahead=ahead)
    book.tell("a", told=now + ahead + 1, ahead=ahead)
    assert book.ids() == []
    book.tell("a", told=now + 3)
    assert book.ids() == ["a"]


def test_clocks_differ_a_little(book: Book) -> None:
    now = 1_790_000_000_000
    book.tell("a", UNREGISTER, told=now + CLOCK_SKEW_MS, ahead=CLOCK_SKEW_MS)
    book.tell("a", told=now + 1)
    assert book.ids() == []
    book.tell("a", told=now + CLOCK_SKEW_MS + 1)
    assert book.ids() == ["a"]


def test_a_client_that_moved_to_another_connection_stands_once(book: Book) -> None:
    book.tell("a", address="10.0.0.9:1")
    book.tell("a", address="10.0.0.9:2")
    assert book.ids() == ["a"]
    book.tell("a", UNREGISTER, address="10.0.0.9:1")
    assert book.ids() == ["a"]


def test_the_silent_are_gone(book: Book) -> None:
    book.tell("a")
    book.pass_time(60)
    book.tell("b")
    book.pass_time(60)
    assert book.ids() == ["b"]
    book.pass_time(60)
    assert (book.ids(), len(book.members)) == ([], 0)
    assert book.members.view("G") is None
    assert book.changed == ["G"] * 4


def test_an_older_message_that_comes_late_changes_nothing(book: Book) -> None:
    book.tell("a", UNREGISTER, told=2)
    book.tell("a", told=1)
    assert book.ids() == []
    book.tell("a", told=3)
    assert book.ids() == ["a"]


def test_room_is_bounded(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MEMBERS", 5)
    monkeypatch.setattr(module, "MAX_IN_GROUP", 3)
    for number in range(10):
        book.tell(f"c{number}")
    assert book.ids() == ["c0", "c1", "c2"]
    for number in range(10):
        book.tell("x", group=f"H{number}")
    assert len(book.members) == 5
    # Who is known stays, and there is room again when the others are silent.
    book.pass_time(60)
    book.tell("c0")
    book.pass_time(60)
    book.tell("late")
    assert book.ids() == ["c0", "late"]


def test_bytes_of_subscriptions_are_bounded(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VIEW_BYTES", 250)
    for group in ("A", "B", "C"):
        book.tell("c", group=group)
    book.tell("c", group="A", size=140)
    seen = [group for group in ("A", "B", "C") if book.members.view(group) is not None]
    assert seen == ["A", "B"]
    assert book.ids("C") == ["c"]
    book.pass_time(120)
    book.tell("c", group="C", size=250)
    assert book.members.view("C") is not None


def test_many_silent_members_are_forgotten_in_time_that_grows_with_their_number() -> None:
    def seconds(count: int) -> float:
        book = Book()
        for number in range(count):
            book.tell(f"c{number}", group=f"g{number % 100}")
        began = process_time()
        book.pass_time(121)
        assert len(book.members) == 0
        return process_time() - began

    # Eight times as many took sixty times as long.
    assert seconds(40_000) < 24 * min(seconds(5_000) for _ in range(3))
