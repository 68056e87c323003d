"""Pops and notifications that wait, 200052 and 200055."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.offsets import ResetOffsetRequestHeader
from rocketmq_tw.wire.headers.pop import (
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
)
from tests.support.broker import BrokerInMemory, messages_of, ok
from tests.support.network import FakePeer
from tests.support.pops import Popper, pass_time


def empty(queues: int = 4, **settings: Any) -> BrokerInMemory:
    broker = BrokerInMemory(broker=settings)
    broker.add_topic("Topic", read_queue_nums=queues, write_queue_nums=queues)
    return broker


def turns(broker: BrokerInMemory) -> None:
    broker.clock.pump([0] * 5)


def got(popper: Popper) -> list[bytes]:
    """The bodies of all that came late, which is taken out of the peer's replies."""
    replies, popper.peer.replies = popper.peer.replies, []
    return [
        message.body
        for reply in replies
        if reply.code == ResponseCode.SUCCESS
        for message in popper.messages(reply)
    ]


class TestHeld:
    def test_a_message_of_any_queue_wakes_one(self) -> None:
        broker = empty()
        poppers = [Popper(broker, poll_time=15_000) for _ in range(3)]
        assert [popper.ask() for popper in poppers] == [None] * 3
        for n in range(3):
            ok(broker.send(b"%d" % n, queue_id=n))
            turns(broker)
            assert [got(popper) for popper in poppers] == [
                [b"%d" % n] if index == n else [] for index in range(3)
            ]

    def test_a_reset_wakes_who_waits(self) -> None:
        broker = empty()
        for n in range(4):
            ok(broker.send(b"%d" % n, queue_id=n))
        popper, other = (Popper(broker, group=group, poll_time=15_000) for group in "GH")
        popper.ack(*popper.pop())
        other.ack(*other.pop())
        assert len(got(popper)) == len(got(other)) == 4
        assert popper.ask() is None and other.ask() is None
        header = ResetOffsetRequestHeader(topic="Topic", group="G", timestamp=0, is_force=True)
        request = RemotingCommand.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        ok(broker.request(request))
        turns(broker)
        assert sorted(got(popper)) == [b"0", b"1", b"2", b"3"] and got(other) == []

    def test_each_group_is_woken(self) -> None:
        broker = empty()
        poppers = [Popper(broker, group=group, poll_time=15_000) for group in "GHI"]
        for popper in poppers:
            assert popper.ask() is None
        ok(broker.send(b"x"))
        turns(broker)
        assert [got(popper) for popper in poppers] == [[b"x"]] * 3

    def test_one_that_waits_for_a_queue(self) -> None:
        broker = empty()
        popper = Popper(broker, poll_time=15_000)
        assert popper.ask(queue_id=2) is None
        ok(broker.send(b"x", queue_id=1))
        turns(broker)
        assert got(popper) == []
        ok(broker.send(b"y", queue_id=2))
        turns(broker)
        assert got(popper) == [b"y"]

    def test_only_what_it_wants_wakes_it(self) -> None:
        broker = empty()
        popper = Popper(broker, poll_time=15_000, exp="a")
        assert popper.ask() is None
        ok(broker.send(b"b", properties={"TAGS": "b"}))
        turns(broker)
        assert not popper.peer.replies
        ok(broker.send(b"a", properties={"TAGS": "a"}))
        turns(broker)
        assert got(popper) == [b"a"]

    def test_a_revived_message_wakes_it(self) -> None:
        broker = empty()
        ok(broker.send(b"x"))
        popper = Popper(broker, invisible_time=5_000, poll_time=15_000)
        assert popper.bodies() == [b"x"]
        popper.peer.replies.clear()
        assert popper.ask() is None
        pass_time(broker, 9)
        assert got(popper) == [b"x"]

    def test_its_time_ends(self) -> None:
        broker = empty()
        popper = Popper(broker, poll_time=3_000)
        assert popper.ask() is None
        pass_time(broker, 2.5)
        assert not popper.peer.replies
        pass_time(broker, 1)
        (reply,) = popper.peer.replies
        assert reply.code == ResponseCode.POLLING_TIMEOUT
        assert reply.remark == "NO_MESSAGE_IN_QUEUE"

    def test_it_is_answered_once_where_time_is_up_to_the_millisecond(self) -> None:
        """The time of day stands still meanwhile: held again it would be due at once."""
        broker = empty()
        popper = Popper(broker, poll_time=1_050)
        assert popper.ask() is None
        broker.clock.advance(1)
        turns(broker)
        assert [reply.code for reply in popper.peer.replies] == [ResponseCode.POLLING_TIMEOUT]

    def test_too_many(self) -> None:
        broker = empty(max_pop_polling_size=2)
        poppers = [Popper(broker, poll_time=3_000) for _ in range(3)]
        assert poppers[0].ask() is None and poppers[1].ask() is None
        answer = poppers[2].ask()
        assert answer is not None and answer.code == ResponseCode.POLLING_FULL

    def test_a_lost_peer_takes_its_place_to_nobody(self) -> None:
        broker = empty(max_pop_polling_size=1)
        popper, other = Popper(broker, poll_time=9_000), Popper(broker, poll_time=9_000)
        assert popper.ask() is None
        popper.peer.lose()
        assert other.ask() is None
        ok(broker.send(b"x"))
        turns(broker)
        assert got(other) == [b"x"]

    @pytest.mark.parametrize("same_turn", [False, True])
    @pytest.mark.parametrize("lost", [1, 2])
    def test_one_that_is_woken_and_lost_leaves_the_message_to_the_next(
        self, lost: int, same_turn: bool
    ) -> None:
        broker = empty(1)
        ok(broker.send(b"x")), ok(broker.send(b"y"))
        fields = {"order": True, "max_msg_nums": 1, "poll_time": 15_000}
        (first,) = Popper(broker, **fields).pop(attempt_id="first")
        poppers = [Popper(broker, **fields) for _ in range(lost + 1)]
        for number, popper in enumerate(poppers):
            assert popper.ask(attempt_id=f"{number}") is None
            popper.peer.ready = same_turn or number == lost
        Popper(broker).ack(first)
        for popper in poppers[:lost]:
            if not same_turn:
                turns(broker)
            popper.peer.lose()
        turns(broker)
        assert got(poppers[lost]) == [b"y"]

    def test_one_that_goes_on_too_late_leaves_the_message_to_the_next(self) -> None:
        broker = empty()
        slow, other = Popper(broker, poll_time=2_000), Popper(broker, poll_time=15_000)
        slow.peer.ready = False
        assert slow.ask() is None and other.ask() is None
        ok(broker.send(b"x"))
        pass_time(broker, 4)
        assert got(other) == []
        slow.peer.go_on()
        turns(broker)
        assert [reply.code for reply in slow.peer.replies] == [ResponseCode.POLLING_TIMEOUT]
        assert got(other) == [b"x"]

    def test_the_role_ends(self) -> None:
        broker = empty()
        popper = Popper(broker, poll_time=15_000)
        assert popper.ask() is None
        broker.become(RoleState(Role.ISOLATED, 0))
        (reply,) = popper.peer.replies
        assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE

    def test_a_message_wakes_one_for_its_queue_and_one_for_any(self) -> None:
        broker = empty()
        of_queue, of_any = (Popper(broker, poll_time=15_000) for _ in range(2))
        # Its connection does not take answers, so the message is left to the other one.
        of_any.peer.ready = False
        assert of_any.ask() is None and of_queue.ask(queue_id=2) is None
        ok(broker.send(b"x", queue_id=2))
        turns(broker)
        assert got(of_queue) == [b"x"]
        of_any.peer.go_on()
        ok(broker.send(b"y", queue_id=1))
        turns(broker)
        assert got(of_any) == [b"y"], "it waits on"

    def test_one_waits_while_too_many_messages_are_in_flight(self) -> None:
        broker = empty(1, enable_pop_message_threshold=True, pop_inflight_message_threshold=1)
        for number in range(5):
            ok(broker.send(b"%d" % number))
        popper = Popper(broker, poll_time=15_000)
        found = popper.pop(max_msg_nums=2)
        pass_time(broker, 2)
        popper.peer.replies.clear()
        # It does not try again in each turn, which would never end here.
        assert popper.ask() is None
        pass_time(broker, 2)
        assert not popper.peer.replies
        popper.ack(found[0])
        pass_time(broker, 2)
        assert got(popper) == [b"2", b"3", b"4"]

    def test_many_messages_wake_many(self) -> None:
        broker = empty()
        poppers = [Popper(broker, poll_time=15_000, max_msg_nums=1) for _ in range(20)]
        for popper in poppers:
            assert popper.ask() is None
        for n in range(20):
            broker.request(broker.send_request(b"%d" % n, queue_id=n % 4))
        turns(broker)
        assert sorted(body for popper in poppers for body in got(popper)) == sorted(
            b"%d" % n for n in range(20)
        )

    def test_what_was_woken_leaves_no_deadline(self) -> None:
        broker = empty(max_pop_polling_size=100)
        popper = Popper(broker, poll_time=15_000)
        for _ in range(3_000):
            assert popper.ask() is None
            ok(broker.send(b"x"))
            turns(broker)
            popper.peer.replies.clear()
        figures = {figure.name: figure.value for figure in broker.broker.metrics()}
        assert figures["rocketmq_pop_requests_held"] == 0
        kept = figures["rocketmq_pop_deadlines_kept"]
        assert isinstance(kept, int) and kept <= 1001


