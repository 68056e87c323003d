"""ReceiveMessage, before the real broker in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from h2.settings import SettingCodes
from twisted.internet.defer import Deferred

from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.message.compression import CompressionType, compress, compression_flag
from rocketmq_tw.net.errors import ConnectError, RequestTimeout
from rocketmq_tw.proxy.grpc.interfaces import GrpcStatus
from rocketmq_tw.proxy.grpc.server import GrpcConfig
from rocketmq_tw.proxy.http2.limits import Http2Limits
from rocketmq_tw.proxy.messaging import polls, renewal
from rocketmq_tw.proxy.messaging.receipt_handles import parse_receipt_handle
from rocketmq_tw.proxy.messaging.receive_requests import MAX_ATTEMPT_ID
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proto.messages import Code
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pop import (
    UNDELIVERED_FLAG,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
)
from tests.support.http2 import GrpcInMemory, Http2Client, Response
from tests.support.proxy import FakeCall
from tests.support.receiving import SERVICE, ReceivingWorld, received
from tests.support.tables import tables_of


def tag(expression: str) -> pb.FilterExpression:
    return pb.FilterExpression(type=pb.TAG, expression=expression)


def sql(expression: str) -> pb.FilterExpression:
    return pb.FilterExpression(type=pb.SQL, expression=expression)


def pops(world: ReceivingWorld) -> list[tuple[str, PopMessageRequestHeader]]:
    """The broker and the header of each pop."""
    return [
        (asked.broker_name, asked.request.header(PopMessageRequestHeader))
        for asked in world.brokers.asked
        if asked.request.code == RequestCode.POP_MESSAGE
    ]


def ask_renewing(client: Http2Client) -> Response:
    """Receives messages that stay hidden, over a connection."""
    request = pb.ReceiveMessageRequest(
        group=pb.Resource(name="G"),
        message_queue=pb.MessageQueue(topic=pb.Resource(name="Topic")),
        filter_expression=pb.FilterExpression(type=pb.TAG, expression="*"),
        batch_size=32,
        auto_renew=True,
    )
    path = SERVICE + "ReceiveMessage"
    return client.call(path, request.SerializeToString(), x_mq_client_id="client")


class TestMessages:
    def test_what_was_sent_is_received(self) -> None:
        world = ReceivingWorld()
        world.send(b"one", tag="A", properties={"KEYS": "k1 k2", "mine": "value"})
        answer = world.receive()
        assert answer.status.code == Code.OK
        (message,) = answer.messages
        system = message.system_properties
        assert (message.topic.name, message.body) == ("Topic", b"one")
        assert (system.tag, list(system.keys)) == ("A", ["k1", "k2"])
        assert dict(message.user_properties) == {"mine": "value"}
        assert (system.message_id, system.delivery_attempt) == ("ID-one", 1)
        handle = parse_receipt_handle(system.receipt_handle)
        assert handle.info.broker_name == "broker-a"
        assert handle.visible_at == world.broker.now_ms() + 30_000

    def test_others_do_not_receive_it_until_its_time_is_over(self) -> None:
        world = ReceivingWorld()
        world.send(b"one")
        assert world.receive().bodies == [b"one"]
        assert world.receive().status.code == Code.MESSAGE_NOT_FOUND
        world.pass_time(35)
        (message,) = world.receive().messages
        assert (message.body, message.topic.name) == (b"one", "Topic")
        assert message.system_properties.delivery_attempt == 2
        assert world.ack(message).status.code == Code.OK
        world.pass_time(60)
        assert world.receive().messages == []

    def test_a_batch_has_as_many_as_were_asked_for(self) -> None:
        world = ReceivingWorld()
        for number in range(5):
            world.send(b"%d" % number)
        assert world.receive(batch_size=2).bodies == [b"0", b"1"]
        assert world.receive(batch_size=2**31 - 1).bodies == [b"2", b"3", b"4"]

    def test_a_receive_waits_for_a_message(self) -> None:
        world = ReceivingWorld()
        call, done = world.begin(long_polling_timeout={"seconds": 10})
        world.pass_time(3)
        assert call.sent == []
        world.send(b"late")
        world.until(done)
        assert received(call).bodies == [b"late"]

    def test_nothing_comes_in_time(self) -> None:
        world = ReceivingWorld()
        call, done = world.begin(long_polling_timeout={"seconds": 6})
        world.pass_time(5.5)
        assert call.sent == []
        world.pass_time(1)
        assert done.called
        assert received(call).status.code == Code.MESSAGE_NOT_FOUND

    def test_a_handle_that_a_producer_wrote_is_none(self) -> None:
        world = ReceivingWorld()
        world.send(b"one", properties={"POP_CK": "5 1 60000 0 0 broker-z 0 5"})
        (message,) = world.receive().messages
        handle = parse_receipt_handle(message.system_properties.receipt_handle)
        assert (handle.info.broker_name, handle.info.offset) == ("broker-a", 0)
        assert world.ack(message).status.code == Code.OK

    def test_a_client_without_settings_receives_all_the_same(self) -> None:
        world = ReceivingWorld()
        world.send(b"one")
        assert world.receive(world.call("unknown")).bodies == [b"one"]

    def test_a_message_that_cannot_be_shown_holds_up_no_other(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = ReceivingWorld()
        world.send(b"bad"), world.send(b"good")
        from rocketmq_tw.proxy.messaging import delivery

        fill = delivery.fill_message

        def fails_once(message: Any, stored: Any, *rest: Any) -> None:
            if stored.body == b"bad":
                raise ValueError("no time")
            fill(message, stored, *rest)

        monkeypatch.setattr(delivery, "fill_message", fails_once)
        assert world.receive().bodies == [b"good"]


class TestFilters:
    def test_by_tags(self) -> None:
        world = ReceivingWorld()
        world.send(b"a", tag="A"), world.send(b"b", tag="B"), world.send(b"c", tag="C")
        assert world.receive(filter_expression=tag("A || C")).bodies == [b"a", b"c"]

    def test_a_tag_with_the_same_hash_code_is_acknowledged_and_passed_over(self) -> None:
        world = ReceivingWorld()
        # Java's hash codes of both are 2112.
        world.send(b"one", tag="Aa"), world.send(b"other", tag="BB")
        assert world.receive(filter_expression=tag("Aa")).bodies == [b"one"]
        acks = [a for a in world.brokers.asked if a.request.code == RequestCode.ACK_MESSAGE]
        assert len(acks) == 1

    def test_nothing_but_such_tags(self) -> None:
        world = ReceivingWorld()
        world.send(b"other", tag="BB")
        answer = world.receive(filter_expression=tag("Aa"))
        assert answer.status.code == Code.MESSAGE_NOT_FOUND
        assert "filter" in answer.status.message

    def test_new_expressions_of_sql92_take_several_turns(self) -> None:
        world = ReceivingWorld()
        ended = []
        for number in range(4):
            wanted = sql(f"a = '{number:01500}'")
            ended.append(world.begin(filter_expression=wanted)[1])
        assert len(pops(world)) == 2
        for done in ended:
            world.until(done)
        assert len(pops(world)) == 4

    def test_by_sql92(self) -> None:
        world = ReceivingWorld(broker={"enable_property_filter": True})
        world.send(b"1", properties={"a": "1"}), world.send(b"9", properties={"a": "9"})
        assert world.receive(filter_expression=sql("a > 5")).bodies == [b"9"]

    @pytest.mark.parametrize(
        "expression",
        [sql(""), sql("a >"), sql("(" * 100), tag("||"), pb.FilterExpression(type=7)],
    )
    def test_what_cannot_be_read(self, expression: pb.FilterExpression) -> None:
        status = ReceivingWorld().receive(filter_expression=expression).status
        assert status.code == Code.ILLEGAL_FILTER_EXPRESSION
        assert status.message


class TestFifo:
    def test_nothing_comes_before_what_is_not_acknowledged(self) -> None:
        world = ReceivingWorld(is_fifo=True)
        for body in (b"1", b"2", b"3"):
            world.send(body)
        (first,) = world.receive(batch_size=1).messages
        assert world.receive(long_polling_timeout={"seconds": 5}).messages == []
        world.ack(first)
        assert world.receive(batch_size=1).bodies == [b"2"]

    def test_the_same_attempt_has_the_same_messages(self) -> None:
        world = ReceivingWorld(is_fifo=True)
        world.send(b"1")
        assert world.receive(attempt_id="try").bodies == [b"1"]
        again = world.receive(attempt_id="try")
        assert again.bodies == [b"1"]
        assert world.ack(*again.messages).status.code == Code.OK

    def test_attempts_are_counted(self) -> None:
        world = ReceivingWorld(is_fifo=True)
        world.send(b"1")
        attempts = []
        for _ in range(3):
            (message,) = world.receive(invisible_duration={"seconds": 10}).messages
            attempts.append(message.system_properties.delivery_attempt)
            world.pass_time(11)
        assert attempts == [1, 2, 3]

    def test_the_groups_configuration_decides_and_else_the_client(self) -> None:
        world = ReceivingWorld(is_fifo=True)
        world.receive(long_polling_timeout={"seconds": 5})
        world.client.settings.subscription.fifo = False
        assert [header.order for _, header in pops(world)] == [True]
        world.brokers.answer(
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
            lambda request: request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        )
        world.receive(group=pb.Resource(name="H"), long_polling_timeout={"seconds": 5})
        assert pops(world)[-1][1].order is False

    @pytest.mark.parametrize("attempts", [0, -3])
    def test_no_client_asks_for_less_than_one_delivery(self, attempts: int) -> None:
        """Otherwise a group that brokers do not know yet has nothing but dead letters."""
        world = ReceivingWorld()
        world.client.settings.backoff_policy.max_attempts = attempts
        world.brokers.answer(
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
            lambda request: request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        )
        world.send(b"1")
        assert world.receive().bodies == [b"1"]

    def test_an_attempt_id_has_a_limit(self) -> None:
        status = ReceivingWorld().receive(attempt_id="x" * (MAX_ATTEMPT_ID + 1)).status
        assert status.code == Code.BAD_REQUEST


class TestDeadLetters:
    def test_a_message_that_was_delivered_too_often_is_one(self) -> None:
        world = ReceivingWorld(retry_max_times=1)
        world.send(b"poison")
        for _ in range(2):
            (message,) = world.receive(invisible_duration={"seconds": 10}).messages
            world.pass_time(15)
        assert message.system_properties.delivery_attempt == 2
        assert world.receive(long_polling_timeout={"seconds": 5}).messages == []
        world.pass_time(60)
        assert [dead.body for dead in world.broker.consume("%DLQ%G")] == [b"poison"]
        assert world.receive(long_polling_timeout={"seconds": 5}).messages == []


class TestRenewal:
    def test_a_message_stays_hidden_while_its_client_is_there(self) -> None:
        world = ReceivingWorld()
        world.send(b"slow")
        (message,) = world.receive(auto_renew=True).messages
        for _ in range(30):
            world.pass_time(10)
            world.clients.heard(world.client)
        assert world.receive(long_polling_timeout={"seconds": 5}).messages == []
        assert world.ack(message).status.code == Code.OK
        world.pass_time(400)
        assert world.receive(long_polling_timeout={"seconds": 5}).messages == []

    def test_a_broker_that_is_busy_as_its_role_begins_is_asked_again(self) -> None:
        world = ReceivingWorld()
        world.send(b"slow")
        (message,) = world.receive(auto_renew=True).messages

        def busy(request: Any) -> Any:
            return request.response(ResponseCode.SYSTEM_BUSY, "it is being read: ask again")

        def pass_time(seconds: float) -> None:
            world.clients.heard(world.client)
            world.pass_time(seconds)

        pass_time(45)
        world.brokers.answer(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, busy)
        pass_time(13)
        world.brokers.answers_itself(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        pass_time(30)
        assert world.receive(long_polling_timeout={"seconds": 5}).messages == []
        assert world.ack(message).status.code == Code.OK

    def test_it_comes_back_when_the_client_goes(self) -> None:
        world = ReceivingWorld()
        world.send(b"left")
        world.receive(auto_renew=True)
        world.clients.remove("client")
        world.pass_time(5)
        assert world.receive(long_polling_timeout={"seconds": 5}).bodies == [b"left"]

    def test_it_comes_back_when_the_client_went_before_it_came(self) -> None:
        world = ReceivingWorld()
        call, done = world.begin(auto_renew=True, long_polling_timeout={"seconds": 10})
        world.pass_time(1)
        world.clients.remove("client")
        world.send(b"left")
        world.until(done)
        assert received(call).status.code == Code.MESSAGE_NOT_FOUND
        assert len(world.renewal) == 0
        world.pass_time(5)
        assert world.receive(long_polling_timeout={"seconds": 5}).bodies == [b"left"]

    def test_a_client_that_told_its_settings_to_another_proxy(self) -> None:
        world = ReceivingWorld()
        world.clients.remove("client")
        world.send(b"one")
        (message,) = world.receive(auto_renew=True).messages
        world.pass_time(55)
        assert world.ack(message).status.code == Code.OK
        world.pass_time(100)
        assert world.receive(long_polling_timeout={"seconds": 5}).messages == []

    def test_the_change_of_its_invisible_duration_ends_it(self) -> None:
        world = ReceivingWorld()
        world.send(b"later")
        (message,) = world.receive(auto_renew=True).messages
        world.pass_time(55)
        changed = world.change(message.system_properties.receipt_handle, 10)
        assert changed.status.code == Code.OK
        world.pass_time(15)
        assert world.receive(long_polling_timeout={"seconds": 5}).bodies == [b"later"]

    def test_the_proxy_may_not_renew(self) -> None:
        world = ReceivingWorld(enable_proxy_auto_renew=False)
        world.send(b"one")
        answer = world.receive(auto_renew=True, invisible_duration=None)
        assert answer.bodies == [b"one"]
        assert len(world.renewal) == 0
        world.pass_time(65)
        assert world.receive(long_polling_timeout={"seconds": 5}).bodies == [b"one"]

    def test_without_room_messages_come_all_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As from stock's proxies, which renew none: whoever has the others."""
        monkeypatch.setattr(renewal, "MAX_RENEWED", renewal.MAX_MESSAGES + 1)
        world = ReceivingWorld()
        for number in range(3):
            world.send(b"%d" % number)
        assert world.receive(auto_renew=True, batch_size=2).bodies == [b"0", b"1"]
        assert len(world.renewal) == 2
        (message,) = world.receive(auto_renew=True, invisible_duration=None).messages
        assert len(world.renewal) == 2
        handle = parse_receipt_handle(message.system_properties.receipt_handle)
        assert handle.info.invisible_time == world.config.default_invisible_time_mills

    def test_a_client_without_room_is_told_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(renewal, "MAX_OF_CLIENT", 2)
        world = ReceivingWorld()
        for number in range(3):
            world.send(b"%d" % number)
        assert world.receive(auto_renew=True).bodies == [b"0", b"1"]
        assert world.receive(auto_renew=True).status.code == Code.TOO_MANY_REQUESTS

    @pytest.mark.parametrize(
        ("limit", "most"), [("MAX_RENEWED", renewal.MAX_MESSAGES), ("MAX_OF_CLIENT", 2)]
    )
    def test_receives_that_waited_for_the_same_room(
        self, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
    ) -> None:
        """Each saw room when it began; what is beyond it is given out as where there is none."""
        monkeypatch.setattr(renewal, limit, most)
        world = ReceivingWorld()
        waiting = {"auto_renew": True, "long_polling_timeout": {"seconds": 20}}
        receives = [world.begin(**waiting) for _ in range(most + 2)]
        for number in range(most + 2):
            world.send(b"%d" % number)
        for _, done in receives:
            world.until(done)
        given = sorted(body for call, _ in receives for body in received(call).bodies)
        assert given == sorted(b"%d" % number for number in range(most + 2))
        assert len(world.renewal) == most
        world.pass_time(65)
        assert len(world.receive().messages) == 2


