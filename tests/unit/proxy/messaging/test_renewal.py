"""Messages that stay hidden while their client works on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import RequestTimeout
from rocketmq_tw.proxy.messaging import renewal
from rocketmq_tw.proxy.messaging.broker_times import BrokerTimes
from rocketmq_tw.proxy.messaging.popped import PopClient
from rocketmq_tw.proxy.messaging.receipt_handles import ReceiptHandle, parse_receipt_handle
from rocketmq_tw.proxy.messaging.renewal import Renewal, RenewedMessage
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pop import (
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from tests.support.proxy import FakeClient, FakeClients, PlayedBrokers, answer_of

#: Of brokers, in ms since 1970, when the clock begins.
EPOCH = 1_700_000_000_000


def handle_of(
    offset: int = 7,
    popped_at: int = EPOCH,
    invisible_ms: int = 60_000,
    broker: str = "broker-a",
) -> ReceiptHandle:
    text = f"{offset} {popped_at} {invisible_ms} 3 0 {broker} 0 {offset} 4096"
    return parse_receipt_handle(text)


class World:
    """A proxy with the connected client `client`, and a broker that hides what it is asked to."""

    def __init__(self, **config: Any) -> None:
        self.clock = Clock()
        self.brokers = PlayedBrokers()
        self.brokers.add_topic("T", {"broker-a": 1})
        self.brokers.answer(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, self.hide)
        self.brokers.answer(
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
            lambda request: request.response(body=encode_body(SubscriptionGroupConfig())),
        )
        self.clients = FakeClients()
        self.client = self.clients.join(FakeClient())
        self.renewal = Renewal(
            self.clock,
            PopClient(self.brokers, BrokerTimes(self.clock)),
            self.clients,
            Metadata(self.clock, self.brokers),
            ProxyConfig(**config),
        )

    def hide(self, request: RemotingCommand) -> RemotingCommand:
        header = request.header(ChangeInvisibleTimeRequestHeader)
        return request.response(
            header=ChangeInvisibleTimeResponseHeader(
                pop_time=EPOCH + int(self.clock.seconds() * 1000),
                invisible_time=header.invisible_time,
                revive_qid=3,
            )
        )

    def add(self, handle: ReceiptHandle | None = None, client_id: str = "client") -> ReceiptHandle:
        handle = handle or handle_of()
        self.renewal.add(client_id, "G", "T", handle, 0, handle.info.invisible_time)
        return handle

    def hides(self) -> list[tuple[str, int]]:
        """Each request's extra info and its time in ms, since the last call."""
        headers = [
            asked.request.header(ChangeInvisibleTimeRequestHeader)
            for asked in self.brokers.asked
            if asked.request.code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        ]
        self.brokers.asked.clear()
        return [(header.extra_info, header.invisible_time) for header in headers]

    def lose_client(self) -> None:
        del self.clients["client"]
        self.clients.gone.tell(self.client)

    def claim(self, handle: ReceiptHandle) -> list[RenewedMessage | None]:
        """What a claim brings, once it does."""
        found: list[RenewedMessage | None] = []
        claim = Deferred.fromCoroutine(self.renewal.claim("G", "T", handle))
        claim.addCallback(found.append)
        return found

    def held(self) -> Callable[[], None]:
        """The broker answers only when what is returned is called."""
        asked: list[tuple[RemotingCommand, Deferred[RemotingCommand]]] = []

        def later(request: RemotingCommand) -> Deferred[RemotingCommand]:
            asked.append((request, Deferred()))
            return asked[-1][1]

        def answer() -> None:
            self.brokers.answer(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, self.hide)
            for request, waiting in asked:
                waiting.callback(self.hide(request))

        self.brokers.answer(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, later)
        return answer


