"""Check points of messages that are in another broker's log: its acting master lets them escape."""

from __future__ import annotations

from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.pop.remote_messages import RemoteMessages, Unreachable
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.pop import AckMsg, PopCheckPoint
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory, ok
from tests.support.pops import Popper, drain
from tests.support.sim.acting import ActingCluster

#: The revive topic of the simulated cluster.
REVIVE = "rmq_sys_REVIVE_LOG_C"
HIDDEN_MS = 5_000


def two_masters(
    *, topic_on_b: bool = True, **settings: Any
) -> tuple[ActingCluster, BrokerInMemory, BrokerInMemory]:
    """a with four messages of `Topic`, which b has too, without messages."""
    cluster = ActingCluster(settings=settings)
    a, b = cluster.start("a", 0), cluster.start("b", 0)
    for broker in (a, b) if topic_on_b else (a,):
        broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
        Popper(broker)
    for number in range(4):
        ok(a.send(b"%d" % number))
    cluster.run(5)
    return cluster, a, b


def escape(broker: BrokerInMemory, *, acknowledged: tuple[int, ...]) -> None:
    """Has what an acting master of stock's sends: the time of the check point is not yet due."""
    now = broker.now_ms()
    point = PopCheckPoint(
        broker_name="a",
        group="G",
        topic="Topic",
        offset_diffs=[0, 1, 2, 3],
        count=4,
        invisible_time=HIDDEN_MS,
        pop_time=now,
        revive_time=now + HIDDEN_MS,
    )
    due = {"TIMER_DELIVER_MS": str(point.revive_time - 1000)}
    sent = broker.send(
        encode_body(point), topic=REVIVE, queue_id=1, properties={"TAGS": "ck"} | due
    )
    ok(sent)
    for offset in acknowledged:
        ack = AckMsg(ack_offset=offset, broker_name="a", group="G", topic="Topic", pop_time=now)
        due = {"TIMER_DELIVER_MS": str(point.revive_time)}
        ok(
            broker.send(
                encode_body(ack), topic=REVIVE, queue_id=1, properties={"TAGS": "ack"} | due
            )
        )


def test_what_is_left_is_fetched_from_the_broker_that_has_it() -> None:
    cluster, _, b = two_masters()
    escape(b, acknowledged=(0, 2))
    cluster.run(4)
    assert drain(b) == []
    cluster.run(5)
    assert drain(b) == [b"1", b"3"]
    (message,) = b.consume("%RETRY%G_Topic")[:1]
    assert message.reconsume_times == 1


def test_a_broker_that_cannot_be_reached_is_asked_again() -> None:
    cluster, _, b = two_masters()
    cluster.kill("a", 0)
    escape(b, acknowledged=(0, 2))
    cluster.run(12)
    assert drain(b) == []
    cluster.start("a", 0)
    cluster.run(20)
    assert drain(b) == [b"1", b"3"]


class Answering:
    """In place of the other broker."""

    def __init__(self, code: int, least: int, following: int) -> None:
        self.answer = RemotingCommand(
            code=code,
            ext_fields={
                "suggestWhichBrokerId": "0",
                "minOffset": str(least),
                "maxOffset": "9",
                "nextBeginOffset": str(following),
            },
        )

    async def ask(self, *request: Any) -> RemotingCommand:
        return self.answer


@pytest.mark.parametrize(
    ("code", "least", "following", "is_gone"),
    [
        (ResponseCode.PULL_OFFSET_MOVED, 5, 5, True),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, 0, 4, True),
        # A slave that serves no reads, one that lags behind, and refusals.
        (ResponseCode.PULL_RETRY_IMMEDIATELY, 0, 3, False),
        (ResponseCode.PULL_OFFSET_MOVED, 0, 2, False),
        (ResponseCode.PULL_NOT_FOUND, 0, 3, False),
        (ResponseCode.TOPIC_NOT_EXIST, 5, 5, False),
    ],
)
def test_a_message_is_given_up_where_its_broker_has_only_later_ones(
    code: ResponseCode, least: int, following: int, is_gone: bool
) -> None:
    brokers = cast(BrokerClient, Answering(code, least, following))
    point = PopCheckPoint(broker_name="a", topic="Topic", group="G", count=1)
    fetched = Deferred.fromCoroutine(RemoteMessages(brokers).fetch(point, 3))
    found: list[Any] = []
    fetched.addCallbacks(found.append, lambda failure: found.append(failure.type))
    assert found == [None if is_gone else Unreachable]


def test_a_topic_that_is_missing_here_is_waited_for() -> None:
    """Nobody would look for the messages here, and stock drops them."""
    cluster, _, b = two_masters(topic_on_b=False)
    Popper(b)
    escape(b, acknowledged=(0, 1, 2))
    cluster.run(12)
    assert b.topics.get("%RETRY%G_Topic") is None
    b.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    cluster.run(15)
    assert drain(b) == [b"3"]


def test_they_are_not_counted_as_in_flight_here() -> None:
    cluster, _, b = two_masters(enable_pop_message_threshold=True, pop_inflight_message_threshold=1)
    ok(b.send(b"local"))
    escape(b, acknowledged=())
    cluster.run(2)
    assert drain(b) == [b"local"]