class TestClocks:
    """A proxy's clock that is wrong, by more than a receive waits."""

    @pytest.mark.parametrize("seconds", [-30, 30])
    def test_receives_wait_and_get_messages(self, seconds: int) -> None:
        world = ReceivingWorld(clock_off=seconds)
        began = world.clock.seconds()
        assert world.receive(long_polling_timeout={"seconds": 5}).bodies == []
        assert 4.5 <= world.clock.seconds() - began <= 6
        call, done = world.begin(long_polling_timeout={"seconds": 5})
        world.pass_time(2)
        world.send(b"one")
        world.until(done)
        assert received(call).bodies == [b"one"]


class TestCallsThatEnd:
    def test_messages_for_a_call_that_is_over_come_back(self) -> None:
        world = ReceivingWorld()
        call, done = world.begin(long_polling_timeout={"seconds": 10})
        world.pass_time(1)
        call.finish()
        world.send(b"lost")
        world.until(done)
        world.pass_time(5)
        assert world.receive(long_polling_timeout={"seconds": 5}).bodies == [b"lost"]

    def test_they_come_back_when_their_broker_answers_again(self) -> None:
        world = ReceivingWorld()
        hour = {"seconds": 3600}
        call, done = world.begin(long_polling_timeout={"seconds": 10}, invisible_duration=hour)
        world.pass_time(1)
        call.finish()
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        world.brokers.answer(code, RequestTimeout("a:1", code, 3))
        world.send(b"lost")
        world.until(done)
        world.pass_time(3)
        world.brokers.answers_itself(code)
        world.pass_time(10)
        assert world.receive(long_polling_timeout={"seconds": 5}).bodies == [b"lost"]
        assert len(world.renewal) == 0

    def test_a_slow_reader_gets_one_message_after_the_other(self) -> None:
        world = ReceivingWorld()
        for number in range(3):
            world.send(b"%d" % number)
        call = world.call()
        call.ready = False
        _, done = world.begin(call)
        world.pass_time(1)
        assert len(call.sent) == 1
        call.go_on()
        world.until(done)
        assert received(call).bodies == [b"0", b"1", b"2"]

    def test_what_a_slow_reader_that_leaves_has_not_taken_comes_back(self) -> None:
        world = ReceivingWorld()
        world.send(b"one")
        call = world.call()
        call.ready = False
        _, done = world.begin(call)
        world.pass_time(1)
        call.finish()
        assert done.called
        world.pass_time(5)
        assert world.receive(long_polling_timeout={"seconds": 5}).bodies == [b"one"]

    @pytest.mark.parametrize("taken", [1, 2])
    def test_all_of_an_answer_that_is_cut_off_comes_back_though_its_client_lives(
        self, taken: int
    ) -> None:
        """Clients throw away what came where a receive ends with an error."""
        world = ReceivingWorld()
        world.send(b"one")
        world.send(b"two")
        call = world.call()
        call.ready = False
        _, done = world.begin(call, auto_renew=True)
        world.pass_time(1)
        for _ in range(taken):
            call.take()
            world.pass_time(1)
        assert len([each for each in call.sent if each.HasField("message")]) == taken
        call.finish()
        assert done.called
        world.pass_time(5)
        again = world.receive(long_polling_timeout={"seconds": 5}).bodies
        assert sorted(again) == [b"one", b"two"]
        assert len(world.renewal) == 0

    def test_a_slow_readers_messages_stay_hidden_from_the_pop_on(self) -> None:
        world = ReceivingWorld()
        world.send(b"one")
        call = world.call(seconds=100)
        call.ready = False
        _, done = world.begin(call, auto_renew=True)
        world.pass_time(40)
        call.go_on()
        world.until(done)
        (message,) = received(call).messages
        for _ in range(4):
            world.pass_time(15)
            world.clients.heard(world.client)
            nothing = {"long_polling_timeout": {"seconds": 0}}
            assert world.receive(world.call("other", seconds=3), **nothing).bodies == []
        assert world.ack(message).status.code == Code.OK

    def test_a_proxy_that_stood_still_gives_out_nothing_that_is_over(self) -> None:
        world = ReceivingWorld()
        world.send(b"before")
        assert world.receive(invisible_duration={"seconds": 60}).bodies == [b"before"]
        call = receive_late(world)
        assert received(call).bodies == []
        assert world.receive(long_polling_timeout={"seconds": 5}).bodies == [b"one"]

    def test_a_proxy_that_stood_still_has_not_heard_the_time(self) -> None:
        """Of its broker, so that it goes by how long it has waited."""
        world = ReceivingWorld()
        other = world.another_proxy()
        assert received(receive_late(other)).messages == []
        again = world.receive(long_polling_timeout={"seconds": 5})
        assert again.bodies == [b"one"]
        assert world.ack(*again.messages).status.code == Code.OK

    def test_a_handle_that_is_over_is_not_given_out(self) -> None:
        world = ReceivingWorld()
        world.send(b"one")
        call = world.call(seconds=100)
        call.ready = False
        _, done = world.begin(call)
        world.pass_time(31)
        call.go_on()
        world.until(done)
        assert received(call).bodies == []
        assert world.receive(long_polling_timeout={"seconds": 5}).bodies == [b"one"]

    @pytest.mark.parametrize("window", [0, 300])
    def test_an_answer_that_the_client_resets_comes_back(self, window: int) -> None:
        world = ReceivingWorld()
        server = GrpcInMemory(world.methods, clock=world.clock)
        windows = {SettingCodes.INITIAL_WINDOW_SIZE: window}
        client = server.connect(lambda: Http2Client(windows))
        client.takes = False
        for number in range(3):
            world.send(b"%d" % number)
        ask_renewing(client)
        world.pass_time(1)
        assert len(world.renewal) == 3
        client.h2.reset_stream(max(client.responses), 8)
        client.flush()
        world.pass_time(5)
        assert len(world.renewal) == 0
        again = world.receive(long_polling_timeout={"seconds": 5}).bodies
        assert sorted(again) == [b"0", b"1", b"2"]

    @pytest.mark.parametrize("came", [False, True])
    def test_an_answer_that_is_lost_with_its_connection_comes_back(self, came: bool) -> None:
        """Its client lives, and has a new connection: nobody would acknowledge the message."""
        world = ReceivingWorld()
        server = GrpcInMemory(world.methods, clock=world.clock)
        client = server.connect()
        if not came:
            client.dataReceived = lambda data: None
        world.send(b"one")
        response = ask_renewing(client)
        world.pass_time(1)
        assert response.ended is came
        assert len(world.renewal) == 1
        client.transport.abortConnection()
        world.pass_time(5)
        assert len(world.renewal) == int(came)
        again = world.receive(long_polling_timeout={"seconds": 5}).bodies
        assert again == ([] if came else [b"one"])

    def test_what_waits_for_a_slow_reader_is_counted(self) -> None:
        world = ReceivingWorld()
        for number in (b"1", b"2"):
            world.send(number, properties={"p": "x" * 1000})
        call = world.call()
        call.ready = False
        _, done = world.begin(call)
        world.pass_time(1)
        both = call.held
        assert both > 2000
        call.take()
        assert call.held == both / 2
        call.go_on()
        world.until(done)
        assert call.held == 0

    @pytest.mark.parametrize("renews", [False, True])
    @pytest.mark.parametrize(("sent", "attempts"), [(0, [1, 1]), (1, [2, 1])])
    def test_in_order_what_was_not_sent_is_not_counted(
        self, sent: int, attempts: list[int], renews: bool
    ) -> None:
        """The client may have got what was sent."""
        world = ReceivingWorld(is_fifo=True)
        world.send(b"one"), world.send(b"two")
        call = world.call()
        call.ready = False
        fields: dict[str, Any] = {"auto_renew": renews, "invisible_duration": {"seconds": 10}}
        _, done = world.begin(call, **fields)
        world.pass_time(1)
        for _ in range(sent):
            call.take()
            world.pass_time(1)
        call.finish()
        assert done.called
        again = world.receive(long_polling_timeout={"seconds": 15}).messages
        assert [each.body for each in again] == [b"one", b"two"]
        assert [each.system_properties.delivery_attempt for each in again] == attempts

    def test_in_order_what_is_not_sent_to_a_client_that_goes_is_not_counted(self) -> None:
        world = ReceivingWorld(is_fifo=True)
        world.send(b"one")
        call = world.call()
        call.ready = False
        world.begin(call, auto_renew=True)
        world.pass_time(1)
        world.clients.remove("client")
        (message,) = world.receive(long_polling_timeout={"seconds": 5}).messages
        assert message.system_properties.delivery_attempt == 1

    @pytest.mark.parametrize("is_fifo", [False, True])
    @pytest.mark.parametrize("renews", [False, True])
    def test_what_the_proxy_has_no_room_for_comes_back(self, renews: bool, is_fifo: bool) -> None:
        world = ReceivingWorld(is_fifo=is_fifo)
        world.send(b"much")
        call = world.call()
        call.most_held = 100
        _, done = world.begin(call, auto_renew=renews)
        world.until(done)
        assert call.error is not None
        assert call.error.status == GrpcStatus.RESOURCE_EXHAUSTED
        world.pass_time(5)
        (again,) = world.receive(long_polling_timeout={"seconds": 5}).messages
        assert again.system_properties.delivery_attempt == 2