class TestNotification:
    def ask(self, broker: BrokerInMemory, peer: FakePeer, **fields: Any) -> RemotingCommand | None:
        header: dict[str, Any] = {
            "consumer_group": "G",
            "topic": "Topic",
            "queue_id": -1,
            "poll_time": 0,
        }
        request = RemotingCommand.request(
            RequestCode.NOTIFICATION, NotificationRequestHeader(**header | fields)
        )
        return broker.request(request, peer)

    def test_it_tells_and_takes_nothing(self) -> None:
        broker = empty()
        popper = Popper(broker)
        peer = FakePeer()
        assert ok(self.ask(broker, peer)) == {"hasMsg": "false", "pollingFull": "false"}
        ok(broker.send(b"x", queue_id=3))
        assert ok(self.ask(broker, peer))["hasMsg"] == "true"
        assert ok(self.ask(broker, peer, queue_id=3))["hasMsg"] == "true"
        assert ok(self.ask(broker, peer, queue_id=1))["hasMsg"] == "false"
        assert popper.bodies() == [b"x"]
        assert ok(self.ask(broker, peer))["hasMsg"] == "false"

    def test_it_waits(self) -> None:
        broker = empty()
        Popper(broker)
        peer = FakePeer()
        assert self.ask(broker, peer, poll_time=9_000) is None
        ok(broker.send(b"x"))
        turns(broker)
        (reply,) = peer.replies
        assert ok(reply)["hasMsg"] == "true"

    def told(self, *peers: FakePeer) -> list[int]:
        """Which of the peers were told of a message since they were asked last."""
        found = []
        for number, peer in enumerate(peers):
            replies, peer.replies = peer.replies, []
            found += [number for reply in replies if ok(reply)["hasMsg"] == "true"]
        return found

    def test_the_newest_that_waits_is_told(self) -> None:
        broker = empty()
        popper = Popper(broker)
        peers = [FakePeer() for _ in range(3)]
        for peer in peers:
            assert self.ask(broker, peer, poll_time=9_000) is None
        for number in (2, 1, 0):
            ok(broker.send(b"x"))
            turns(broker)
            assert self.told(*peers) == [number]
        assert len(popper.pop()) == 3

    def test_one_for_the_queue_and_one_for_any_are_told(self) -> None:
        broker = empty()
        Popper(broker)
        peers = [FakePeer() for _ in range(4)]
        for peer, queue_id in zip(peers, (2, -1, 2, -1), strict=True):
            assert self.ask(broker, peer, queue_id=queue_id, poll_time=9_000) is None
        ok(broker.send(b"x", queue_id=2))
        turns(broker)
        assert self.told(*peers) == [2, 3]
        ok(broker.send(b"x", queue_id=1))
        turns(broker)
        assert self.told(*peers) == [1]
        ok(broker.send(b"x", queue_id=2))
        turns(broker)
        assert self.told(*peers) == [0]

    def test_a_reset_tells_one_for_the_queue_and_one_for_any(self) -> None:
        broker = empty()
        ok(broker.send(b"x", queue_id=2))
        popper = Popper(broker)
        popper.ack(*popper.pop())
        peers = [FakePeer() for _ in range(2)]
        for peer, queue_id in zip(peers, (2, -1), strict=True):
            assert self.ask(broker, peer, queue_id=queue_id, poll_time=9_000) is None
        header = ResetOffsetRequestHeader(topic="Topic", group="G", timestamp=0, is_force=True)
        ok(broker.request(RemotingCommand.request(222, header)))
        turns(broker)
        assert self.told(*peers) == [0, 1]

    def test_a_message_that_comes_again_tells_who_waits(self) -> None:
        broker = empty()
        ok(broker.send(b"x", queue_id=2))
        Popper(broker, invisible_time=2_000).pop()
        peers = [FakePeer() for _ in range(3)]
        for peer, queue_id in zip(peers, (-1, 0, 3), strict=True):
            assert self.ask(broker, peer, queue_id=queue_id, poll_time=20_000) is None
        pass_time(broker, 6)
        # A pop of whatever queue looks at the retry topic too.
        assert self.told(*peers) in ([0, 1], [0, 2])

    def test_what_no_pop_takes_is_not_told(self) -> None:
        broker = empty()
        ok(broker.send(b"x"))
        Popper(broker, invisible_time=2_000).pop()
        pass_time(broker, 6)
        assert broker.topics.get("%RETRY%G_Topic") is not None
        text = b"enableRetryTopicV2=true\nretrieveMessageFromPopRetryTopicV1=false\n"
        assert broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text).code == 0
        assert Popper(broker).pop() == []
        assert ok(self.ask(broker, FakePeer()))["hasMsg"] == "false"

    def test_its_time_ends(self) -> None:
        broker = empty()
        Popper(broker)
        peer = FakePeer()
        assert self.ask(broker, peer, poll_time=2_000) is None
        pass_time(broker, 3)
        (reply,) = peer.replies
        assert ok(reply)["hasMsg"] == "false"


