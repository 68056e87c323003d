"""Acknowledgements of one reactor turn, and what the revive topic has of them."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock

from rocketmq_tw.broker.pop.check_points import ReviveLog, acknowledged_offsets
from rocketmq_tw.broker.pop.gathered_acks import MOST_MESSAGES, GatheredAcks
from rocketmq_tw.broker.pop.revive_counts import ReviveCounts
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.writing.sink import PutResult
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.runtime.turns import PlainTurns
from rocketmq_tw.store.interface import Appended
from rocketmq_tw.wire.bodies.pop import AckMsg
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from tests.support.broker import BrokerInMemory, ok
from tests.support.pops import REVIVE, Popper, pass_time


class Sink:
    """Keeps what is put until the test says how that ended."""

    def __init__(self) -> None:
        self.put_messages: list[tuple[StoredMessage, Deferred[PutResult]]] = []

    def put(self, message: StoredMessage, *, wait: bool = False) -> Deferred[PutResult]:
        assert wait
        ended: Deferred[PutResult] = Deferred()
        self.put_messages.append((message, ended))
        return ended

    def put_last(self, compose: Any) -> Deferred[Any]:
        return fail(RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "no log of its own"))

    def take(self) -> list[tuple[StoredMessage, Deferred[PutResult]]]:
        taken, self.put_messages = self.put_messages, []
        return taken


class World:
    """Gathers acknowledgements of check points of one queue."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.sink = Sink()
        self.heard: list[tuple[AckMsg, int]] = []
        log = ReviveLog(
            "revive",
            self.sink,  # type: ignore[arg-type]
            lambda: 1000,
            lambda: ("127.0.0.1", 10911),
            ReviveCounts(is_monitored=False),
        )
        log.acknowledged.add(lambda ack, queue: self.heard.append((ack, queue)))
        self.gathered = GatheredAcks(log, PlainTurns(self.clock))

    def ack(self, offset: int, *, start: int = 0, revive_queue: int = 0, **fields: Any) -> list:
        """The list gets how it ended."""
        ack = AckMsg(
            ack_offset=offset,
            broker_name=fields.get("broker_name", "broker-a"),
            group=fields.get("group", "G"),
            pop_time=fields.get("pop_time", 900),
            queue_id=0,
            start_offset=start,
            topic="Topic",
        )
        ended: list[Any] = []
        self.gathered.put(ack, revive_queue).addBoth(ended.append)
        return ended

    def turn(self) -> list[tuple[str, int, list[int]]]:
        """What is put by the turn's end: tag, revive queue and offsets."""
        self.heard.clear()
        self.clock.advance(0)
        return [
            (
                message.properties.split(b"\x02")[0].decode().partition("\x01")[2],
                message.queue_id,
                acknowledged_offsets(ack),
            )
            for (message, _), (ack, _) in zip(self.sink.put_messages, self.heard, strict=True)
        ]


def result(code: ResponseCode = ResponseCode.SUCCESS) -> PutResult:
    return PutResult(code, Appended(0, 100, 0, 0, ""))


def test_those_of_one_check_point_are_one_record() -> None:
    world = World()
    ended = [world.ack(offset) for offset in (2, 0, 1)]
    assert not world.sink.put_messages
    assert world.turn() == [("bAck", 0, [2, 0, 1])]
    assert ended == [[], [], []]
    ((_, put),) = world.sink.take()
    put.callback(result())
    assert ended == [[result()]] * 3


def test_one_alone_is_stored_as_stock_stores_it() -> None:
    world = World()
    world.ack(7, revive_queue=3)
    assert world.turn() == [("ack", 3, [7])]
    # The next turn begins anew.
    world.sink.take()
    world.ack(8, revive_queue=3)
    assert world.turn() == [("ack", 3, [8])]


def test_other_check_points_and_revive_queues_have_records_of_their_own() -> None:
    world = World()
    world.ack(1)
    world.ack(2, start=2)
    world.ack(3, revive_queue=1)
    world.ack(4, group="H")
    world.ack(5, pop_time=901)
    world.ack(6, broker_name="broker-b")
    # Such a check point is taken for one of the broker that stores it, wherever that is.
    world.ack(8, broker_name="")
    world.ack(7)
    assert world.turn() == [
        ("bAck", 0, [1, 7]),
        ("ack", 0, [2]),
        ("ack", 1, [3]),
        ("ack", 0, [4]),
        ("ack", 0, [5]),
        ("ack", 0, [6]),
        ("ack", 0, [8]),
    ]


def test_a_record_has_so_many_messages_at_most() -> None:
    world = World()
    for offset in range(2 * MOST_MESSAGES + 1):
        world.ack(offset)
    assert len(world.sink.put_messages) == 2
    world.heard.clear()
    world.sink.take()
    assert world.turn() == [("ack", 0, [2 * MOST_MESSAGES])]


def test_a_refusal_is_told_to_each_and_to_no_other() -> None:
    world = World()
    refused = [world.ack(1), world.ack(2)]
    stored = world.ack(3, start=3)
    world.turn()
    (_, first), (_, second) = world.sink.take()
    first.errback(RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "a slave"))
    second.callback(result())
    for (failure,) in refused:
        assert failure.check(RequestError) and failure.value.remark == "a slave"
    assert stored == [result()]


def popped(broker: BrokerInMemory) -> tuple[Popper, list[Any]]:
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    for n in range(4):
        ok(broker.send(b"%d" % n))
    popper = Popper(broker)
    return popper, popper.pop()


def acknowledged_in_one_turn(popper: Popper, messages: list[Any]) -> list[Any]:
    """The answers, or why there are none."""
    ended: list[Any] = []
    for message in messages:
        request = popper.ack_request(message)
        popper.broker.handlers[request.code](request, popper.peer).addBoth(ended.append)  # type: ignore[union-attr]
    return ended


def test_what_is_acknowledged_in_one_turn_stays_away_and_the_rest_comes_back() -> None:
    broker = BrokerInMemory()
    popper, messages = popped(broker)
    answers = acknowledged_in_one_turn(popper, messages[:3])
    assert answers == []
    broker.clock.advance(0)
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 3
    tags = [
        message.properties["TAGS"]
        for queue_id in range(8)
        for message in broker.consume(REVIVE, queue_id)
    ]
    assert tags == ["ck", "bAck"]
    pass_time(broker, 70)
    assert popper.bodies() == [b"3"]


def test_they_are_written_with_what_else_came_in_the_turn() -> None:
    """With SYNC_FLUSH a second write would wait for a second flush."""
    broker = BrokerInMemory()
    popper, messages = popped(broker)
    writes: list[int] = []
    broker.commit.on_written(lambda: writes.append(broker.store.written_offset))
    send = broker.send_request(b"another")
    broker.handlers[send.code](send, popper.peer)
    answers = acknowledged_in_one_turn(popper, messages)
    broker.clock.advance(0)
    assert len(answers) == 4 and len(writes) == 1


def test_a_role_that_ends_in_the_turn_refuses_all() -> None:
    broker = BrokerInMemory()
    popper, messages = popped(broker)
    answers = acknowledged_in_one_turn(popper, messages)
    broker.become(RoleState(Role.SLAVE, broker_id=1))
    broker.clock.advance(0)
    assert [failure.value.code for failure in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 4