class TestSteps:
    def test_it_is_renewed_ten_seconds_ahead_of_the_end(self) -> None:
        world = World()
        handle = world.add()
        world.clock.advance(49.9)
        assert world.hides() == []
        world.clock.advance(0.1)
        assert world.hides() == [(str(handle.info), 60_000)]

    def test_steps_grow_to_an_hour_until_three_hours_are_over(self) -> None:
        world = World()
        world.add()
        steps = []
        for _ in range(4 * 3600):
            world.clock.advance(1)
            steps += [ms // 60_000 if ms >= 60_000 else ms for _, ms in world.hides()]
        # The last one is the group's delay after a first failure.
        assert steps == [1, 3, 5, 10, 30, 60, 60, 60, 10_000]
        assert len(world.renewal) == 0

    def test_the_next_renewal_is_asked_for_with_the_new_handle(self) -> None:
        world = World()
        world.add()
        world.clock.advance(50)
        world.hides()
        world.clock.advance(50)
        ((info, _),) = world.hides()
        assert info == f"7 {EPOCH + 50_000} 60000 3 0 broker-a 0 7"

    def test_a_broker_that_does_not_answer_is_asked_three_times(self) -> None:
        world = World(renew_ahead_time_millis=20_000)
        world.add()
        lost = RequestTimeout("a:1", RequestCode.CHANGE_MESSAGE_INVISIBLETIME, 3)
        world.brokers.answer(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, lost)
        for _ in range(120):
            world.clock.advance(1)
        assert len(world.hides()) == 3
        assert len(world.renewal) == 0

    def test_it_goes_on_when_a_broker_answers_again(self) -> None:
        world = World()
        world.add()
        lost = RequestTimeout("a:1", RequestCode.CHANGE_MESSAGE_INVISIBLETIME, 3)
        world.brokers.answer(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, lost)
        world.clock.advance(50)
        world.brokers.answer(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, world.hide)
        world.clock.advance(5)
        assert [ms for _, ms in world.hides()] == [60_000, 60_000]
        assert len(world.renewal) == 1

    def test_it_is_not_hidden_once_more_when_its_time_is_over(self) -> None:
        """Others may have it."""
        world = World()
        handle = world.add()
        lost = RequestTimeout("a:1", RequestCode.CHANGE_MESSAGE_INVISIBLETIME, 3)
        world.brokers.answer(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, lost)
        world.clock.pump([1] * 59)
        world.brokers.answer(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, world.hide)
        world.hides()
        assert world.claim(handle) != [None]
        world.clock.advance(1)
        assert world.claim(handle) == [None]
        world.clock.advance(20)
        assert world.hides() == []

    def test_it_is_renewed_while_the_client_has_its_stream_here(self) -> None:
        """Elsewhere only the handle counts that the client has."""
        world = World()
        handle = world.add()
        world.client.has_stream = False
        world.clock.pump([1] * 54)
        assert world.hides() == []
        world.client.has_stream = True
        world.clock.advance(1)
        assert world.hides() == [(str(handle.info), 60_000)]
        world.client.has_stream = False
        world.clock.pump([1] * 60)
        assert world.hides() == []
        assert len(world.renewal) == 0

    def test_a_message_that_the_broker_does_not_hide_any_more_is_left(self) -> None:
        world = World()
        world.add()
        world.brokers.answer(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            lambda request: request.response(ResponseCode.NO_MESSAGE, "gone"),
        )
        world.clock.advance(50)
        assert len(world.renewal) == 0

    def test_a_message_whose_renewal_fails_unforeseen_is_left(self) -> None:
        world = World()
        world.add()

        def answer(request: RemotingCommand) -> RemotingCommand:
            raise ValueError("unforeseen")

        world.brokers.answer(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, answer)
        world.clock.advance(50)
        assert len(world.hides()) == 1
        assert len(world.renewal) == 0

    def test_the_same_message_received_once_more_takes_the_former_ones_place(self) -> None:
        world = World()
        former = world.add()
        later = world.add(handle_of(popped_at=EPOCH + 1))
        assert len(world.renewal) == 1
        assert world.claim(former) == [None]
        (message,) = world.claim(later)
        assert message is not None


class TestKeys:
    """How often, for how long and how soon."""

    def test_renewals_end_after_their_longest_time(self) -> None:
        world = World(renew_max_time_millis=100_000)
        world.add()
        world.clock.pump([1] * 600)
        assert [ms for _, ms in world.hides()] == [60_000, 10_000]
        assert len(world.renewal) == 0

    def test_a_renewal_that_fails_is_tried_so_often(self) -> None:
        world = World(
            renew_ahead_time_millis=20_000,
            max_renew_retry_times=2,
            renew_schedule_period_millis=7000,
        )
        world.add()
        lost = RequestTimeout("a:1", RequestCode.CHANGE_MESSAGE_INVISIBLETIME, 3)
        world.brokers.answer(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, lost)
        tries = []
        for second in range(120):
            tries += [second for _ in world.hides()]
            world.clock.advance(1)
        assert tries == [40, 47]

    def test_messages_of_a_client_that_is_gone_come_back_so_soon(self) -> None:
        world = World(invisible_time_millis_when_clear=2_500)
        handle = world.add()
        world.lose_client()
        world.clock.advance(0)
        assert world.hides() == [(str(handle.info), 2_500)]


class TestClaims:
    def test_a_claim_has_the_handle_that_the_broker_accepts_now(self) -> None:
        world = World()
        handle = world.add()
        world.clock.advance(50)
        (message,) = world.claim(handle)
        assert message is not None
        assert message.handle.info.pop_time == EPOCH + 50_000
        assert message.handle.log_offset == 4096
        world.renewal.settle(message)
        assert len(world.renewal) == 0
        world.hides()
        world.clock.advance(1000)
        assert world.hides() == []

    def test_a_claim_waits_for_a_renewal_under_way(self) -> None:
        world = World()
        handle = world.add()
        answer = world.held()
        world.clock.advance(50)
        found = world.claim(handle)
        assert found == []
        answer()
        assert found[0] is not None and found[0].handle.info.pop_time == EPOCH + 50_000

    def test_groups_that_pop_in_order_at_one_time_have_handles_alike(self) -> None:
        world = World()
        handle = world.add(parse_receipt_handle(f"7 {EPOCH} 60000 999 0 broker-a 0 7 4096"))
        claim = world.renewal.claim("H", "T", handle)
        assert answer_of(claim) is None

    def test_handles_of_messages_that_are_done_are_nobody_s(self) -> None:
        world = World()
        handle = world.add()
        (message,) = world.claim(handle)
        assert message is not None
        world.renewal.settle(message)
        assert answer_of(world.renewal.claim("H", "T", handle)) is None

    def test_nothing_is_renewed_during_a_claim(self) -> None:
        world = World()
        (message,) = world.claim(world.add())
        world.clock.advance(55)
        assert world.hides() == []
        assert message is not None
        world.renewal.give_back(message)
        world.clock.advance(0)
        assert len(world.hides()) == 1

    def test_a_claim_that_came_to_nothing_leaves_the_time_of_the_next_renewal(self) -> None:
        world = World()
        handle = world.add()
        answer = world.held()
        world.clock.advance(50)
        found = world.claim(handle)
        answer()
        assert found[0] is not None
        world.renewal.give_back(found[0])
        world.hides()
        world.clock.advance(49)
        assert world.hides() == []
        world.clock.advance(1)
        assert len(world.hides()) == 1

    def test_a_handle_that_is_not_renewed_is_nobodys(self) -> None:
        assert World().claim(handle_of()) == [None]


class TestClientsThatAreGone:
    def test_their_messages_come_back_at_once(self) -> None:
        world = World()
        first, second = world.add(handle_of(7)), world.add(handle_of(8))
        world.lose_client()
        world.clock.advance(0)
        assert world.hides() == [(str(first.info), 1000), (str(second.info), 1000)]
        assert len(world.renewal) == 0

    def test_other_clients_keep_theirs(self) -> None:
        world = World()
        world.clients.join(FakeClient("other"))
        world.add(handle_of(8), "other")
        world.lose_client()
        world.clock.advance(0)
        assert world.hides() == []
        assert len(world.renewal) == 1

    def test_a_message_whose_renewal_is_under_way_comes_back_after_it(self) -> None:
        world = World()
        world.add()
        answer = world.held()
        world.clock.advance(50)
        world.lose_client()
        world.clock.advance(0)
        world.hides()
        answer()
        assert world.hides() == [(f"7 {EPOCH + 50_000} 60000 3 0 broker-a 0 7", 1000)]

    def test_one_that_is_being_acknowledged_stays_hidden(self) -> None:
        world = World()
        (message,) = world.claim(world.add())
        world.lose_client()
        assert message is not None
        world.renewal.settle(message)
        world.clock.advance(100)
        assert world.hides() == []

    def test_one_whose_acknowledgement_failed_comes_back(self) -> None:
        world = World()
        (message,) = world.claim(world.add())
        world.lose_client()
        assert message is not None
        world.renewal.give_back(message)
        world.clock.advance(0)
        assert [ms for _, ms in world.hides()] == [1000]

    def test_a_client_that_never_told_its_settings_gets_no_second_minute(self) -> None:
        """Behind a balancer it may have told them to another proxy."""
        world = World()
        handle = world.add(client_id="unknown")
        world.clock.pump([1] * 59)
        (message,) = world.claim(handle)
        assert message is not None and message.handle == handle
        world.renewal.give_back(message)
        world.clock.pump([1] * 6)
        assert world.hides() == []
        assert len(world.renewal) == 0

    def test_a_broker_that_is_away_is_asked_again(self) -> None:
        world = World()
        world.add()
        world.clock.pump([1] * 1500)
        world.hides()
        world.brokers.gone.add("broker-a")
        world.lose_client()
        world.clock.pump([1] * 8)
        assert len(world.hides()) == 2
        world.brokers.gone.clear()
        world.clock.pump([1] * 10)
        assert [ms for _, ms in world.hides()] == [1000]
        assert len(world.renewal) == 0
        world.clock.pump([1] * 3600)
        assert world.hides() == []

    def test_a_broker_that_stays_away_is_asked_a_few_times(self) -> None:
        world = World()
        world.add()
        world.clock.pump([1] * 1500)
        world.hides()
        world.brokers.gone.add("broker-a")
        world.lose_client()
        world.clock.pump([1] * 3600)
        assert 5 < len(world.hides()) < 12
        assert len(world.renewal) == 0
        assert world.clock.getDelayedCalls() == []

    def test_each_delivery_of_a_message_that_came_back_is_remembered(self) -> None:
        world = World()
        handles = [handle_of(popped_at=EPOCH + each * 2000) for each in range(3)]
        for handle in handles:
            world.clients.join(world.client)
            world.add(handle)
            world.lose_client()
            world.clock.pump([0.5] * 4)
        assert all(world.renewal.was_left("G", "T", handle) for handle in handles)

    def test_a_delivery_after_which_it_came_once_more_is_over(self) -> None:
        world = World()
        former, later = world.add(), handle_of(popped_at=EPOCH + 1)
        world.add(later)
        assert world.claim(former) == [None]
        assert world.renewal.was_left("G", "T", former)
        assert world.claim(later) != [None]

    def test_many_are_left_a_few_in_each_turn(self) -> None:
        world = World()
        handles = [handle_of(offset) for offset in range(1000)]
        for handle in handles:
            world.add(handle)
        world.lose_client()
        assert world.renewal.deliver("G", "T", handles[-1])
        (claimed,) = world.claim(handles[-1])
        (settled,) = world.claim(handles[-2])
        assert claimed is not None and settled is not None
        world.renewal.settle(settled)
        world.clients.join(world.client)
        world.add(handle_of(1000))
        world.clock.pump([0.01] * 40)
        assert len(world.hides()) == 998
        world.renewal.give_back(claimed)
        world.clock.pump([0] * 2)
        assert len(world.hides()) == 1
        assert len(world.renewal) == 1


class TestBrokersThatHang:
    def test_they_do_not_hold_up_the_messages_of_others(self) -> None:
        world = World()
        for offset in range(2000):
            world.add(handle_of(offset))
        world.clock.advance(1)
        for offset in range(100):
            world.add(handle_of(offset, broker="broker-b"))

        def answer(request: RemotingCommand) -> RemotingCommand | Deferred[RemotingCommand]:
            if request.header(ChangeInvisibleTimeRequestHeader).bname == "broker-b":
                return world.hide(request)
            late: Deferred[RemotingCommand] = Deferred()
            error = RequestTimeout("a:1", request.code, 3)
            world.clock.callLater(3, late.errback, error)
            return late

        world.brokers.add_topic("U", {"broker-b": 1})
        world.brokers.answer(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, answer)
        world.clock.pump([0.25] * 220)
        assert len([text for text, _ in world.hides() if "broker-b" in text]) == 100


class TestStop:
    def test_all_messages_come_back_that_were_renewed(self) -> None:
        world = World()
        for offset in range(300):
            world.add(handle_of(offset))
        world.clock.pump([50, 0, 0, 0, 0])
        assert len(world.hides()) == 300
        # Its client may acknowledge it at another proxy.
        world.add(handle_of(300))
        answer = world.held()
        stopped: list[None] = []
        world.renewal.stop().addCallback(stopped.append)
        assert stopped == []
        answer()
        world.clock.pump([0] * 20)
        assert stopped == [None]
        assert [ms for _, ms in world.hides()] == [1000] * 300
        assert world.clock.getDelayedCalls() == []

    def test_a_message_whose_first_renewal_is_under_way_comes_back(self) -> None:
        world = World()
        world.add()
        answer = world.held()
        world.clock.advance(50)
        stopped: list[None] = []
        world.renewal.stop().addCallback(stopped.append)
        world.hides()
        answer()
        world.clock.pump([0] * 5)
        assert world.hides() == [(f"7 {EPOCH + 50_000} 60000 3 0 broker-a 0 7", 1000)]
        assert stopped == [None]
        assert world.clock.getDelayedCalls() == []

    def test_one_whose_first_renewal_comes_to_nothing_is_left_to_its_client(self) -> None:
        world = World()
        world.add()
        late: Deferred[RemotingCommand] = Deferred()
        world.brokers.answer(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, lambda request: late)
        world.clock.advance(50)
        stopped: list[None] = []
        world.renewal.stop().addCallback(stopped.append)
        late.errback(RequestTimeout("a:1", RequestCode.CHANGE_MESSAGE_INVISIBLETIME, 3))
        world.clock.pump([0] * 5)
        assert len(world.hides()) == 1
        assert stopped == [None]
        assert world.clock.getDelayedCalls() == []

    def test_messages_that_could_not_come_back_yet_are_tried_once_more(self) -> None:
        world = World()
        for offset in range(3):
            world.add(handle_of(offset))
        world.clock.pump([1] * 200)
        world.brokers.gone.add("broker-a")
        world.lose_client()
        world.clock.pump([1] * 2)
        world.hides()
        world.brokers.gone.clear()
        stopped: list[None] = []
        world.renewal.stop().addCallback(stopped.append)
        world.clock.pump([0] * 5)
        assert [ms for _, ms in world.hides()] == [1000] * 3
        assert stopped == [None]
        assert world.clock.getDelayedCalls() == []

    def test_a_broker_that_hangs_does_not_hold_it_up(self) -> None:
        world = World()
        for offset in range(1000):
            world.add(handle_of(offset))
        for offset in range(100):
            world.add(handle_of(offset, broker="broker-b"))
        world.brokers.add_topic("U", {"broker-b": 1})
        world.clock.pump([50, *[0] * 20])
        assert len(world.hides()) == 1100

        def answer(request: RemotingCommand) -> RemotingCommand | Deferred[RemotingCommand]:
            if request.header(ChangeInvisibleTimeRequestHeader).bname == "broker-b":
                return world.hide(request)
            late: Deferred[RemotingCommand] = Deferred()
            error = RequestTimeout("a:1", request.code, 3)
            world.clock.callLater(3, late.errback, error)
            return late

        world.brokers.answer(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, answer)
        stopped: list[None] = []
        world.renewal.stop().addCallback(stopped.append)
        world.clock.pump([0.1] * 50)
        assert stopped == [None]
        assert len([text for text, _ in world.hides() if "broker-b" in text]) == 100

    def test_it_has_a_limit(self) -> None:
        world = World()
        for offset in range(1000):
            world.add(handle_of(offset))
        world.clock.pump([50, *[0] * 20])
        world.held()
        stopped: list[None] = []
        world.renewal.stop().addCallback(stopped.append)
        world.clock.pump([0.5] * 30)
        assert stopped == [None]
        assert world.clock.getDelayedCalls() == []

    def test_nothing_is_added_after_it(self) -> None:
        world = World()
        assert world.renewal.stop().called
        world.add()
        assert len(world.renewal) == 0


class TestLimits:
    def test_a_client_has_room_for_so_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(renewal, "MAX_OF_CLIENT", 3)
        world = World()
        assert world.renewal.room_of("client") == 3
        world.add(handle_of(1)), world.add(handle_of(2))
        assert world.renewal.room_of("client") == 1
        assert world.renewal.room_of("other") == 3

    def test_all_have_room_for_so_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(renewal, "MAX_RENEWED", renewal.MAX_MESSAGES + 1)
        world = World()
        with capturedLogs() as events:
            world.add(handle_of(1))
            assert world.renewal.has_room(renewal.MAX_MESSAGES)
            assert events == []
            world.add(handle_of(2))
            for _ in range(2):
                assert not world.renewal.has_room(renewal.MAX_MESSAGES)
        (line,) = map(formatEvent, events)
        assert "2 messages are renewed for 1 clients" in line

    def test_few_are_asked_about_at_a_time(self) -> None:
        world = World()
        for offset in range(1000):
            world.add(handle_of(offset))
        answer = world.held()
        world.clock.advance(50)
        assert len(world.brokers.asked) == 128
        answer()
        world.clock.pump([0] * 30)
        assert len(world.brokers.asked) == 1000


class TestLog:
    @pytest.mark.parametrize(
        ("code", "said"),
        [
            (ResponseCode.SYSTEM_BUSY, "is not hidden anew"),
            (ResponseCode.NO_MESSAGE, "is hidden no more"),
        ],
    )
    def test_of_a_broker_that_does_not_hide_messages_there_is_a_line_now_and_then(
        self, code: int, said: str
    ) -> None:
        """There is none of each message."""
        world = World()
        world.brokers.add_topic("T", {"broker-a": 1, "broker-b": 1})
        world.brokers.answer(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME, lambda request: request.response(code)
        )
        for offset in range(100):
            world.add(handle_of(offset, broker=f"broker-{'ab'[offset % 2]}"))
        with capturedLogs() as events:
            world.clock.advance(50)
            world.clock.pump([1] * 9)
        assert len(world.hides()) >= 100
        lines = sorted(str(formatEvent(event)) for event in events)
        assert len(lines) == 2
        assert all(said in line for line in lines)
        assert "broker-a" in lines[0] and "broker-b" in lines[1]
        world.clock.advance(1)
        with capturedLogs() as events:
            for offset in range(100, 200):
                world.add(handle_of(offset, EPOCH + 60_000))
            world.clock.advance(50)
        assert len(events) == 1


class TestClaimsThatFail:
    def test_an_acknowledged_message_stays_so_when_a_second_request_fails(self) -> None:
        world = World()
        handle = world.add()
        (first,), (second,) = world.claim(handle), world.claim(handle)
        assert first is not None and second is not None
        world.renewal.settle(first)
        world.renewal.give_back(second)
        world.clock.advance(120)
        assert world.hides() == []

    def test_one_whose_client_went_meanwhile_comes_back(self) -> None:
        world = World()
        handle = world.add()
        (claimed,) = world.claim(handle)
        assert claimed is not None
        world.lose_client()
        assert world.hides() == []
        world.renewal.give_back(claimed)
        world.clock.advance(1)
        assert len(world.hides()) == 1
