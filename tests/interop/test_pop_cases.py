"""What applications that pop rely on, on our broker and on stock's: the cases that stock's own
tests of pop are about, with 5.3's client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.cluster import OURS, Cluster
from tests.support.java_client import JavaClients, Json, PopConsumer, Producer
from tests.support.processes import BrokerProcess
from tests.support.wait import wait_until

STOCK = "5.3.3"
QUEUES = 8
#: Longer than a message is hidden for and the broker needs to notice.
QUIET_MS = 12_000


@pytest.fixture(scope="module")
def mixed(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Our broker and stock's in one cluster."""
    home = tmp_path_factory.mktemp("pop-cases")
    settings = {"timerWheelEnable": "true", "popPollingSize": "64"}
    with Cluster.of(
        home, name_servers=[OURS], brokers=[servers, STOCK], settings=settings
    ) as started:
        yield started


@pytest.fixture
def java(jvms: dict[str, JavaClients]) -> JavaClients:
    return jvms[STOCK]


@pytest.fixture(scope="module")
def producer(jvms: dict[str, JavaClients], mixed: Cluster) -> Iterator[Producer]:
    # Large enough to be compressed.
    with jvms[STOCK].producer(mixed.namesrv, compressOver=4096) as made:
        yield made


class Case:
    """A topic on one broker, and a member of a group that pops it."""

    def __init__(
        self, java: JavaClients, mixed: Cluster, producer: Producer, broker: BrokerProcess, names
    ) -> None:
        self.java, self.namesrv, self.producer, self.broker = java, mixed.namesrv, producer, broker
        self.topic, self.group = names.topic, names.group
        mixed.create_topic(java, self.topic, queues=QUEUES, brokers=[broker])
        java.mqadmin(
            *("updateSubGroup", "-n", mixed.namesrv, "-b", broker.address, "-g", self.group)
        )
        self.popper: PopConsumer = java.popper(
            mixed.namesrv, self.group, broker.name, broker.address
        )

    def send(self, *bodies: str, queue: int | None = None) -> None:
        self.producer.send(*({"topic": self.topic, "body": body} for body in bodies), queue=queue)

    def pop(self, **options: Any) -> list[Json]:
        messages: list[Json] = self.popper.pop(self.topic, **options)["messages"]
        return messages

    def pop_some(self, count: int, **options: Any) -> list[Json]:
        """Pops until there are so many."""
        popped: list[Json] = []

        def enough() -> bool:
            popped.extend(self.pop(poll=2_000, **options))
            return len(popped) >= count

        wait_until(enough, f"{count} messages")
        assert len(popped) == count
        return popped

    def assert_quiet(self, **options: Any) -> None:
        """Nothing comes any more, also nothing again."""
        assert self.pop(poll=QUIET_MS, **options) == []


@pytest.fixture(params=[OURS, pytest.param(STOCK, marks=pytest.mark.stock_only)])
def case(
    request: pytest.FixtureRequest,
    java: JavaClients,
    mixed: Cluster,
    producer: Producer,
    names,
) -> Iterator[Case]:
    broker = mixed.brokers[[OURS, STOCK].index(request.param)]
    made = Case(java, mixed, producer, broker, names)
    with made.popper:
        yield made


def bodies(messages: list[Json]) -> list[str]:
    return [message["body"] for message in messages]


def test_many_are_acknowledged_with_one_request(case: Case) -> None:
    sent = [f"m{number:02}" for number in range(40)]
    case.send(*sent)
    popped = case.pop_some(40, invisible=30_000)
    assert sorted(bodies(popped)) == sent
    assert case.popper.ack_all(case.topic, popped)["status"] == "OK"
    case.assert_quiet()


def test_some_of_a_pop_are_acknowledged_with_one_request(case: Case) -> None:
    case.send(*(f"m{number}" for number in range(6)), queue=3)
    popped = case.pop_some(6, invisible=10_000)
    assert case.popper.ack_all(case.topic, popped[::2])["status"] == "OK"
    again = case.pop_some(3)
    assert sorted(bodies(again)) == ["m1", "m3", "m5"]
    assert case.popper.ack_all(case.topic, again)["status"] == "OK"
    case.assert_quiet()


def in_background(work: Callable[[], bool]) -> tuple[threading.Thread, list[bool]]:
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    return thread, results


def test_who_waits_is_notified(case: Case) -> None:
    assert not case.popper.notified(case.topic)
    assert not case.popper.notified(case.topic, poll=1_000)
    waiting = [
        in_background(lambda: case.popper.notified(case.topic, poll=60_000)) for _ in range(2)
    ]
    case.send("wanted")
    # One message wakes one of those who wait at least; another message the other one.
    case.send("wanted too")
    for thread, results in waiting:
        thread.join(90)
        assert results == [True]
    assert case.popper.notified(case.topic)
    for message in case.pop_some(2):
        case.popper.ack(message)
    assert not case.popper.notified(case.topic)


def test_who_pops_in_order_is_notified(case: Case) -> None:
    case.send("first", queue=0)
    here = {"orderly": True, "queue": 0}
    assert case.popper.notified(case.topic, attempt="one", **here)
    (popped,) = case.pop_some(1, attempt="one", invisible=60_000, **here)
    # What that one has it may pop again, if the answer was lost; others wait.
    assert case.popper.notified(case.topic, attempt="one", **here)
    assert not case.popper.notified(case.topic, attempt="other", **here)
    assert case.popper.ack(popped)["status"] == "OK"


