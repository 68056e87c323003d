"""AckMessage and ChangeInvisibleDuration, before the real broker in memory."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import ConnectionLost, RequestTimeout
from rocketmq_tw.proxy.messaging import received_messages
from rocketmq_tw.proxy.messaging.acknowledging import MAX_HANDLES, Acknowledging
from rocketmq_tw.proxy.messaging.broker_times import BrokerTimes
from rocketmq_tw.proxy.messaging.claims import Claims
from rocketmq_tw.proxy.messaging.popped import PopClient
from rocketmq_tw.proxy.messaging.receipt_handles import parse_receipt_handle
from rocketmq_tw.proxy.messaging.renewal import Renewal
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proto.messages import Code
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pop import REFUSES_MISSING_FLAG
from tests.support.proxy import FakeCall, FakeClients, PlayedBrokers
from tests.support.receiving import SERVICE, ReceivingWorld
from tests.support.wait import result_of

SOON = {"long_polling_timeout": {"seconds": 5}}
NONSENSE = "nonsense"
ACK, HIDE = RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME


def with_messages(count: int = 3, **config: Any) -> tuple[ReceivingWorld, list[Any]]:
    """A world, and messages that its client has received."""
    world = ReceivingWorld(**config)
    for number in range(count):
        world.send(b"%d" % number)
    return world, world.receive().messages


def with_messages_to_the_end(count: int, **config: Any) -> tuple[ReceivingWorld, list[Any]]:
    """A world, and messages that are not renewed, hidden for as long as renewed ones at first:
    their handles are over in 5 s, and another proxy may have renewed them."""
    world = ReceivingWorld(**config)
    for number in range(count):
        world.send(b"%d" % number)
    messages = world.receive(invisible_duration={"seconds": 60}).messages
    world.pass_time(55)
    return world, messages


def handle_of(message: Any) -> str:
    return message.system_properties.receipt_handle


def asked(world: ReceivingWorld) -> list[int]:
    """The codes of acknowledgements that brokers were asked for."""
    acks = (RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE)
    return [asked.request.code for asked in world.brokers.asked if asked.request.code in acks]


def replaced(handle: str, **parts: Any) -> str:
    """A handle with other parts."""
    names = ("start", "popped", "invisible", "revive", "kind", "broker", "queue", "offset", "log")
    found = dict(zip(names, handle.split(" "), strict=True))
    return " ".join(str(part) for part in (found | parts).values())


class TestAck:
    def test_messages_that_are_acknowledged_never_come_back(self) -> None:
        world, messages = with_messages(2)
        answer = world.ack(*messages)
        assert answer.status.code == Code.OK
        assert [entry.status.code for entry in answer.entries] == [Code.OK, Code.OK]
        assert [entry.message_id for entry in answer.entries] == ["ID-0", "ID-1"]
        assert [entry.receipt_handle for entry in answer.entries] == [
            handle_of(message) for message in messages
        ]
        world.pass_time(60)
        assert world.receive(**SOON).messages == []

    @pytest.mark.parametrize(("renews", "seconds"), [(False, 2), (True, 2), (True, 52)])
    def test_what_another_group_received(self, renews: bool, seconds: float) -> None:
        world = ReceivingWorld()
        world.send(b"1"), world.send(b"2")
        messages = world.receive(auto_renew=renews).messages
        world.pass_time(seconds)
        for some in (messages[:1], messages):
            answer = world.ack(*some, group="H")
            codes = {entry.status.code for entry in answer.entries}
            assert codes == {answer.status.code} == {Code.INVALID_RECEIPT_HANDLE}
            assert "G" in answer.entries[0].status.message
        changed = world.change(handle_of(messages[0]), 20, group="H")
        assert changed.status.code == Code.INVALID_RECEIPT_HANDLE
        assert world.ack(*messages).status.code == Code.OK

    def test_what_was_received_from_another_topic(self) -> None:
        world, messages = with_messages(1)
        world.broker.add_topic("Other", read_queue_nums=1, write_queue_nums=1)
        world.pass_time(2)
        assert world.ack(*messages, topic="Other").status.code == Code.INVALID_RECEIPT_HANDLE

    def test_an_acknowledgement_may_be_repeated(self) -> None:
        world, messages = with_messages(1)
        for _ in range(2):
            assert world.ack(*messages).status.code == Code.OK
            world.pass_time(2)

    def test_each_entry_has_its_status(self) -> None:
        world, (message, *_) = with_messages()
        answer = world.ack(NONSENSE, message)
        assert answer.status.code == Code.MULTIPLE_RESULTS
        assert [entry.status.code for entry in answer.entries] == [
            Code.INVALID_RECEIPT_HANDLE,
            Code.OK,
        ]
        assert answer.entries[0].receipt_handle == NONSENSE

    def test_a_retried_message(self) -> None:
        world, _ = with_messages(1)
        world.pass_time(35)
        (again,) = world.receive().messages
        assert world.ack(again).status.code == Code.OK
        world.pass_time(60)
        assert world.receive(**SOON).messages == []

    def test_a_handle_that_is_too_late(self) -> None:
        world, (message,) = with_messages(1)
        world.pass_time(31)
        status = world.ack(message).status
        assert status.code == Code.INVALID_RECEIPT_HANDLE
        assert "expired" in status.message
        assert status.message.startswith("INVALID_RECEIPT_HANDLE: "), "as programs look for"

    @pytest.mark.parametrize("ahead", [-86_400, -40, 40, 86_400])
    def test_a_proxy_with_a_clock_of_its_own_judges_by_the_brokers(self, ahead: int) -> None:
        world = ReceivingWorld(clock_off=ahead)
        world.send(b"1"), world.send(b"2"), world.send(b"3")
        first, second, third = world.receive().messages
        world.pass_time(29)
        changed = world.change(handle_of(first), 10)
        assert changed.status.code == world.ack(second).status.code == Code.OK
        world.pass_time(2)
        assert world.ack(third).status.code == Code.INVALID_RECEIPT_HANDLE
        assert world.change(handle_of(third), 10).status.code == Code.INVALID_RECEIPT_HANDLE
        assert world.ack(changed.receipt_handle).status.code == Code.OK

    @pytest.mark.parametrize("shift", [-3_600, -15, 15, 3_600])
    def test_a_broker_whose_clock_is_set_is_followed(self, shift: int) -> None:
        world, _ = with_messages(1)
        world.broker.shift_ms = shift * 1000
        world.send(b"1"), world.send(b"2")
        first, second = world.receive().messages
        world.pass_time(29)
        assert world.ack(first).status.code == Code.OK
        world.pass_time(2)
        assert world.ack(second).status.code == Code.INVALID_RECEIPT_HANDLE

    def test_a_pop_whose_answer_comes_late(self) -> None:
        """Others may have the message before its time is over that counts from then."""
        world, _ = with_messages(1)
        world.send(b"late")
        hidden = {"invisible_duration": {"seconds": 10}}
        world.brokers.late[RequestCode.POP_MESSAGE] = 6
        (late,) = world.receive(**hidden).messages
        world.brokers.late.clear()
        world.pass_time(5)
        (again,) = world.another_proxy().receive(**hidden).messages
        assert again.body == late.body == b"late"
        world.pass_time(2)
        assert world.ack(late).status.code == Code.INVALID_RECEIPT_HANDLE
        assert world.ack(again).status.code == Code.OK

    @pytest.mark.parametrize("ahead", [0, 40])
    def test_a_handle_of_another_proxy_goes_to_the_broker(self, ahead: int) -> None:
        world = ReceivingWorld(clock_off=ahead)
        world.send(b"1")
        (message,) = world.receive().messages
        world.pass_time(1)
        assert world.another_proxy().ack(message).status.code == Code.OK
        world.pass_time(60)
        assert world.receive(**SOON).messages == []

    def test_a_fifo_group_goes_on(self) -> None:
        world, messages = with_messages(is_fifo=True)
        assert world.ack(*messages).status.code == Code.OK
        world.send(b"next")
        assert world.receive().bodies == [b"next"]

    def test_the_same_message_twice(self) -> None:
        world, (message,) = with_messages(1)
        assert world.ack(message, message).status.code == Code.OK
        assert world.ack(message).status.code == Code.OK

    @pytest.mark.parametrize(
        ("parts", "code"),
        [
            ({"queue": 77}, Code.INVALID_RECEIPT_HANDLE),
            ({"offset": 1 << 40}, Code.INVALID_RECEIPT_HANDLE),
            ({"revive": 12345}, Code.INVALID_RECEIPT_HANDLE),
            ({"revive": -1}, Code.INVALID_RECEIPT_HANDLE),
            ({"kind": 7}, Code.INVALID_RECEIPT_HANDLE),
            ({"kind": 1}, Code.INVALID_RECEIPT_HANDLE),
            ({"start": "x"}, Code.INVALID_RECEIPT_HANDLE),
            ({"popped": 0}, Code.INVALID_RECEIPT_HANDLE),
            ({"broker": "broker-z"}, Code.BAD_REQUEST),
        ],
    )
    @pytest.mark.parametrize("is_fifo", [False, True])
    def test_forged_handles_are_the_clients_mistake(
        self, parts: dict[str, Any], code: int, is_fifo: bool
    ) -> None:
        world, messages = with_messages(1, is_fifo=is_fifo)
        status = world.ack(replaced(handle_of(messages[0]), **parts)).status
        assert status.code == code, status
        assert status.message

    def test_a_broker_that_does_not_answer(self) -> None:
        world, messages = with_messages(1)
        world.brokers.answer(
            RequestCode.ACK_MESSAGE, RequestTimeout("a:1", RequestCode.ACK_MESSAGE, 3)
        )
        assert world.ack(*messages).status.code == Code.PROXY_TIMEOUT

    @pytest.mark.parametrize("count", [0, MAX_HANDLES + 1])
    def test_as_many_entries_as_may_be(self, count: int) -> None:
        assert ReceivingWorld().ack(*[NONSENSE] * count).status.code == Code.BAD_REQUEST

    def test_a_call_without_a_client_id(self) -> None:
        world = ReceivingWorld()
        assert world.ack(NONSENSE, call=FakeCall("")).status.code == Code.CLIENT_ID_REQUIRED


class TestBatches:
    def test_a_broker_is_asked_once(self) -> None:
        world, messages = with_messages(5, enable_batch_ack=True)
        assert world.ack(*messages).status.code == Code.OK
        assert asked(world) == [RequestCode.BATCH_ACK_MESSAGE]
        world.pass_time(60)
        assert world.receive(**SOON).messages == []

    def test_messages_of_several_check_points(self) -> None:
        world = ReceivingWorld(queues=3, enable_batch_ack=True)
        for queue_id in range(3):
            world.send(b"%d" % queue_id, queue_id=queue_id)
        messages = [message for _ in range(3) for message in world.receive(batch_size=1).messages]
        assert world.ack(*messages, NONSENSE).status.code == Code.MULTIPLE_RESULTS
        assert asked(world) == [RequestCode.BATCH_ACK_MESSAGE]
        world.pass_time(60)
        assert world.receive(**SOON).messages == []

    def test_a_fifo_group(self) -> None:
        world, messages = with_messages(3, is_fifo=True, enable_batch_ack=True)
        assert world.ack(*messages).status.code == Code.OK
        assert world.broker.offsets.query("G", "Topic", 0) == 3

    def test_one_message_is_said_alone(self) -> None:
        world, messages = with_messages(1, enable_batch_ack=True)
        world.ack(*messages)
        assert asked(world) == [RequestCode.ACK_MESSAGE]

    def test_a_broker_that_takes_no_batches_is_asked_for_each(self) -> None:
        world, messages = with_messages(2, enable_batch_ack=True)
        world.brokers.answer(
            RequestCode.BATCH_ACK_MESSAGE,
            lambda request: request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
        )
        assert world.ack(*messages).status.code == Code.OK
        world.pass_time(60)
        assert world.receive(**SOON).messages == []

    def test_one_bad_entry_of_a_batch_spoils_no_other(self) -> None:
        world, messages = with_messages(2, enable_batch_ack=True)
        bad = replaced(handle_of(messages[0]), revive=12345)
        answer = world.ack(bad, *messages)
        assert [entry.status.code for entry in answer.entries] == [
            Code.INVALID_RECEIPT_HANDLE,
            Code.OK,
            Code.OK,
        ]

    @pytest.mark.parametrize("is_fifo", [False, True])
    def test_what_was_received_from_a_topic_with_more_messages(self, is_fifo: bool) -> None:
        world, (first, *messages) = with_messages(3, is_fifo=is_fifo, enable_batch_ack=True)
        world.broker.add_topic("Other", read_queue_nums=1, write_queue_nums=1)
        assert world.ack(first).status.code == Code.OK
        answer = world.ack(*messages, topic="Other")
        codes = [entry.status.code for entry in answer.entries]
        assert codes == [Code.INVALID_RECEIPT_HANDLE] * 2
        assert world.ack(*messages).status.code == Code.OK
        world.pass_time(60)
        assert world.receive(**SOON).messages == []

    def test_stocks_broker_passes_over_what_the_topic_has_not(self) -> None:
        world, (_, *messages) = with_messages(3, enable_batch_ack=True)
        world.broker.add_topic("Other", read_queue_nums=1, write_queue_nums=1)
        world.brokers.unknown_fields = {REFUSES_MISSING_FLAG}
        assert world.ack(*messages, topic="Other").status.code == Code.OK
        world.pass_time(60)
        assert world.receive(**SOON).bodies == [b"0", b"1", b"2"]

    def test_a_distance_that_needs_many_bits_is_no_batch(self) -> None:
        world, messages = with_messages(2, enable_batch_ack=True)
        far = [replaced(handle_of(message), offset=1 << 60) for message in messages]
        assert world.ack(*far).status.code == Code.INVALID_RECEIPT_HANDLE
        assert RequestCode.BATCH_ACK_MESSAGE not in asked(world)


class TestClientsThatWent:
    """As the Java client, which says that it goes and acknowledges what it was at work on."""

    @pytest.mark.parametrize("seconds", [0, 0.25, 0.75])
    def test_what_they_acknowledge_at_once_does_not_come_back(self, seconds: float) -> None:
        world = ReceivingWorld()
        world.send(b"one")
        (message,) = world.receive(auto_renew=True).messages
        world.clients.remove("client")
        world.clock.advance(seconds)
        assert world.ack(message).status.code == Code.OK
        world.pass_time(100)
        assert world.receive(long_polling_timeout={"seconds": 5}).messages == []
        assert len(world.renewal) == 0

    @pytest.mark.parametrize("seconds", [2, 30, 100])
    def test_they_are_told_what_has_come_back(self, seconds: float) -> None:
        world = ReceivingWorld()
        world.send(b"one")
        (message,) = world.receive(auto_renew=True).messages
        world.clients.remove("client")
        world.pass_time(seconds)
        assert world.ack(message).status.code == Code.INVALID_RECEIPT_HANDLE
        assert world.receive(long_polling_timeout={"seconds": 5}).bodies == [b"one"]

    def test_what_comes_to_nothing_comes_back(self) -> None:
        world = ReceivingWorld()
        world.send(b"one")
        (message,) = world.receive(auto_renew=True).messages
        world.brokers.answer(
            RequestCode.ACK_MESSAGE, RequestTimeout("broker-a:1", RequestCode.ACK_MESSAGE, 3)
        )
        world.clients.remove("client")
        assert world.ack(message).status.code == Code.PROXY_TIMEOUT
        world.pass_time(5)
        assert world.receive(long_polling_timeout={"seconds": 5}).bodies == [b"one"]


class TestRenewedMessages:
    def test_the_clients_handle_counts_after_a_renewal(self) -> None:
        world = ReceivingWorld()
        world.send(b"slow")
        (message,) = world.receive(auto_renew=True).messages
        world.pass_time(100)
        assert world.ack(message).status.code == Code.OK
        assert len(world.renewal) == 0
        world.pass_time(400)
        assert world.receive(**SOON).messages == []

    def test_an_acknowledgement_that_was_lost_can_be_tried_again(self) -> None:
        world = ReceivingWorld()
        world.send(b"slow")
        (message,) = world.receive(auto_renew=True).messages
        world.pass_time(100)
        lost = RequestTimeout("a:1", RequestCode.ACK_MESSAGE, 3)
        world.brokers.answer(RequestCode.ACK_MESSAGE, lost)
        assert world.ack(message).status.code == Code.PROXY_TIMEOUT
        del world.brokers._answers[RequestCode.ACK_MESSAGE]
        assert world.ack(message).status.code == Code.OK
        world.pass_time(400)
        assert world.receive(**SOON).messages == []

    def test_another_proxy_takes_the_handle_while_it_is_good(self) -> None:
        world = ReceivingWorld()
        world.send(b"one")
        (message,) = world.receive(auto_renew=True).messages
        world.pass_time(5)
        assert world.another_proxy().ack(message).status.code == Code.OK
        world.pass_time(400)
        assert len(world.renewal) == 0
        assert world.receive(**SOON).messages == []

    @pytest.mark.parametrize("knows_the_time", [False, True])
    def test_what_another_proxy_has_renewed_is_not_acknowledged_by_the_former_handle(
        self, knows_the_time: bool
    ) -> None:
        """The broker would say OK, and the message would come again."""
        world = ReceivingWorld()
        world.send(b"one")
        (message,) = world.receive(auto_renew=True).messages
        other = world.another_proxy()
        if knows_the_time:
            world.send(b"two")
            (second,) = other.receive(**SOON).messages
            assert other.ack(second).status.code == Code.OK
        world.pass_time(55)
        assert other.ack(message).status.code == Code.INVALID_RECEIPT_HANDLE
        assert world.ack(message).status.code == Code.OK
        world.pass_time(100)
        assert world.receive(**SOON).messages == []

    @pytest.mark.parametrize("error", [RequestTimeout("a:1", ACK, 3), ConnectionLost("a", "lost")])
    def test_a_handle_that_was_made_sure_of_outlasts_a_broker_that_does_not_answer(
        self, error: Exception
    ) -> None:
        """The client has the former handle still, which is void."""
        world, (message,) = with_messages_to_the_end(1)
        world.brokers.answer(ACK, error)
        assert world.ack(message).status.code != Code.OK
        world.brokers.answers_itself(ACK)
        assert world.ack(message).status.code == Code.OK
        world.pass_time(100)
        assert world.receive(**SOON).messages == []

    @pytest.mark.parametrize("spoilt_by", ["a bad handle", "the broker", "one only"])
    def test_one_bad_entry_of_a_batch_spoils_no_doubted_one(self, spoilt_by: str) -> None:
        world, messages = with_messages_to_the_end(2, enable_batch_ack=True)
        if spoilt_by == "a bad handle":
            messages.append(replaced(handle_of(messages[0]), revive=12345))
        elif spoilt_by == "one only":
            messages.append(replaced(handle_of(messages.pop()), queue=77))
        else:
            batch = RequestCode.BATCH_ACK_MESSAGE
            world.brokers.answer(batch, lambda asked: asked.response(ResponseCode.SYSTEM_ERROR))
        answer = world.ack(*messages)
        good = [isinstance(message, pb.Message) for message in messages]
        assert [entry.status.code == Code.OK for entry in answer.entries] == good
        world.pass_time(100)
        left = [] if spoilt_by != "one only" else [b"1"]
        assert world.receive(**SOON).bodies == left

    @pytest.mark.parametrize("renews", [False, True])
    @pytest.mark.parametrize("first_at", [20, 40, 55])
    def test_a_late_acknowledgement_may_be_repeated(self, first_at: int, renews: bool) -> None:
        """As by a client that did not get the answer."""
        world = ReceivingWorld()
        world.send(b"one")
        hidden = {"auto_renew": True} if renews else {"invisible_duration": {"seconds": 60}}
        (message,) = world.receive(**hidden).messages
        world.pass_time(first_at)
        assert world.ack(message).status.code == Code.OK
        world.pass_time(57 - first_at)
        if first_at > 20:
            assert world.ack(message).status.code == Code.OK
        world.pass_time(100)
        assert world.receive(**SOON).messages == []

    @pytest.mark.parametrize("is_fifo", [False, True])
    def test_what_another_proxy_has_renewed_is_no_dead_letter_by_the_former_handle(
        self, is_fifo: bool
    ) -> None:
        world = ReceivingWorld(is_fifo=is_fifo)
        world.send(b"one")
        (message,) = world.receive(auto_renew=True).messages
        other = world.another_proxy()
        world.pass_time(55)
        # In order, the handle stays good.
        wanted = Code.OK if is_fifo else Code.INVALID_RECEIPT_HANDLE
        assert other.forward(message).status.code == wanted
        if not is_fifo:
            assert world.forward(message).status.code == Code.OK
        assert len(world.broker.consume("%DLQ%G")) == 1
        world.pass_time(100)
        assert world.receive(**SOON).messages == []

    @pytest.mark.parametrize("is_fifo", [False, True])
    def test_a_handle_is_good_at_a_proxy_that_was_killed_and_is_back(self, is_fifo: bool) -> None:
        """And for all that can be asked with it."""
        world = ReceivingWorld(is_fifo=is_fifo)
        for body in (b"acknowledged", b"hidden"):
            world.send(body)
        first, second = world.receive().messages
        back = world.another_proxy()
        back.pass_time(5)
        assert back.ack(first).status.code == Code.OK
        changed = back.change(handle_of(second), 40)
        assert changed.status.code == Code.OK
        assert back.another_proxy().ack(changed.receipt_handle).status.code == Code.OK
        back.pass_time(100)
        assert back.receive(**SOON).messages == []

    @pytest.mark.parametrize("moved_at", [10, 45])
    def test_a_client_goes_on_at_another_proxy(self, moved_at: int) -> None:
        world = ReceivingWorld()
        world.send(b"one")
        (message,) = world.receive(auto_renew=True).messages
        other = world.another_proxy()
        world.pass_time(moved_at)
        assert world.client.stream is not None
        world.client.stream.finish(None)
        world.pass_time(10)
        assert other.ack(message).status.code == Code.OK
        for _ in range(20):
            world.pass_time(10)
            list(world.clients.expire())
            assert other.receive(**SOON).messages == []

    @pytest.mark.parametrize("first", ["ack", "stop"])
    def test_a_client_of_a_proxy_that_stops_goes_on_at_another_one(self, first: str) -> None:
        world = ReceivingWorld()
        world.send(b"one")
        (message,) = world.receive(auto_renew=True).messages
        other = world.another_proxy()
        world.pass_time(5)
        if first == "stop":
            world.renewal.stop()
            world.pass_time(2)
        assert other.ack(message).status.code == Code.OK
        if first == "ack":
            world.renewal.stop()
        for _ in range(10):
            world.pass_time(10)
            assert other.receive(**SOON).messages == []

    def test_what_others_have_is_not_hidden_once_more(self) -> None:
        """The renewals did not come to the broker in time."""
        world = ReceivingWorld()
        world.send(b"one")
        (message,) = world.receive(auto_renew=True).messages
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        world.brokers.answer(code, RequestTimeout("a:1", code, 3))
        world.pass_time(61)
        world.brokers.answers_itself(code)
        other = world.another_proxy()
        (again,) = other.receive().messages
        assert world.ack(message).status.code == Code.INVALID_RECEIPT_HANDLE
        world.pass_time(10)
        assert other.ack(again).status.code == Code.OK
        for _ in range(10):
            world.pass_time(10)
            assert other.receive(**SOON).messages == []


def renewing(**config: Any) -> tuple[ReceivingWorld, Any]:
    """A world, and a message that is renewed after 50 and 100 s."""
    world = ReceivingWorld(**config)
    world.send(b"slow")
    (message,) = world.receive(auto_renew=True).messages
    return world, message


class TestRefusedRenewals:
    @pytest.mark.parametrize("seconds", [45, 95])
    @pytest.mark.parametrize(
        "code",
        [
            ResponseCode.SYSTEM_BUSY,
            ResponseCode.FLOW_CONTROL,
            ResponseCode.SERVICE_NOT_AVAILABLE,
            ResponseCode.SYSTEM_ERROR,
        ],
    )
    def test_one_that_passes_costs_nothing(self, code: int, seconds: int) -> None:
        world, message = renewing()
        world.pass_time(seconds)
        world.brokers.answer(HIDE, lambda request: request.response(code, "not now"))
        world.pass_time(7)
        world.brokers.answers_itself(HIDE)
        world.pass_time(100)
        assert len(world.renewal) == 1
        assert world.ack(message).status.code == Code.OK
        world.pass_time(400)
        assert world.receive(**SOON).messages == []

    @pytest.mark.parametrize("seconds", [45, 95])
    def test_the_message_is_its_clients_until_its_time_is_over(self, seconds: int) -> None:
        world, message = renewing(renew_ahead_time_millis=20_000)
        world.pass_time(seconds - 10)
        world.brokers.answer(
            HIDE, lambda request: request.response(ResponseCode.SYSTEM_BUSY, "busy")
        )
        world.pass_time(20)
        assert world.ack(message).status.code == Code.OK
        world.pass_time(400)
        assert world.receive(**SOON).messages == []


class TestAnswersThatComeLate:
    """The broker has carried out what it was asked: only its answer has the handle that is good."""

    @pytest.mark.parametrize("seconds", [50.5, 54, 60])
    def test_a_renewal(self, seconds: float) -> None:
        world, message = renewing()
        world.pass_time(45)
        world.brokers.late[HIDE] = 6
        world.pass_time(seconds - 45)
        assert world.ack(message).status.code == Code.OK
        world.pass_time(400)
        assert world.receive(**SOON).messages == []

    @pytest.mark.parametrize("renews", [False, True])
    def test_a_change_of_which_the_client_did_not_hear(self, renews: bool) -> None:
        """Its call ended before."""
        world = ReceivingWorld()
        world.send(b"changed")
        (message,) = world.receive(auto_renew=renews).messages
        world.brokers.late[HIDE] = 2
        call = world.call()
        world.clock.callLater(1, call.finish)
        world.change(handle_of(message), 40, call=call)
        world.brokers.late.clear()
        assert world.change(handle_of(message), 20).status.code == Code.OK
        assert world.ack(message).status.code == Code.OK
        world.pass_time(400)
        assert world.receive(**SOON).messages == []

    def test_another_try_of_an_acknowledgement(self) -> None:
        """Of which it is not known whether the renewal came to the broker."""
        world, message = renewing()
        world.pass_time(45)
        world.brokers.answer(HIDE, ConnectionLost("a:1", "gone"))
        world.pass_time(6)
        world.brokers.answers_itself(HIDE)
        world.brokers.late[HIDE] = 4
        assert world.ack(message).status.code == Code.OK
        world.pass_time(400)
        assert world.receive(**SOON).messages == []

    def test_a_renewal_hides_from_when_it_was_asked_for(self) -> None:
        """Where the next one fails the message comes back then, not later by what its answer
        took."""
        world, message = renewing(renew_ahead_time_millis=20_000)
        world.pass_time(39)
        world.brokers.late[HIDE] = 9
        world.pass_time(11)
        world.brokers.late.clear()
        world.brokers.answer(
            HIDE, lambda request: request.response(ResponseCode.SYSTEM_BUSY, "busy")
        )
        world.pass_time(53)
        assert world.ack(message).status.code == Code.INVALID_RECEIPT_HANDLE
        assert world.receive(**SOON).bodies == [b"slow"]

    def test_a_pop_is_renewed_before_others_may_have_the_message(self) -> None:
        world = ReceivingWorld()
        world.send(b"first")
        world.receive(auto_renew=True)
        world.send(b"slow")
        world.brokers.late[RequestCode.POP_MESSAGE] = 15
        fields = {"auto_renew": True, "long_polling_timeout": {"seconds": 20}}
        (message,) = world.receive(**fields).messages
        world.brokers.late.clear()
        world.pass_time(50)
        assert world.receive(**SOON).messages == []
        assert world.ack(message).status.code == Code.OK

    def test_a_fifo_group_does_not_wait(self) -> None:
        world, message = renewing(is_fifo=True)
        world.pass_time(45)
        world.brokers.late[HIDE] = 6
        world.pass_time(9)
        assert world.ack(message).status.code == Code.OK
        assert world.clock.seconds() - 54 < 1


class TestAnswersThatDoNotCome:
    """A broker has carried out what it was asked, and voided the handle: it says OK to an
    acknowledgement with it, and the message comes again."""

    @pytest.mark.parametrize("seconds", [45, 95])
    def test_a_renewal(self, seconds: int) -> None:
        world, message = renewing()
        world.pass_time(seconds)
        world.brokers.unheard.add(HIDE)
        world.pass_time(8.5)
        world.brokers.unheard.clear()
        for _ in range(2):
            assert world.ack(message).status.code == Code.INVALID_RECEIPT_HANDLE
        world.pass_time(seconds * 3)
        assert world.receive(**SOON).bodies == [b"slow"]

    @pytest.mark.parametrize("seconds", [14, 60])
    def test_the_next_renewal_finds_that_the_handle_is_void(self, seconds: int) -> None:
        world, message = renewing()
        world.pass_time(45)
        world.brokers.lost.add(HIDE)
        world.pass_time(6)
        world.brokers.lost.clear()
        world.pass_time(seconds - 6)
        assert len(world.renewal) == 0
        assert world.ack(message).status.code == Code.INVALID_RECEIPT_HANDLE

    @pytest.mark.parametrize("seconds", [45, 95])
    def test_a_renewal_that_did_not_come_to_the_broker(self, seconds: int) -> None:
        world, message = renewing()
        world.pass_time(seconds)
        world.brokers.answer(HIDE, RequestTimeout("a:1", HIDE, 3))
        world.pass_time(8.5)
        world.brokers.answers_itself(HIDE)
        assert world.ack(message).status.code == Code.OK
        world.pass_time(400)
        assert world.receive(**SOON).messages == []

    def test_an_acknowledgement_waits_until_the_broker_answers(self) -> None:
        world, message = renewing()
        world.pass_time(45)
        world.brokers.answer(HIDE, RequestTimeout("a:1", HIDE, 3))
        world.pass_time(8)
        assert world.ack(message).status.code == Code.PROXY_TIMEOUT
        world.brokers.answers_itself(HIDE)
        assert world.ack(message).status.code == Code.OK
        world.pass_time(400)
        assert world.receive(**SOON).messages == []

    def test_a_renewal_of_a_fifo_group_leaves_the_handle_good(self) -> None:
        world, message = renewing(is_fifo=True)
        world.pass_time(45)
        world.brokers.unheard.add(HIDE)
        world.pass_time(8.5)
        assert world.ack(message).status.code == Code.OK
        world.pass_time(400)
        assert world.receive(**SOON).messages == []

    @pytest.mark.parametrize("batches", [False, True])
    @pytest.mark.parametrize("renews", [False, True])
    def test_a_change(self, renews: bool, batches: bool) -> None:
        world = ReceivingWorld(enable_batch_ack=batches)
        world.send(b"changed")
        world.send(b"other")
        message, other = world.receive(auto_renew=renews).messages
        world.brokers.unheard.add(HIDE)
        assert world.change(handle_of(message), 40).status.code == Code.PROXY_TIMEOUT
        world.brokers.unheard.clear()
        for _ in range(2):
            codes = [entry.status.code for entry in world.ack(message, other).entries]
            assert codes == [Code.INVALID_RECEIPT_HANDLE, Code.OK]
        world.pass_time(50)
        assert world.receive(**SOON).bodies == [b"changed"]

    @pytest.mark.parametrize("renews", [False, True])
    def test_a_change_that_did_not_come_to_the_broker(self, renews: bool) -> None:
        world = ReceivingWorld()
        world.send(b"one")
        (message,) = world.receive(auto_renew=renews).messages
        world.brokers.answer(HIDE, RequestTimeout("a:1", HIDE, 3))
        assert world.change(handle_of(message), 40).status.code == Code.PROXY_TIMEOUT
        world.brokers.answers_itself(HIDE)
        assert world.ack(message).status.code == Code.OK
        world.pass_time(400)
        assert world.receive(**SOON).messages == []

    @pytest.mark.parametrize("renews", [False, True])
    @pytest.mark.parametrize("then", ["ack", "forward", "change"])
    def test_what_is_asked_while_a_change_is_under_way_waits_for_it(
        self, then: str, renews: bool
    ) -> None:
        """The handle that the client has is void once the broker has carried the change out."""
        world = ReceivingWorld()
        world.send(b"one")
        (message,) = world.receive(auto_renew=renews).messages
        world.brokers.late[HIDE] = 1.0
        change = pb.ChangeInvisibleDurationRequest(
            group=pb.Resource(name="G"),
            topic=pb.Resource(name="Topic"),
            receipt_handle=handle_of(message),
            invisible_duration={"seconds": 12},
        )
        handler = world.methods[SERVICE + "ChangeInvisibleDuration"].handler
        changing = maybeDeferred(handler, change, world.call())
        if then == "change":
            changed = world.change(handle_of(message), 20)
            assert changed.status.code == Code.OK
            assert world.ack(changed.receipt_handle).status.code == Code.OK
        else:
            answer = world.ack(message) if then == "ack" else world.forward(message)
            assert answer.status.code == Code.OK
        assert world.until(changing).status.code == Code.OK
        world.pass_time(100)
        assert world.receive(**SOON).messages == []

    def test_the_former_handle_counts_behind_a_change(self) -> None:
        world = ReceivingWorld()
        world.send(b"one")
        (message,) = world.receive().messages
        assert world.change(handle_of(message), 12).status.code == Code.OK
        assert world.ack(message).status.code == Code.OK
        world.pass_time(100)
        assert world.receive(**SOON).messages == []

    def test_a_change_of_which_the_client_did_not_hear(self) -> None:
        world, message = renewing()
        assert world.change(handle_of(message), 40).status.code == Code.OK
        assert world.change(handle_of(message), 20).status.code == Code.OK
        assert world.ack(message).status.code == Code.OK
        world.pass_time(400)
        assert world.receive(**SOON).messages == []

    def test_a_message_of_a_client_that_went_comes_back(self) -> None:
        world, message = renewing()
        world.brokers.unheard.add(HIDE)
        world.clients.remove("client")
        world.pass_time(0.5)
        world.brokers.unheard.clear()
        assert world.ack(message).status.code == Code.INVALID_RECEIPT_HANDLE
        assert world.receive(**SOON).bodies == [b"slow"]


@pytest.mark.parametrize("asked", ["an empty poll", "a change", "a message"])
def test_another_proxy_knows_that_a_handle_is_over_by_any_answer_of_its_broker(asked: str) -> None:
    world = ReceivingWorld()
    other = world.another_proxy()
    world.pass_time(5)
    world.send(b"late")
    (message,) = world.receive(**SOON).messages
    handle = message.system_properties.receipt_handle
    if asked == "an empty poll":
        assert other.receive(long_polling_timeout={"seconds": 1}).messages == []
    elif asked == "a change":
        world.send(b"another")
        (another,) = world.receive(**SOON).messages
        assert other.change(another.system_properties.receipt_handle, 20).status.code == Code.OK
    else:
        world.send(b"another")
        assert len(other.receive(**SOON).messages) == 1
    world.pass_time(60)
    assert other.ack(handle).status.code == Code.INVALID_RECEIPT_HANDLE
    assert b"late" in world.receive(**SOON).bodies


def test_what_is_delivered_again_in_order_is_neither_hidden_nor_acknowledged() -> None:
    """By a handle of the delivery before, at proxies that do not know the broker's time."""
    world = ReceivingWorld(is_fifo=True)
    other, third = world.another_proxy(), world.another_proxy()
    world.send(b"one")
    (message,) = world.receive(invisible_duration={"seconds": 10}, **SOON).messages
    world.pass_time(11)
    (again,) = world.receive(invisible_duration={"seconds": 30}, **SOON).messages
    handle = message.system_properties.receipt_handle
    assert other.change(handle, 3600).status.code == Code.INVALID_RECEIPT_HANDLE
    assert third.ack(handle).status.code == Code.INVALID_RECEIPT_HANDLE
    assert third.ack(again).status.code == Code.OK
    world.pass_time(60)
    assert world.receive(**SOON).messages == []