def test_polling_info() -> None:
    broker = empty()
    popper = Popper(broker, poll_time=9_000)
    popper.ask()
    popper.ask()
    popper.ask(queue_id=1)

    def number(queue_id: int) -> str:
        header = PollingInfoRequestHeader(consumer_group="G", topic="Topic", queue_id=queue_id)
        request = RemotingCommand.request(RequestCode.POLLING_INFO, header)
        return ok(broker.request(request))["pollingNum"]

    assert [number(-1), number(1), number(2)] == ["2", "1", "0"]


class TestPeek:
    def ask(self, broker: BrokerInMemory, **fields: Any) -> RemotingCommand:
        header: dict[str, Any] = {
            "consumer_group": "G",
            "topic": "Topic",
            "queue_id": -1,
            "max_msg_nums": 8,
        }
        answer = broker.request(
            RemotingCommand.request(
                RequestCode.PEEK_MESSAGE, PeekMessageRequestHeader(**header | fields)
            )
        )
        assert answer is not None
        return answer

    def test_it_takes_nothing(self) -> None:
        broker = empty()
        popper = Popper(broker)
        for n in range(3):
            ok(broker.send(b"%d" % n, queue_id=1))
        for _ in range(2):
            answer = self.ask(broker, max_msg_nums=2)
            assert [m.body for m in messages_of(answer.body)] == [b"0", b"1"]
            assert answer.ext_fields["restNum"] == "3"
        assert popper.bodies() == [b"0", b"1", b"2"]
        answer = self.ask(broker)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert answer.remark == "NO_MESSAGE_IN_QUEUE"
