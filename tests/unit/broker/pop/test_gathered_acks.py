"""Acknowledgements of one reactor turn, and what the revive topic has of them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from rocketmq_tw.broker.pop import ack_requests
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
from rocketmq_tw.wire.command import ONEWAY_FLAG, RemotingCommand
from rocketmq_tw.wire.errors import HeaderError, RequestError
from tests.support.broker import BrokerInMemory, ok
from tests.support.network import FakePeer
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

    def at_turn_end(self, compose: Any) -> Deferred[Any]:
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
        """The list gets the answer."""
        ack = AckMsg(
            ack_offset=offset,
            broker_name=fields.get("broker_name", "broker-a"),
            group=fields.get("group", "G"),
            pop_time=fields.get("pop_time", 900),
            queue_id=0,
            start_offset=start,
            topic="Topic",
        )
        peer = fields.get("peer") or FakePeer()
        self.gathered.put(ack, revive_queue, RemotingCommand.request(0), peer)
        return peer.replies

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


def codes(answers: Sequence[RemotingCommand]) -> list[int]:
    return [answer.code for answer in answers]


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
    assert [codes(answers) for answers in ended] == [[ResponseCode.SUCCESS]] * 3


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
    for (answer,) in refused:
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE and answer.remark == "a slave"
    assert codes(stored) == [ResponseCode.SUCCESS]


def test_what_is_not_stored_and_what_fails_is_told() -> None:
    world = World()
    not_stored, failed = world.ack(1), world.ack(2, start=2)
    world.turn()
    (_, first), (_, second) = world.sink.take()
    first.callback(result(ResponseCode.SYSTEM_BUSY))
    with capturedLogs() as logs:
        second.errback(OSError("broken"))
    (answer,) = not_stored
    assert answer.code == ResponseCode.SYSTEM_ERROR and "SYSTEM_BUSY" in (answer.remark or "")
    assert codes(failed) == [ResponseCode.SYSTEM_ERROR]
    assert [event["log_failure"].value.args for event in logs] == [("broken",)]


class LostPeer(FakePeer):
    def reply(self, response: RemotingCommand) -> None:
        raise OSError("this peer cannot be answered")


def test_one_that_cannot_be_answered_keeps_no_other_from_its_answer() -> None:
    world = World()
    world.ack(1, peer=LostPeer())
    answered = world.ack(2)
    world.turn()
    ((_, put),) = world.sink.take()
    with capturedLogs() as logs:
        put.callback(result())
    assert codes(answered) == [ResponseCode.SUCCESS] and len(logs) == 1


def popped(broker: BrokerInMemory) -> tuple[Popper, list[Any]]:
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    for n in range(4):
        ok(broker.send(b"%d" % n))
    popper = Popper(broker)
    return popper, popper.pop()


def acknowledged_in_one_turn(popper: Popper, messages: list[Any]) -> list[RemotingCommand]:
    """The list gets the answers."""
    popper.peer.replies.clear()
    for message in messages:
        request = popper.ack_request(message)
        assert popper.broker.handlers[request.code](request, popper.peer) is None
    return popper.peer.replies


def test_what_is_acknowledged_in_one_turn_stays_away_and_the_rest_comes_back() -> None:
    broker = BrokerInMemory()
    popper, messages = popped(broker)
    answers = acknowledged_in_one_turn(popper, messages[:3])
    assert answers == []
    broker.clock.advance(0)
    assert codes(answers) == [ResponseCode.SUCCESS] * 3
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
    assert codes(answers) == [ResponseCode.SUCCESS] * 5 and len(writes) == 1


def test_a_role_that_ends_in_the_turn_refuses_all() -> None:
    broker = BrokerInMemory()
    popper, messages = popped(broker)
    answers = acknowledged_in_one_turn(popper, messages)
    broker.become(RoleState(Role.SLAVE, broker_id=1))
    broker.clock.advance(0)
    assert codes(answers) == [ResponseCode.SERVICE_NOT_AVAILABLE] * 4


#: What stands in the header of an acknowledgement instead; in an extra info `{own}` is the one that
#: the message came with, and `{offset}` the header's offset.
_OFFSETS = ["0", "3", "4", "5", "-1", "+1", "01", "1 ", "\u0661", "1" * 5000]
_INFOS = ["{own}", "{own} 17", "{own} {offset}", "x", "0 1 2 0 0 {offset}", "0 1 2 0 0 b {offset}"]
_FIELDS: list[tuple[str, list[str | None]]] = [
    ("offset", [*_OFFSETS, None]),
    ("extraInfo", [*_INFOS, None]),
    ("consumerGroup", ["Other", ""]),
    ("topic", ["Topic2", "nowhere"]),
    ("queueId", ["00", "1", "x"]),
    ("lo", ["false", "maybe"]),
]
_ONE_FIELD = st.sampled_from([{name: text} for name, texts in _FIELDS for text in texts])
#: Most are like others, or differ from them in one thing.
_HEADERS = st.just({}) | _ONE_FIELD | st.builds(operator.or_, _ONE_FIELD, _ONE_FIELD)
_REQUESTS = st.lists(st.tuples(st.integers(0, 3), _HEADERS, st.booleans()), min_size=2, max_size=12)


def _answers(requests: Sequence[tuple[int, dict[str, str | None], bool]]) -> list[Any]:
    """What is answered, and stored, where these come in one turn: the number of a message that was
    popped, what stands otherwise in its header, and whether the answer is not wanted."""
    broker = BrokerInMemory()
    broker.add_topic("Topic2", read_queue_nums=1, write_queue_nums=1)
    popper, messages = popped(broker)
    peer = FakePeer()
    for number, (message, changes, oneway) in enumerate(requests):
        request = popper.ack_request(messages[message])
        request.opaque = number
        if oneway:
            request.flag |= ONEWAY_FLAG
        fields = request.ext_fields
        own, offset = fields["extraInfo"], changes.get("offset") or fields["offset"]
        front = own.rpartition(" ")[0]
        for name, text in ({"extraInfo": front + " {offset}"} | changes).items():
            if text is None:
                del fields[name]
            else:
                fields[name] = text.replace("{own}", own).replace("{offset}", offset)
        try:
            answer = broker.handlers[request.code](request, peer)
        except (RequestError, HeaderError) as error:
            answer = request.response(ResponseCode.SYSTEM_ERROR, str(error))
        if answer is not None:
            peer.reply(answer)
    broker.clock.advance(0)
    stored = [
        (queue_id, message.properties["TAGS"], message.body)
        for queue_id in range(8)
        for message in broker.consume(REVIVE, queue_id)
    ]
    ended = sorted([*peer.replies, *peer.ended], key=operator.attrgetter("opaque"))
    return [[(each.opaque, each.code, each.remark) for each in ended], stored]


@settings(max_examples=80, deadline=None)
@given(_REQUESTS)
def test_those_that_are_taken_for_their_likeness_end_as_if_they_were_read(
    requests: list[tuple[int, dict[str, str | None], bool]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GatheredAcks, "put_alike", lambda *_: False)
        read = _answers(requests)
    assert _answers(requests) == read


def test_those_of_one_check_point_are_read_once() -> None:
    broker = BrokerInMemory()
    popper, messages = popped(broker)
    with pytest.MonkeyPatch.context() as patch:
        looks: list[Any] = []
        parse = ack_requests.parse_extra_info
        patch.setattr(
            ack_requests, "parse_extra_info", lambda text: looks.append(text) or parse(text)
        )
        answers = acknowledged_in_one_turn(popper, messages)
        broker.clock.advance(0)
        assert codes(answers) == [ResponseCode.SUCCESS] * 4 and len(looks) == 1
        # In another turn it may have come back, or be of a topic that is gone.
        acknowledged_in_one_turn(popper, messages[:1])
        assert len(looks) == 2