class TestPollsOfReceivesThatAreOver:
    """Brokers hold them on, and wake the oldest first."""

    def begin_and_cut(self, world: ReceivingWorld, number: int, **fields: Any) -> None:
        """Receives of a client that is killed."""
        fields = {"long_polling_timeout": {"seconds": 20}, **fields}
        begun = [world.begin(**fields)[0] for _ in range(number)]
        world.pass_time(0.5)
        for call in begun:
            call.finish()

    def dead_letters(self, world: ReceivingWorld) -> bool:
        return "%DLQ%G" in world.broker.topics

    @pytest.mark.parametrize("is_fifo", [False, True])
    @pytest.mark.parametrize("renews", [False, True])
    def test_a_receive_that_waits_gets_what_they_bring(self, renews: bool, is_fifo: bool) -> None:
        world = ReceivingWorld(retry_max_times=3, is_fifo=is_fifo)
        self.begin_and_cut(world, 10, auto_renew=renews)
        for body in (b"one", b"two", b"three"):
            call, done = world.begin(auto_renew=renews, long_polling_timeout={"seconds": 20})
            world.pass_time(0.5)
            world.send(body)
            world.pass_time(0.5)
            assert done.called
            (message,) = received(call).messages
            assert (message.body, message.system_properties.delivery_attempt) == (body, 1)
            assert world.ack(message).status.code == Code.OK
        assert len(world.renewal) == 0
        world.pass_time(90)
        assert world.receive(long_polling_timeout={"seconds": 0}).bodies == []
        assert not self.dead_letters(world)

    def test_a_client_that_cuts_each_receive_takes_none_from_others(self) -> None:
        world = ReceivingWorld()
        for _ in range(15):
            self.begin_and_cut(world, 1)
        call, done = world.begin(long_polling_timeout={"seconds": 20})
        self.begin_and_cut(world, 1)
        for number in range(3):
            world.send(b"%d" % number)
        world.pass_time(0.5)
        assert done.called
        messages = received(call).messages
        while len(messages) < 3:
            messages += world.receive(long_polling_timeout={"seconds": 5}).messages
        attempts = [each.system_properties.delivery_attempt for each in messages]
        assert (sorted(each.body for each in messages), max(attempts)) == ([b"0", b"1", b"2"], 2)

    @pytest.mark.parametrize(
        ("is_fifo", "attempts"), [(False, [""]), (True, [""]), (True, ["first", "second"])]
    )
    @pytest.mark.parametrize("durations", [[30], [30, 40, 50]])
    @pytest.mark.parametrize("renews", [False, True])
    def test_where_no_other_waits_they_take_it_once(
        self, is_fifo: bool, attempts: list[str], durations: list[int], renews: bool
    ) -> None:
        world = ReceivingWorld(retry_max_times=3, is_fifo=is_fifo)
        for number in range(10):
            self.begin_and_cut(
                world,
                1,
                auto_renew=renews,
                attempt_id=attempts[number % len(attempts)],
                invisible_duration={"seconds": durations[number % len(durations)]},
            )
        world.send(b"one"), world.send(b"two")
        world.pass_time(26)
        bodies = []
        while len(bodies) < 2:
            messages = world.receive(long_polling_timeout={"seconds": 10}).messages
            assert max(each.system_properties.delivery_attempt for each in messages) <= 2
            assert world.ack(*messages).status.code == Code.OK
            bodies += [each.body for each in messages]
        assert sorted(bodies) == [b"one", b"two"]
        assert not is_fifo or bodies == [b"one", b"two"]
        assert not self.dead_letters(world)

    @pytest.mark.parametrize("attempts", [[""], ["first", "second"]])
    @pytest.mark.parametrize("attempt_id", ["first", "other"])
    @pytest.mark.parametrize("renews", [False, True])
    def test_in_order_what_they_take_is_for_another_proxy_at_once(
        self, attempts: list[str], attempt_id: str, renews: bool
    ) -> None:
        """Each takes it in its turn, which does not count."""
        world = ReceivingWorld(is_fifo=True)
        for number in range(5):
            self.begin_and_cut(
                world, 1, auto_renew=renews, attempt_id=attempts[number % len(attempts)]
            )
        elsewhere = world.another_proxy()
        waiting = {"attempt_id": attempt_id, "long_polling_timeout": {"seconds": 20}}
        call, done = elsewhere.begin(elsewhere.call("other"), auto_renew=renews, **waiting)
        world.send(b"one")
        world.pass_time(5)
        assert done.called
        (message,) = received(call).messages
        assert (message.body, message.system_properties.delivery_attempt) == (b"one", 1)
        assert elsewhere.ack(message).status.code == Code.OK
        assert world.broker.offsets.query("G", "Topic", 0) == 1

    def test_in_order_another_attempt_gets_what_the_former_was_not_sent(self) -> None:
        world = ReceivingWorld(is_fifo=True)
        self.begin_and_cut(world, 1, attempt_id="first")
        other, _ = world.begin(
            world.call("other"), attempt_id="other", long_polling_timeout={"seconds": 20}
        )
        world.send(b"one"), world.pass_time(0.5)
        (message,) = received(other).messages
        assert (message.body, message.system_properties.delivery_attempt) == (b"one", 1)
        fields: dict[str, Any] = {"long_polling_timeout": {"seconds": 5}}
        assert world.receive(attempt_id="first", **fields).bodies == []
        assert world.ack(message).status.code == Code.OK
        assert world.broker.offsets.query("G", "Topic", 0) == 1

    def test_in_order_what_they_take_is_for_the_next_receive_at_once(self) -> None:
        world = ReceivingWorld(is_fifo=True)
        self.begin_and_cut(world, 1)
        world.send(b"one")
        world.pass_time(0.5)
        (message,) = world.receive(long_polling_timeout={"seconds": 4}).messages
        assert message.system_properties.delivery_attempt == 1

    def test_in_order_stocks_broker_counts_what_they_take(self) -> None:
        world = ReceivingWorld(is_fifo=True)
        world.brokers.unknown_fields.add(UNDELIVERED_FLAG)
        self.begin_and_cut(world, 2, long_polling_timeout={"seconds": 8})
        elsewhere = world.another_proxy()
        call, done = elsewhere.begin(long_polling_timeout={"seconds": 20})
        world.send(b"one")
        world.pass_time(6)
        assert not done.called
        world.pass_time(6)
        assert done.called
        (message,) = received(call).messages
        assert message.system_properties.delivery_attempt == 2

    def test_what_they_took_comes_back_soon_where_none_is_left(self) -> None:
        world = ReceivingWorld()
        self.begin_and_cut(world, 1)
        world.send(b"one")
        world.pass_time(0.5)
        (message,) = world.receive(long_polling_timeout={"seconds": 4}).messages
        assert message.system_properties.delivery_attempt == 2

    def test_what_they_took_waits_for_the_last_of_the_same_source_alone(self) -> None:
        world = ReceivingWorld(retry_max_times=3)
        world.broker.add_topic("Other", read_queue_nums=1, write_queue_nums=1)
        world.brokers.add_topic("Other", {"broker-a": 1})
        other = pb.MessageQueue(topic=pb.Resource(name="Other"))
        self.begin_and_cut(world, 1, message_queue=other)
        self.begin_and_cut(world, 2, long_polling_timeout={"seconds": 8})
        world.send(b"one")
        world.pass_time(6)
        call, done = world.begin(long_polling_timeout={"seconds": 20})
        assert call.sent == []
        world.pass_time(6)
        assert done.called
        (message,) = received(call).messages
        assert message.system_properties.delivery_attempt == 2

    @pytest.mark.parametrize(
        "fields",
        [
            {"filter_expression": tag("A")},
            {"filter_expression": sql("a IS NULL")},
        ],
    )
    def test_one_that_waits_for_others_gets_nothing_from_them(self, fields: dict[str, Any]) -> None:
        world = ReceivingWorld(broker={"enable_property_filter": True})
        self.begin_and_cut(world, 1)
        call, done = world.begin(long_polling_timeout={"seconds": 20}, **fields)
        world.send(b"one", tag="A")
        world.pass_time(0.75)
        assert not done.called
        world.until(done)
        (message,) = received(call).messages
        assert (message.body, message.system_properties.delivery_attempt) == (b"one", 2)

    def test_what_it_gets_is_hidden_for_as_long_as_it_asked_for(self) -> None:
        world = ReceivingWorld()
        self.begin_and_cut(world, 1, invisible_duration={"seconds": 3600})
        waiting = {"long_polling_timeout": {"seconds": 20}}
        call, done = world.begin(invisible_duration={"seconds": 40}, **waiting)
        world.send(b"one")
        world.pass_time(0.5)
        assert done.called
        (message,) = received(call).messages
        assert message.system_properties.delivery_attempt == 1
        handle = parse_receipt_handle(message.system_properties.receipt_handle)
        assert world.ack(message).status.code == Code.OK
        assert abs(handle.visible_at - world.broker.now_ms() - 40_000) <= 1_000

    @pytest.mark.parametrize("is_fifo", [False, True])
    @pytest.mark.parametrize("seconds", [30, 40])
    def test_one_that_waits_gets_what_a_client_takes_that_cuts_its_receives(
        self, is_fifo: bool, seconds: int
    ) -> None:
        """They hide it for other times, and are other attempts that it does not make again."""
        world = ReceivingWorld(is_fifo=is_fifo)
        for number in range(4):
            fields = {"attempt_id": f"{number}", "invisible_duration": {"seconds": seconds}}
            cut, _ = world.begin(world.call("cuts"), long_polling_timeout={"seconds": 20}, **fields)
            if number == 0:
                call, done = world.begin(attempt_id="other", long_polling_timeout={"seconds": 20})
            world.pass_time(1)
            if number < 3:
                cut.finish()
        world.send(b"one")
        world.pass_time(0.5)
        assert done.called and cut.sent == []
        (message,) = received(call).messages
        assert message.system_properties.delivery_attempt == 1
        assert world.ack(message).status.code == Code.OK

    @pytest.mark.parametrize("is_elsewhere", [False, True])
    def test_in_order_an_attempt_whose_message_another_has_does_not_get_it(
        self, is_elsewhere: bool
    ) -> None:
        world = ReceivingWorld(is_fifo=True)
        again = world.another_proxy() if is_elsewhere else world
        waiting = {"long_polling_timeout": {"seconds": 20}}
        self.begin_and_cut(world, 1, attempt_id="first", **waiting)
        self.begin_and_cut(world, 1, attempt_id="second", **waiting)
        call, _ = world.begin(world.call("other"), attempt_id="third", **waiting)
        world.send(b"one")
        world.pass_time(0.5)
        (message,) = received(call).messages
        _, done = again.begin(attempt_id="first", **waiting)
        world.pass_time(3)
        assert not done.called
        assert world.ack(message).status.code == Code.OK
        assert world.broker.offsets.query("G", "Topic", 0) == 1

    def test_in_order_an_attempt_that_has_its_message_at_another_proxy_keeps_it(self) -> None:
        """It took it while this proxy was about to give it to another one."""
        world = ReceivingWorld(is_fifo=True)
        waiting = {"long_polling_timeout": {"seconds": 20}}
        world.brokers.late[RequestCode.POP_MESSAGE] = 1
        self.begin_and_cut(world, 1, attempt_id="first", **waiting)
        del world.brokers.late[RequestCode.POP_MESSAGE]
        self.begin_and_cut(world, 1, attempt_id="second", **waiting)
        other, _ = world.begin(world.call("other"), attempt_id="third", **waiting)
        world.send(b"one")
        world.pass_time(0.5)
        elsewhere = world.another_proxy()
        (message,) = elsewhere.receive(attempt_id="first").messages
        world.pass_time(3)
        assert other.sent == []
        assert elsewhere.ack(message).status.code == Code.OK
        assert world.broker.offsets.query("G", "Topic", 0) == 1

    def test_what_cannot_be_hidden_for_the_one_that_waits_comes_back(self) -> None:
        world = ReceivingWorld()
        self.begin_and_cut(world, 1, invisible_duration={"seconds": 40})
        call, done = world.begin(long_polling_timeout={"seconds": 20})
        change = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        world.brokers.answer(change, lambda request: request.response(ResponseCode.SYSTEM_ERROR))
        world.send(b"one")
        world.pass_time(0.5)
        assert not done.called
        world.brokers.answers_itself(change)
        world.pass_time(25)
        messages = received(call).messages
        while not messages:
            messages = world.receive(long_polling_timeout={"seconds": 20}).messages
        assert [each.body for each in messages] == [b"one"]

    def test_what_is_hidden_for_one_that_is_cut_meanwhile_comes_back(self) -> None:
        world = ReceivingWorld()
        self.begin_and_cut(world, 1, invisible_duration={"seconds": 3600})
        call, _ = world.begin(long_polling_timeout={"seconds": 20})
        world.brokers.late[RequestCode.CHANGE_MESSAGE_INVISIBLETIME] = 1
        world.send(b"one")
        world.pass_time(0.5)
        call.finish()
        world.pass_time(22)
        assert world.receive(long_polling_timeout={"seconds": 20}).bodies == [b"one"]

    def test_in_order_an_attempt_that_is_made_again_has_its_message_alone(self) -> None:
        """Stock's broker gives it the messages of its first try again."""
        world = ReceivingWorld(is_fifo=True)
        world.brokers.unknown_fields.add(UNDELIVERED_FLAG)
        self.begin_and_cut(world, 1, attempt_id="first")
        waiting = {"long_polling_timeout": {"seconds": 20}}
        other, _ = world.begin(world.call("other"), attempt_id="other", **waiting)
        world.send(b"one"), world.pass_time(0.5)
        world.send(b"two")
        assert other.sent == []
        again = world.receive(attempt_id="first", **waiting)
        assert again.bodies[:1] == [b"one"]
        assert other.sent == []
        assert world.ack(*again.messages).status.code == Code.OK

    @pytest.mark.parametrize("more", [0, 1])
    def test_in_order_an_attempt_that_is_made_again_at_another_proxy(self, more: int) -> None:
        """What the poll takes that is left at the first one comes back, which counts as the same
        delivery at stock's broker too."""
        world = ReceivingWorld(is_fifo=True)
        world.brokers.unknown_fields.add(UNDELIVERED_FLAG)
        waiting = {"attempt_id": "first", "long_polling_timeout": {"seconds": 20}}
        self.begin_and_cut(world, 1, **waiting)
        elsewhere = world.another_proxy()
        call, done = elsewhere.begin(**waiting)
        for number in range(1 + more):
            world.send(b"%d" % number)
            world.pass_time(0.25)
        world.pass_time(1.5)
        assert done.called
        messages = received(call).messages
        assert [each.body for each in messages] == [b"0", b"1"][: 1 + more]
        assert [each.system_properties.delivery_attempt for each in messages] == [1] * (1 + more)
        world.pass_time(5)
        assert elsewhere.ack(*messages).status.code == Code.OK
        assert world.broker.offsets.query("G", "Topic", 0) == 1 + more

    def test_in_order_an_attempt_that_is_made_again_hides_as_it_asks_for(self) -> None:
        world = ReceivingWorld(is_fifo=True)
        first = {"attempt_id": "first", "long_polling_timeout": {"seconds": 5}}
        self.begin_and_cut(world, 1, invisible_duration={"seconds": 60}, **first)
        call, _ = world.begin(invisible_duration={"seconds": 30}, **first)
        world.send(b"one")
        world.pass_time(0.5)
        (message,) = received(call).messages
        assert world.receive(long_polling_timeout={"seconds": 20}).bodies == []
        assert world.ack(message).status.code == Code.OK
        assert world.broker.offsets.query("G", "Topic", 0) == 1

    @pytest.mark.parametrize("is_cut", [False, True])
    @pytest.mark.parametrize("is_local", [False, True])
    def test_in_order_an_attempt_that_is_made_again_takes_the_place_of_its_former_try(
        self, is_local: bool, is_cut: bool
    ) -> None:
        """Its client may know that a connection is lost before the proxy does."""
        world = ReceivingWorld(is_fifo=True, is_local=is_local)
        waiting = {"attempt_id": "first", "long_polling_timeout": {"seconds": 20}}
        former = []
        for _ in range(3):
            former.append(world.begin(**waiting))
            world.pass_time(0.5)
            if is_cut:
                former[-1][0].finish()
        again, done = world.begin(**waiting)
        assert all(each.called for _, each in former)
        world.send(b"one")
        world.pass_time(0.5)
        assert done.called
        (message,) = received(again).messages
        assert message.system_properties.delivery_attempt == 1
        assert world.ack(message).status.code == Code.OK
        world.send(b"two")
        world.pass_time(25)
        assert world.receive(long_polling_timeout={"seconds": 10}).bodies == [b"two"]

    def test_in_order_the_next_try_waits_on_where_the_former_poll_brings_nothing(self) -> None:
        world = ReceivingWorld(is_fifo=True)
        self.begin_and_cut(world, 1, attempt_id="first", long_polling_timeout={"seconds": 5})
        call, done = world.begin(attempt_id="first", long_polling_timeout={"seconds": 12})
        world.pass_time(8)
        assert not done.called
        assert [header.poll_time // 100 for _, header in pops(world)] == [50, 75]
        world.send(b"one")
        world.pass_time(0.5)
        assert received(call).bodies == [b"one"]

    def test_in_order_a_next_try_that_is_cut_waits_for_nothing(self) -> None:
        world = ReceivingWorld(is_fifo=True)
        waiting = {"attempt_id": "first", "long_polling_timeout": {"seconds": 5}}
        self.begin_and_cut(world, 1, **waiting)
        call, done = world.begin(**waiting)
        call.finish()
        assert done.called
        world.pass_time(6)
        assert len(pops(world)) == 1
        call, done = world.begin(**waiting)
        world.send(b"one")
        world.pass_time(0.5)
        assert received(call).bodies == [b"one"]

    @pytest.mark.parametrize("sends", [False, True])
    def test_in_order_each_client_that_makes_an_attempt_again_is_answered(
        self, sends: bool
    ) -> None:
        """The calls have no deadline, which would end them."""
        world = ReceivingWorld(is_fifo=True)
        waiting = {"attempt_id": "first", "long_polling_timeout": {"seconds": 20}}
        self.begin_and_cut(world, 1, **waiting)
        begun = []
        for client_id in ("a", "b", "c"):
            begun.append(world.begin(world.call(client_id, None), **waiting))
            world.pass_time(1)
        if sends:
            world.send(b"one")
        world.pass_time(25)
        assert [done.called for _, done in begun] == [True] * 3
        assert received(begun[0][0]).bodies == [b"one"] * sends

    @pytest.mark.parametrize("is_fifo", [False, True])
    def test_what_comes_back_keeps_the_order_of_a_group(self, is_fifo: bool) -> None:
        world = ReceivingWorld(is_fifo=is_fifo)
        self.begin_and_cut(world, 1, invisible_duration={"seconds": 3600})
        call, done = world.begin(world.call("other"), long_polling_timeout={"seconds": 20})
        for body in (b"one", b"two", b"three"):
            world.send(body)
        world.until(done)
        bodies = received(call).bodies
        world.ack(*received(call).messages)
        while len(bodies) < 3:
            more = world.receive(long_polling_timeout={"seconds": 5})
            assert more.messages
            world.ack(*more.messages)
            bodies += more.bodies
        assert sorted(bodies) == [b"one", b"three", b"two"]
        assert not is_fifo or bodies == [b"one", b"two", b"three"]

    @pytest.mark.parametrize("is_fifo", [False, True])
    def test_a_receive_that_is_cut_ends_at_once(self, is_fifo: bool) -> None:
        world = ReceivingWorld(is_fifo=is_fifo)
        begun = [world.begin(long_polling_timeout={"seconds": 20}) for _ in range(3)]
        world.pass_time(0.5)
        for call, done in begun:
            call.finish()
            assert done.called
            assert call.sent == []

    def test_a_client_that_cuts_its_receives_has_room_for_more(self) -> None:
        world = ReceivingWorld()
        limits = GrpcConfig(connections=Http2Limits(streams=3))
        server = GrpcInMemory(world.methods, limits, clock=world.clock)
        client = server.connect()
        for _ in range(10):
            response = ask_renewing(client)
            world.pass_time(0.25)
            assert response.reset is None
            client.h2.reset_stream(max(client.responses), 8)
            client.flush()
        world.pass_time(0.25)
        assert server.used == 0

    def test_no_more_are_left_at_brokers_than_that(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(polls, "MOST_LEFT", 2)
        world = ReceivingWorld()
        waiting = {"long_polling_timeout": {"seconds": 20}}
        begun = [world.begin(**waiting) for _ in range(3)]
        for call, _ in begun:
            call.finish()
        assert [done.called for _, done in begun] == [True, True, False]
        world.pass_time(21)
        assert begun[2][1].called
        call, done = world.begin(**waiting)
        call.finish()
        assert done.called

    def test_each_receive_polls_once(self) -> None:
        world = ReceivingWorld()
        self.begin_and_cut(world, 5)
        for number in range(20):
            call, done = world.begin(long_polling_timeout={"seconds": 20})
            world.send(b"%d" % number)
            world.pass_time(0.5)
            assert done.called
            assert received(call).bodies == [b"%d" % number]
            world.ack(*received(call).messages)
        assert len(pops(world)) == 25
        call, done = world.begin(long_polling_timeout={"seconds": 10})
        world.pass_time(11)
        assert done.called
        assert received(call).status.code == Code.MESSAGE_NOT_FOUND
        world.pass_time(15)
        assert len(pops(world)) == 26

    def test_of_those_that_wait_one_that_is_cut_is_passed_over(self) -> None:
        world = ReceivingWorld()
        waiting = {"long_polling_timeout": {"seconds": 20}}
        self.begin_and_cut(world, 1)
        cut, _ = world.begin(**waiting)
        call, _done = world.begin(**waiting)
        cut.finish()
        world.send(b"one"), world.pass_time(0.5)
        (message,) = received(call).messages
        assert (message.body, message.system_properties.delivery_attempt) == (b"one", 1)

    def test_nobody_gets_more_messages_than_it_asked_for(self) -> None:
        world = ReceivingWorld()
        world.brokers.late[RequestCode.POP_MESSAGE] = 1
        world.send(b"one"), world.send(b"two")
        cut, _ = world.begin()
        call, _ = world.begin(batch_size=1, long_polling_timeout={"seconds": 20})
        larger, _done = world.begin(batch_size=2, long_polling_timeout={"seconds": 20})
        cut.finish()
        world.pass_time(2)
        assert call.sent == []
        assert received(larger).bodies == [b"one", b"two"]

    def test_one_whose_client_is_gone_gets_nothing_from_them(self) -> None:
        world = ReceivingWorld()
        waiting = {"auto_renew": True, "long_polling_timeout": {"seconds": 20}}
        self.begin_and_cut(world, 1, auto_renew=True)
        gone, _ = world.begin(**waiting)
        world.clients.remove("client")
        call, _done = world.begin(world.call("other"), **waiting)
        world.send(b"one")
        world.pass_time(0.5)
        assert gone.sent == []
        assert received(call).bodies == [b"one"]

    def test_a_receive_that_is_over_asks_no_further_broker(self) -> None:
        world = ReceivingWorld()
        world.brokers.add_topic("Topic", {"broker-a": 1, "broker-b": 1})
        world.brokers.answer(RequestCode.POP_MESSAGE, lambda request: asked)
        asked: Deferred[RemotingCommand] = Deferred()
        call, done = world.begin()
        call.finish()
        asked.errback(ConnectError("a:1", "refused"))
        assert done.called
        assert len(pops(world)) == 1


class TestPollsInTheProcessOfTheirBroker:
    """They are withdrawn when their receives are over."""

    def held(self, world: ReceivingWorld) -> int:
        """How many pops the broker holds."""
        header = PollingInfoRequestHeader(consumer_group="G", topic="Topic", queue_id=-1)
        answer = world.broker.ask(RequestCode.POLLING_INFO, header)
        assert answer is not None
        return answer.header(PollingInfoResponseHeader).polling_num

    @pytest.mark.parametrize("is_fifo", [False, True])
    @pytest.mark.parametrize("renews", [False, True])
    def test_one_whose_call_is_cut_takes_nothing(self, renews: bool, is_fifo: bool) -> None:
        world = ReceivingWorld(is_local=True, is_fifo=is_fifo)
        waiting = {"auto_renew": renews, "long_polling_timeout": {"seconds": 20}}
        for attempt in ("first", "second", ""):
            call, done = world.begin(attempt_id=attempt, **waiting)
            world.pass_time(0.5)
            assert self.held(world) == 1
            call.finish()
            assert done.called
            assert self.held(world) == 0
        world.send(b"one")
        world.pass_time(0.5)
        (message,) = world.receive(**waiting).messages
        assert message.system_properties.delivery_attempt == 1
        assert world.ack(message).status.code == Code.OK

    def test_others_wait_on(self) -> None:
        world = ReceivingWorld(is_local=True)
        waiting = {"long_polling_timeout": {"seconds": 20}}
        calls = [world.begin(**waiting)[0] for _ in range(3)]
        world.pass_time(0.5)
        calls[1].finish()
        assert self.held(world) == 2
        world.send(b"one")
        world.pass_time(5)
        world.send(b"two")
        world.pass_time(0.5)
        assert [received(calls[each]).bodies for each in (0, 2)] == [[b"one"], [b"two"]]

    @pytest.mark.parametrize("renews", [False, True])
    def test_what_is_being_popped_when_the_call_is_cut_comes_back(self, renews: bool) -> None:
        world = ReceivingWorld(is_local=True)
        world.send(b"one")
        call, done = world.begin(auto_renew=renews)
        assert not done.called
        call.finish()
        assert done.called
        world.pass_time(1)
        (message,) = world.receive(long_polling_timeout={"seconds": 5}).messages
        assert message.system_properties.delivery_attempt == 2

    def test_what_is_being_popped_goes_to_one_that_waits(self) -> None:
        world = ReceivingWorld(is_local=True)
        world.send(b"one")
        cut, _ = world.begin()
        call, done = world.begin(long_polling_timeout={"seconds": 20})
        cut.finish()
        world.pass_time(0.5)
        assert done.called
        (message,) = received(call).messages
        assert message.system_properties.delivery_attempt == 1
        assert self.held(world) == 0

    def test_they_leave_nothing_behind(self) -> None:
        world = ReceivingWorld(is_local=True)
        before = tables_of(world.cluster)
        for number in range(30):
            call, done = world.begin(long_polling_timeout={"seconds": 20})
            if number % 2:
                call.finish()
                continue
            world.send(b"%d" % number)
            world.until(done)
            world.ack(*received(call).messages)
        world.pass_time(4)
        after = tables_of(world.cluster)
        names = [name for name in after if "HeldPops" in name or "LocalBrokers" in name]
        assert names
        assert {name: after[name] for name in names} == {name: before[name] for name in names}

    def test_a_broker_that_is_no_master_holds_them_elsewhere(self) -> None:
        world = ReceivingWorld(is_local=True)
        world.broker.become(RoleState(Role.SLAVE, 1))
        world.brokers.answer(RequestCode.POP_MESSAGE, lambda request: Deferred())
        call, done = world.begin(long_polling_timeout={"seconds": 20})
        call.finish()
        assert done.called
        assert len(pops(world)) == 1


class TestPackedBodies:
    def large(self, world: ReceivingWorld, mib: int = 2) -> bytes:
        """A message that unpacks to so many MiB; what it is stored as."""
        kind = CompressionType.ZSTD
        packed = compress(bytes(mib << 20), kind)
        world.broker.send(packed, sys_flag=compression_flag(kind))
        return packed

    def test_they_are_unpacked_and_those_of_too_much_are_not(self) -> None:
        world = ReceivingWorld()
        bomb = self.large(world, 40)
        self.large(world)
        assert world.receive().bodies == [bomb, bytes(2 << 20)]

    def test_one_without_room_comes_back(self) -> None:
        world = ReceivingWorld()
        self.large(world)
        call = world.call()
        call.most_held = 2 << 20
        _, done = world.begin(call)
        world.until(done)
        assert call.error is not None
        assert call.error.status == GrpcStatus.RESOURCE_EXHAUSTED
        world.pass_time(5)
        assert world.receive(long_polling_timeout={"seconds": 5}).bodies == [bytes(2 << 20)]

    @pytest.mark.parametrize("renews", [False, True])
    def test_one_whose_receiver_leaves_while_it_is_unpacked_comes_back(self, renews: bool) -> None:
        jobs: list[tuple[Callable[[], Any], Deferred[Any]]] = []

        def in_thread(job: Callable[[], Any]) -> Deferred[Any]:
            jobs.append((job, Deferred()))
            return jobs[-1][1]

        world = ReceivingWorld(in_thread=in_thread)
        self.large(world)
        call, done = world.begin(auto_renew=renews)
        world.pass_time(1)
        ((job, unpacked),) = jobs
        call.finish()
        unpacked.callback(job())
        world.until(done)
        assert not any(each.HasField("message") for each in call.sent)
        world.pass_time(5)
        assert len(world.renewal) == 0
        _, again = world.begin()
        world.pass_time(1)
        job, unpacked = jobs[-1]
        unpacked.callback(job())
        world.until(again)
        assert len(jobs) == 2


class TestBrokers:
    def two(self) -> ReceivingWorld:
        world = ReceivingWorld()
        world.brokers.add_topic("Topic", {"broker-a": 1, "broker-b": 1})
        return world

    def test_the_one_that_the_client_wants(self) -> None:
        world = self.two()
        queue = pb.MessageQueue(
            topic=pb.Resource(name="Topic"), broker=pb.Broker(name="broker-b"), id=3
        )
        for _ in range(2):
            world.receive(message_queue=queue, long_polling_timeout={"seconds": 5})
        assert [(name, header.queue_id) for name, header in pops(world)] == [("broker-b", -1)] * 2

    def test_in_turn_where_the_client_wants_none(self) -> None:
        world = self.two()
        for _ in range(2):
            world.receive(long_polling_timeout={"seconds": 5})
        assert sorted(name for name, _ in pops(world)) == ["broker-a", "broker-b"]

    def test_in_turn_for_each_topic_whatever_is_received_of_others(self) -> None:
        world = self.two()
        world.brokers.add_topic("Other", {"broker-a": 1, "broker-b": 1})
        for topic in ("Topic", "Other") * 2:
            queue = pb.MessageQueue(topic=pb.Resource(name=topic))
            world.receive(message_queue=queue, long_polling_timeout={"seconds": 5})
        asked = sorted((header.topic, name) for name, header in pops(world))
        assert asked == [(t, b) for t in ("Other", "Topic") for b in ("broker-a", "broker-b")]

    def test_another_one_where_one_cannot_be_reached(self) -> None:
        world = self.two()
        world.send(b"one")
        world.brokers.gone.add("broker-b")
        assert [world.receive().status.code for _ in range(2)] == [
            Code.OK,
            Code.MESSAGE_NOT_FOUND,
        ]

    def test_none_can_be_reached(self) -> None:
        world = self.two()
        world.brokers.gone |= {"broker-a", "broker-b"}
        status = world.receive().status
        assert status.code == Code.INTERNAL_SERVER_ERROR
        assert "cannot be reached" in status.message

    def test_too_many_wait_at_the_broker(self) -> None:
        world = ReceivingWorld()
        world.brokers.answer(
            RequestCode.POP_MESSAGE, lambda request: request.response(ResponseCode.POLLING_FULL)
        )
        assert world.receive().status.code == Code.TOO_MANY_REQUESTS

    def test_damaged_records(self) -> None:
        world = ReceivingWorld()
        world.brokers.answer(
            RequestCode.POP_MESSAGE, lambda request: request.response(body=b"x" * 100)
        )
        status = world.receive().status
        assert status.code == Code.INTERNAL_SERVER_ERROR and "damaged" in status.message


class TestRefusals:
    def test_a_topic_before_name_servers_tell_of_brokers(self) -> None:
        world = ReceivingWorld()
        world.brokers.told = False
        queue = pb.MessageQueue(topic=pb.Resource(name="Missing"))
        status = world.receive(message_queue=queue).status
        assert status.code == Code.INTERNAL_SERVER_ERROR
        assert "try again" in status.message

    def test_the_shortest_and_the_longest_invisible_time_are_keys(self) -> None:
        world = ReceivingWorld(
            min_invisible_time_mills_for_recv=20_000, max_invisible_time_mills=40_000
        )
        world.send(b"one")
        for seconds, code in [
            (19, Code.ILLEGAL_INVISIBLE_TIME),
            (41, Code.ILLEGAL_INVISIBLE_TIME),
            (20, Code.OK),
        ]:
            assert world.receive(invisible_duration={"seconds": seconds}).status.code == code

    @pytest.mark.parametrize(
        ("seconds", "said"),
        [(9, "the invisibleTime is too small"), (13 * 3600, "the invisibleTime is too large")],
    )
    def test_an_invisible_time_is_refused_in_stock_s_words(self, seconds: int, said: str) -> None:
        status = ReceivingWorld().receive(invisible_duration={"seconds": seconds}).status
        assert said in status.message

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"group": pb.Resource(name="")}, Code.ILLEGAL_CONSUMER_GROUP),
            ({"message_queue": pb.MessageQueue()}, Code.ILLEGAL_TOPIC),
            (
                {"message_queue": pb.MessageQueue(topic=pb.Resource(name="Missing"))},
                Code.TOPIC_NOT_FOUND,
            ),
            ({"batch_size": 0}, Code.BAD_REQUEST),
            ({"batch_size": -1}, Code.BAD_REQUEST),
            ({"invisible_duration": {"seconds": 9}}, Code.ILLEGAL_INVISIBLE_TIME),
            ({"invisible_duration": {"seconds": -9}}, Code.ILLEGAL_INVISIBLE_TIME),
            ({"invisible_duration": {"seconds": 13 * 3600}}, Code.ILLEGAL_INVISIBLE_TIME),
        ],
    )
    def test_what_cannot_be_received(self, fields: dict[str, Any], code: int) -> None:
        status = ReceivingWorld().receive(**fields).status
        assert status.code == code
        assert status.message

    def test_a_call_without_a_client_id(self) -> None:
        assert ReceivingWorld().receive(FakeCall("")).status.code == Code.CLIENT_ID_REQUIRED

    def test_a_topic_that_nobody_may_read(self) -> None:
        world = ReceivingWorld()
        world.brokers.add_topic("Topic", {"broker-a": 1}, perm=2)
        assert world.receive().status.code == Code.FORBIDDEN

    def test_a_group_that_does_not_exist(self) -> None:
        world = ReceivingWorld(broker={"auto_create_subscription_group": False})
        status = world.receive(group=pb.Resource(name="H")).status
        assert status.code == Code.CONSUMER_GROUP_NOT_FOUND

    def test_a_group_that_may_not_consume(self) -> None:
        world = ReceivingWorld()
        world.broker.groups.update(SubscriptionGroupConfig(group_name="G", consume_enable=False))
        assert world.receive().status.code == Code.FORBIDDEN

    def test_a_connection_that_fails_is_no_mistake_of_the_client(self) -> None:
        world = ReceivingWorld()
        world.brokers.answer(RequestCode.POP_MESSAGE, ConnectError("a:1", "refused"))
        assert world.receive().status.code == Code.INTERNAL_SERVER_ERROR


def receive_late(world: ReceivingWorld) -> FakeCall:
    """Receives a message that is hidden for 10 s while the proxy stands still for 12."""
    world.send(b"one")
    world.standstills.start()
    world.brokers.late[RequestCode.POP_MESSAGE] = 12
    call = world.call(seconds=100)
    _, done = world.begin(call, invisible_duration={"seconds": 10})
    world.clock.advance(12)
    world.brokers.late.clear()
    world.until(done)
    return call