def test_a_large_message_comes_again_as_it_was(case: Case) -> None:
    body = "compressible " * 200_000
    sent = {"topic": case.topic, "body": body}
    case.producer.send(sent)
    (first,) = case.pop_some(1, max=1, invisible=5_000)
    (again,) = case.pop_some(1, max=1, invisible=60_000)
    assert first["size"] == again["size"] == len(body)
    assert first["crc"] == again["crc"]
    assert again["reconsumeTimes"] == 1
    assert case.popper.ack(again)["status"] == "OK"
    case.assert_quiet()


def test_a_message_is_passed_on_to_another_broker(
    case: Case, java: JavaClients, mixed: Cluster, producer: Producer, names
) -> None:
    (other_broker,) = [broker for broker in mixed.brokers if broker is not case.broker]
    other = Case(java, mixed, producer, other_broker, names)
    case.send("passed on")
    (first,) = case.pop_some(1)
    assert first["properties"]["POP_CK"].split(" ")[5] == case.broker.name
    passed_on = {
        "topic": other.topic,
        "body": first["body"],
        "rawProperties": first["properties"],
    }
    producer.send(passed_on)
    with other.popper:
        (second,) = other.pop_some(1)
        assert second["msgId"] == first["msgId"]
        assert second["properties"]["POP_CK"].split(" ")[5] == other_broker.name
        assert other.popper.ack(second)["status"] == "OK"
    assert case.popper.ack(first)["status"] == "OK"
    case.assert_quiet()


def test_in_order_what_is_not_acknowledged_comes_again_first(case: Case) -> None:
    here = {"orderly": True, "queue": 0}
    case.send(*(f"m{number}" for number in range(5)), queue=0)
    assert bodies(case.pop_some(2, max=2, invisible=4_000, **here)) == ["m0", "m1"]
    again = case.pop_some(2, max=2, invisible=60_000, **here)
    assert bodies(again) == ["m0", "m1"]
    for message in again:
        assert case.popper.ack(message)["status"] == "OK"
    rest = case.pop_some(3, invisible=60_000, **here)
    assert bodies(rest) == ["m2", "m3", "m4"]
    assert case.popper.ack_all(case.topic, rest)["status"] == "OK"


def test_in_order_some_are_acknowledged_with_one_request(case: Case) -> None:
    here = {"orderly": True, "queue": 0, "max": 4}
    case.send(*(f"m{number}" for number in range(6)), queue=0)
    popped = case.pop_some(4, attempt="one", invisible=60_000, **here)
    assert bodies(popped) == ["m0", "m1", "m2", "m3"]
    assert case.popper.ack_all(case.topic, [popped[0], popped[1], popped[3]])["status"] == "OK"
    # Others wait for the one that is not; who popped it has it again, and what is behind it.
    assert case.pop(attempt="other", invisible=5_000, **here) == []
    rest = ["m2", "m3", "m4", "m5"]
    assert bodies(case.pop(attempt="one", poll=2_000, invisible=6_000, **here)) == rest
    assert case.pop(attempt="other", invisible=5_000, **here) == []
    again = case.pop_some(4, attempt="other", invisible=60_000, **here)
    assert bodies(again) == rest
    assert case.popper.ack_all(case.topic, again[:1])["status"] == "OK"
    assert case.pop(attempt="one", **here) == []
    assert case.popper.ack_all(case.topic, again[1:])["status"] == "OK"
    case.send("m6", queue=0)
    (last,) = case.pop_some(1, attempt="one", invisible=60_000, **here)
    assert last["body"] == "m6"
    assert case.popper.ack_all(case.topic, [last])["status"] == "OK"


def test_in_order_one_in_the_middle_is_hidden(case: Case) -> None:
    here = {"orderly": True, "queue": 0}
    case.send(*(f"m{number}" for number in range(4)), queue=0)
    first, second, third = case.pop_some(3, max=3, invisible=30_000, **here)
    assert case.popper.ack(first)["status"] == "OK"
    case.popper.hide(second, 3_000)
    assert case.popper.ack(third)["status"] == "OK"
    seen: list[str] = []
    while len(seen) < 2:
        for message in case.pop(max=3, poll=2_000, invisible=30_000, **here):
            seen.append(message["body"])
            assert case.popper.ack(message)["status"] == "OK"
    # The hidden one comes before those behind it, which are not given twice.
    assert seen[0] == "m1"
    while seen[-1] != "m3":
        for message in case.pop(max=3, poll=2_000, invisible=30_000, **here):
            seen.append(message["body"])
            assert case.popper.ack(message)["status"] == "OK"
    assert seen in (["m1", "m3"], ["m1", "m2", "m3"])


def test_in_order_the_same_attempt_gets_the_same(case: Case) -> None:
    here = {"orderly": True, "queue": 0, "max": 3}
    case.send("only", queue=0)
    assert bodies(case.pop_some(1, attempt="one", invisible=6_000, **here)) == ["only"]
    assert bodies(case.pop(attempt="one", poll=2_000, invisible=6_000, **here)) == ["only"]
    assert case.pop(attempt="other", invisible=6_000, **here) == []
    (last,) = case.pop_some(1, attempt="other", invisible=60_000, **here)
    assert case.popper.ack(last)["status"] == "OK"


def test_a_group_that_pops_is_reset(case: Case) -> None:
    sent = sorted(f"m{number}" for number in range(8))
    case.send(*sent)
    popped = case.pop_some(8)
    assert case.popper.ack_all(case.topic, popped)["status"] == "OK"
    assert case.pop() == []
    case.java.mqadmin(
        *("resetOffsetByTime", "-n", case.namesrv, "-g", case.group, "-t", case.topic, "-s", "0")
    )
    again = case.pop_some(8)
    assert sorted(bodies(again)) == sent
    assert case.popper.ack_all(case.topic, again)["status"] == "OK"
    case.send("new")
    assert bodies(case.pop_some(1)) == ["new"]