def test_a_proxy_that_does_not_know_the_time_asks_whether_a_handle_is_over() -> None:
    world = ReceivingWorld()
    other = world.another_proxy()
    ten = {"invisible_duration": {"seconds": 10}}
    world.send(b"one"), world.send(b"two")
    first, second = world.receive(**ten).messages
    assert other.ack(second).status.code == Code.OK
    world.pass_time(15)
    (again,) = world.receive(**SOON).messages
    third = world.another_proxy()
    assert third.ack(first).status.code == Code.INVALID_RECEIPT_HANDLE
    assert third.ack(again).status.code == Code.OK


def test_those_that_clients_were_done_with_make_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A late acknowledgement may be repeated, however many there were before."""
    monkeypatch.setattr(received_messages, "_MOST_SETTLED", 3)
    world = ReceivingWorld()
    for _ in range(3):
        world.send(b"before")
    minute = {"invisible_duration": {"seconds": 60}}
    messages = world.receive(**minute).messages
    world.pass_time(20)
    assert {world.ack(message).status.code for message in messages} == {Code.OK}
    # Their handles are over by then.
    world.pass_time(100)
    world.send(b"late")
    (message,) = world.receive(**minute).messages
    world.pass_time(40)
    assert world.ack(message).status.code == Code.OK
    world.pass_time(17)
    assert world.ack(message).status.code == Code.OK


def test_a_handle_of_a_time_when_the_brokers_clock_was_ahead_ends_with_its_duration() -> None:
    clock, brokers, times = Clock(), PlayedBrokers(), BrokerTimes(Clock())
    metadata = Metadata(clock, brokers)
    renewal = Renewal(clock, PopClient(brokers, times), FakeClients(), metadata, ProxyConfig())
    times.heard("a", 1_000, asked_at=0)
    handle = parse_receipt_handle("0 7200000 60000 3 0 a 0 0 4096")
    claiming = Deferred.fromCoroutine(Claims(renewal, times).claim("client", "Topic", "G", handle))
    claim = result_of(clock, claiming)
    clock.advance(59)
    assert not claim.is_late
    clock.advance(2)
    assert claim.is_late


@pytest.mark.parametrize(("batches", "turns"), [(False, 32), (True, 16)])
def test_others_are_served_while_very_many_are_acknowledged(batches: bool, turns: int) -> None:
    """By brokers that answer at once, as one in the process does."""
    clock, brokers, clients = Clock(), PlayedBrokers(), FakeClients()
    brokers.add_topic("Topic", {"a": 1})
    for code in (RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE):
        brokers.answer(code, lambda request: request.response())
    times = BrokerTimes(clock)
    times.heard("a", 1_000, asked_at=0)
    config, popped = ProxyConfig(enable_batch_ack=batches), PopClient(brokers, times)
    renewal = Renewal(clock, popped, clients, Metadata(clock, brokers), config)
    service = Acknowledging(clock, popped, Claims(renewal, times), clients, config)

    def begin(count: int) -> Deferred[Any]:
        entries = [
            pb.AckMessageEntry(
                message_id=f"ID-{n}", receipt_handle=f"0 1000 50000 3 0 a 0 {n} 4096"
            )
            for n in range(count)
        ]
        topic, group = pb.Resource(name="Topic"), pb.Resource(name="G")
        request = pb.AckMessageRequest(topic=topic, group=group, entries=entries)
        return Deferred.fromCoroutine(service.ack(request, FakeCall()))

    served = 0

    def serve() -> None:
        nonlocal served
        served += begin(1).called
        if not many.called:
            clock.callLater(0, serve)

    many = begin(MAX_HANDLES)
    clock.callLater(0, serve)
    clock.advance(0)
    assert served == turns - 1
    answer = result_of(clock, many)
    assert [entry.message_id for entry in answer.entries] == [f"ID-{n}" for n in range(MAX_HANDLES)]
    assert {entry.status.code for entry in answer.entries} == {answer.status.code} == {Code.OK}


class TestLongRequests:
    """To a broker that hangs, which has each round of requests take 3 s."""

    def with_hanging_broker(self, **fields: Any) -> tuple[ReceivingWorld, list[Any]]:
        world = ReceivingWorld()
        for number in range(96):
            world.send(b"%d" % number)
        messages: list[Any] = []
        while len(messages) < 96:
            messages += world.receive(**fields).messages
        code = RequestCode.ACK_MESSAGE

        def late(request: RemotingCommand) -> Deferred[RemotingCommand]:
            answer: Deferred[RemotingCommand] = Deferred()
            world.clock.callLater(3, answer.errback, RequestTimeout("a:1", code, 3))
            return answer

        world.brokers.answer(code, late)
        return world, messages

    @pytest.mark.parametrize("renews", [False, True])
    def test_brokers_are_not_asked_about_what_others_may_have(self, renews: bool) -> None:
        world, messages = self.with_hanging_broker(auto_renew=renews)
        if renews:
            # So that nothing is renewed meanwhile.
            world.client.stream = None
        world.pass_time(55 if renews else 25)
        codes = [entry.status.code for entry in world.ack(*messages).entries]
        assert codes == [Code.PROXY_TIMEOUT] * 64 + [Code.INVALID_RECEIPT_HANDLE] * 32
        assert len(asked(world)) == 64

    def test_what_waits_for_its_turn_is_renewed(self) -> None:
        world, messages = self.with_hanging_broker(auto_renew=True)
        world.pass_time(45)
        codes = [entry.status.code for entry in world.ack(*messages, *messages).entries]
        assert codes == [Code.PROXY_TIMEOUT] * 192

    def test_brokers_are_not_asked_for_a_caller_that_is_gone(self) -> None:
        world, messages = self.with_hanging_broker()
        call = world.call()
        world.clock.callLater(1, call.finish)
        world.ack(*messages, call=call)
        assert len(asked(world)) == 32


class TestChange:
    def test_a_message_comes_back_earlier(self) -> None:
        world, (message,) = with_messages(1)
        answer = world.change(handle_of(message), 1)
        assert answer.status.code == Code.OK
        assert answer.receipt_handle != handle_of(message)
        world.pass_time(5)
        assert world.receive(**SOON).bodies == [b"0"]

    def test_a_message_stays_hidden_for_longer_and_has_a_new_handle(self) -> None:
        world, (message,) = with_messages(1)
        world.pass_time(20)
        handle = world.change(handle_of(message), 60).receipt_handle
        world.pass_time(40)
        assert world.receive(**SOON).messages == []
        assert world.ack(handle).status.code == Code.OK
        world.pass_time(60)
        assert world.receive(**SOON).messages == []

    def test_a_fifo_group(self) -> None:
        world, (message,) = with_messages(1, is_fifo=True)
        handle = world.change(handle_of(message), 60).receipt_handle
        world.pass_time(40)
        assert world.receive(**SOON).messages == []
        assert world.ack(handle).status.code == Code.OK
        world.send(b"next")
        assert world.receive().bodies == [b"next"]

    def test_a_message_of_a_fifo_group_that_was_acknowledged(self) -> None:
        world, (message,) = with_messages(1, is_fifo=True)
        world.ack(message)
        assert world.change(handle_of(message), 60).status.code == Code.INVALID_RECEIPT_HANDLE

    @pytest.mark.parametrize("seconds", [-1, 13 * 3600])
    def test_durations_have_limits(self, seconds: int) -> None:
        world, (message,) = with_messages(1)
        status = world.change(handle_of(message), seconds).status
        assert status.code == Code.ILLEGAL_INVISIBLE_TIME

    @pytest.mark.parametrize("handle", ["", NONSENSE])
    def test_nonsense(self, handle: str) -> None:
        assert ReceivingWorld().change(handle, 10).status.code == Code.INVALID_RECEIPT_HANDLE

    def test_a_change_that_failed_leaves_the_renewals(self) -> None:
        world = ReceivingWorld()
        world.send(b"slow")
        (message,) = world.receive(auto_renew=True).messages

        def busy(request: RemotingCommand) -> RemotingCommand:
            return request.response(ResponseCode.SYSTEM_BUSY, "busy")

        world.brokers.answer(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, busy)
        assert world.change(handle_of(message), 10).status.code == Code.TOO_MANY_REQUESTS
        del world.brokers._answers[RequestCode.CHANGE_MESSAGE_INVISIBLETIME]
        world.pass_time(100)
        assert world.receive(**SOON).messages == []

    def test_an_illegal_group(self) -> None:
        request = pb.ChangeInvisibleDurationRequest(topic=pb.Resource(name="Topic"))
        status = ReceivingWorld().ask("ChangeInvisibleDuration", request).status
        assert status.code == Code.ILLEGAL_CONSUMER_GROUP
