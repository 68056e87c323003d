from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import ConnectError, RequestTimeout
from rocketmq_tw.proxy.messaging.broker_times import BrokerTimes
from rocketmq_tw.proxy.messaging.claims import Claims
from rocketmq_tw.proxy.messaging.dead_letters import DeadLetters
from rocketmq_tw.proxy.messaging.popped import PopClient
from rocketmq_tw.proxy.messaging.receipt_handles import parse_receipt_handle
from rocketmq_tw.proxy.messaging.renewal import Renewal
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.proto.messages import (
    Code,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
    Resource,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pop import AckMessageRequestHeader, ChangeInvisibleTimeResponseHeader
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader
from tests.support.proxy import FakeCall, FakeClient, FakeClients, PlayedBrokers, answer_of

BURY, ACK = RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.ACK_MESSAGE
HIDE, LOOK = RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.QUERY_MESSAGE
POPPED = 1_700_000_000_000
#: Of a message at 4096 of the log of broker `a`, which came from the group's retry topic.
HANDLE = f"7 {POPPED} 60000 3 1 a 0 7 4096"


class Proxy:
    """The service beside a broker that does what it is asked."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.brokers = PlayedBrokers()
        self.brokers.add_topic("T", {"a": 1})
        for code in (BURY, ACK):
            self.brokers.answer(code, lambda request: request.response())
        self.brokers.answer(LOOK, lambda request: request.response(ResponseCode.QUERY_NOT_FOUND))
        clients = FakeClients()
        self.client = clients.join(FakeClient())
        times = BrokerTimes(self.clock)
        popped = PopClient(self.brokers, times)
        metadata = Metadata(self.clock, self.brokers)
        self.renewal = Renewal(self.clock, popped, clients, metadata, ProxyConfig())
        times.heard("a", POPPED, asked_at=0)
        claims = Claims(self.renewal, times)
        self.service = DeadLetters(self.clock, clients, popped, claims)

    def forward(self, handle: str = HANDLE, call: FakeCall | None = None, **fields: Any) -> int:
        """The code of the response."""
        values = {
            "topic": Resource(name="T"),
            "group": Resource(name="G"),
            "message_id": "ID",
            "delivery_attempt": 17,
            "max_delivery_attempts": 16,
        }
        ((_, method),) = self.service.methods().items()
        request = ForwardMessageToDeadLetterQueueRequest(receipt_handle=handle, **(values | fields))
        response = answer_of(method.handler(request, call or FakeCall()), self.clock)
        assert isinstance(response, ForwardMessageToDeadLetterQueueResponse)
        return response.status.code

    def answer_after(self, seconds: float) -> None:
        """Has the broker store dead letters late."""

        def late(request: RemotingCommand) -> Deferred[RemotingCommand]:
            return deferLater(self.clock, seconds, request.response)

        self.brokers.answer(BURY, late)

    @property
    def codes(self) -> list[int]:
        """Of the requests that the broker was asked."""
        return [each.request.code for each in self.brokers.asked]


@pytest.mark.parametrize("field", ["group", "topic"])
def test_what_another_group_received_is_no_dead_letter(field: str) -> None:
    proxy = Proxy()
    proxy.renewal.add("client", "G", "T", parse_receipt_handle(HANDLE), 0, 60_000)
    assert proxy.forward(**{field: Resource(name="Other")}) == Code.INVALID_RECEIPT_HANDLE
    assert proxy.codes == []


def test_a_message_is_stored_as_a_dead_letter_and_acknowledged() -> None:
    proxy = Proxy()
    assert proxy.forward() == Code.OK
    stored, acknowledged = proxy.brokers.asked
    assert stored.broker_name == acknowledged.broker_name == "a"
    header = stored.request.header(ConsumerSendMsgBackRequestHeader)
    assert header == ConsumerSendMsgBackRequestHeader(
        offset=4096,
        group="G",
        delay_level=-1,
        origin_msg_id="ID",
        origin_topic="%RETRY%G_T",
        max_reconsume_times=0,
        bname="a",
    )
    ack = acknowledged.request.header(AckMessageRequestHeader)
    assert (ack.consumer_group, ack.topic, ack.queue_id, ack.offset) == ("G", "%RETRY%G_T", 0, 7)
    assert acknowledged.client is proxy.client


def test_a_renewed_message_is_acknowledged_by_its_handle_of_now() -> None:
    proxy = Proxy()
    proxy.renewal.add("client", "G", "T", parse_receipt_handle(HANDLE), 0, 60_000)
    proxy.brokers.answer(
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        lambda request: request.response(
            header=ChangeInvisibleTimeResponseHeader(
                pop_time=POPPED + 50_000, invisible_time=60_000, revive_qid=3
            )
        ),
    )
    proxy.clock.advance(51)
    proxy.brokers.asked.clear()
    assert proxy.forward() == Code.OK
    ack = proxy.brokers.asked[1].request.header(AckMessageRequestHeader)
    assert ack.extra_info.split(" ")[1] == str(POPPED + 50_000)
    assert len(proxy.renewal) == 0


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, Code.CONSUMER_GROUP_NOT_FOUND),
        (ResponseCode.NO_PERMISSION, Code.FORBIDDEN),
        (ResponseCode.SYSTEM_ERROR, Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_what_is_no_dead_letter_is_not_acknowledged(code: int, shown: int) -> None:
    proxy = Proxy()
    proxy.renewal.add("client", "G", "T", parse_receipt_handle(HANDLE), 0, 60_000)
    proxy.brokers.answer(
        RequestCode.CONSUMER_SEND_MSG_BACK, lambda request: request.response(code, "why")
    )
    assert proxy.forward() == shown
    assert proxy.codes == [RequestCode.CONSUMER_SEND_MSG_BACK]
    # Its consumer works on it further.
    assert len(proxy.renewal) == 1


def test_a_call_without_time_leaves_the_message_renewed() -> None:
    proxy = Proxy()
    proxy.renewal.add("client", "G", "T", parse_receipt_handle(HANDLE), 0, 60_000)
    assert proxy.forward(call=FakeCall(deadline=0.0)) == Code.REQUEST_TIMEOUT
    assert proxy.brokers.asked == []
    proxy.brokers.answer(
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        lambda request: request.response(ResponseCode.SYSTEM_ERROR),
    )
    proxy.clock.advance(51)
    assert proxy.codes == [RequestCode.CHANGE_MESSAGE_INVISIBLETIME]


@pytest.mark.parametrize("renews", [False, True])
def test_an_acknowledgement_that_failed_is_tried_again_and_nothing_else(renews: bool) -> None:
    proxy = Proxy()
    if renews:
        proxy.renewal.add("client", "G", "T", parse_receipt_handle(HANDLE), 0, 60_000)
    proxy.brokers.answer(ACK, RequestTimeout("a:1", ACK, 3))
    assert proxy.forward() == Code.PROXY_TIMEOUT
    proxy.brokers.answer(ACK, lambda request: request.response(ResponseCode.SYSTEM_BUSY))
    assert proxy.forward() == Code.TOO_MANY_REQUESTS
    assert len(proxy.renewal) == renews
    proxy.brokers.answer(ACK, lambda request: request.response())
    assert proxy.forward() == Code.OK
    assert proxy.codes == [BURY, ACK, ACK, ACK]
    assert len(proxy.renewal) == 0


def test_a_dead_letter_that_cannot_be_acknowledged_is_one_all_the_same() -> None:
    """As where others have the message by now: its consumer asks until it is told of success."""
    proxy = Proxy()
    proxy.brokers.answer(ACK, lambda request: request.response(ResponseCode.NO_MESSAGE))
    assert proxy.forward() == Code.OK
    assert proxy.codes == [BURY, ACK]


def test_a_call_that_is_repeated_makes_no_second_dead_letter() -> None:
    """The client did not get the answer."""
    proxy = Proxy()
    assert proxy.forward() == proxy.forward() == Code.OK
    assert proxy.codes == [BURY, ACK, ACK]


@pytest.mark.parametrize("renews", [False, True])
def test_an_answer_that_comes_late_counts_for_the_call_that_is_repeated(renews: bool) -> None:
    proxy = Proxy()
    if renews:
        proxy.renewal.add("client", "G", "T", parse_receipt_handle(HANDLE), 0, 60_000)
    proxy.answer_after(7.5)
    # Each waits for 3 s at most.
    assert proxy.forward() == proxy.forward() == Code.PROXY_TIMEOUT
    assert proxy.forward() == Code.OK
    assert proxy.codes == [BURY, ACK]
    assert len(proxy.renewal) == 0


def test_an_answer_that_nobody_waits_for_counts_later() -> None:
    proxy = Proxy()
    proxy.answer_after(7)
    assert proxy.forward(call=FakeCall(deadline=1)) == Code.PROXY_TIMEOUT
    proxy.clock.advance(20)
    assert proxy.forward() == Code.OK
    assert proxy.codes == [BURY, ACK]


def test_each_delivery_of_a_message_may_become_a_dead_letter() -> None:
    proxy = Proxy()
    assert proxy.forward() == Code.OK
    assert proxy.forward(HANDLE.replace(str(POPPED), str(POPPED + 90_000))) == Code.OK
    assert proxy.forward(group=Resource(name="H")) == Code.OK
    assert proxy.codes == [BURY, ACK] * 3


@pytest.mark.parametrize(
    "error", [ConnectError("a:1", "refused"), RequestTimeout("a:1", 36, 15), "busy"]
)
def test_what_is_not_stored_or_nobody_knows_is_tried_again(error: Any) -> None:
    proxy = Proxy()
    if error == "busy":
        proxy.brokers.answer(BURY, lambda request: request.response(ResponseCode.SYSTEM_BUSY))
    else:
        proxy.brokers.answer(BURY, error)
    assert proxy.forward() != Code.OK
    proxy.brokers.answer(BURY, lambda request: request.response())
    assert proxy.forward() == Code.OK
    looks = [LOOK] if isinstance(error, RequestTimeout) else []
    assert proxy.codes == [BURY, *looks, BURY, ACK]


def test_dead_letters_are_remembered_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_tw.proxy.messaging.dead_letter_forwarding.MOST_REMEMBERED", 3)
    proxy = Proxy()
    handles = [f"7 {POPPED} 60000 3 1 a 0 7 {number}" for number in range(5)]
    assert {proxy.forward(handle) for handle in handles} == {Code.OK}
    proxy.brokers.asked.clear()
    assert proxy.forward(handles[4]) == proxy.forward(handles[2]) == Code.OK
    assert proxy.codes == [ACK, ACK]
    proxy.brokers.asked.clear()
    assert proxy.forward(handles[1]) == Code.OK
    assert proxy.codes == [BURY, ACK]
    # Of those under way too.
    proxy.answer_after(9)
    codes = [
        proxy.forward(handle, FakeCall(deadline=proxy.clock.seconds() + 0.1))
        for handle in (f"7 {POPPED} 60000 3 1 a 0 8 {number}" for number in range(5))
    ]
    assert codes == [Code.PROXY_TIMEOUT] * 3 + [Code.TOO_MANY_REQUESTS] * 2


class TestRenewalsThatGotNoAnswer:
    """The broker may accept another handle by now, which nobody knows: an acknowledgement with the
    one that is known would come to nothing."""

    def with_lost_renewal(self) -> Proxy:
        proxy = Proxy()
        proxy.renewal.add("client", "G", "T", parse_receipt_handle(HANDLE), 0, 60_000)
        proxy.brokers.answer(HIDE, RequestTimeout("a:1", HIDE, 3))
        proxy.clock.advance(51)
        proxy.brokers.asked.clear()
        return proxy

    def test_the_broker_does_not_answer_yet(self) -> None:
        proxy = self.with_lost_renewal()
        assert proxy.forward() == Code.PROXY_TIMEOUT
        assert proxy.codes == [HIDE]

    def test_the_handle_is_void(self) -> None:
        proxy = self.with_lost_renewal()
        proxy.brokers.answer(HIDE, lambda request: request.response(ResponseCode.NO_MESSAGE))
        assert proxy.forward() == Code.INVALID_RECEIPT_HANDLE
        # It comes again, and is no dead letter yet.
        assert proxy.codes == [HIDE]

    def test_the_handle_is_good(self) -> None:
        proxy = self.with_lost_renewal()
        header = ChangeInvisibleTimeResponseHeader(
            pop_time=POPPED + 51_000, invisible_time=10_000, revive_qid=3
        )
        proxy.brokers.answer(HIDE, lambda request: request.response(header=header))
        assert proxy.forward() == Code.OK
        assert proxy.codes == [HIDE, BURY, ACK]
        ack = proxy.brokers.asked[-1].request.header(AckMessageRequestHeader)
        assert ack.extra_info.split(" ")[1] == str(POPPED + 51_000)


@pytest.mark.parametrize(
    ("handle", "fields", "code"),
    [
        ("", {}, Code.INVALID_RECEIPT_HANDLE),
        ("nonsense", {}, Code.INVALID_RECEIPT_HANDLE),
        (f"7 {POPPED} 60000 3 1 a 0 7", {}, Code.INVALID_RECEIPT_HANDLE),
        (f"7 {POPPED} 60000 3 1 a 0 7 -1", {}, Code.INVALID_RECEIPT_HANDLE),
        (f"7 {POPPED} 60000 3 1 gone 0 7 4096", {}, Code.BAD_REQUEST),
        (HANDLE, {"topic": Resource()}, Code.ILLEGAL_TOPIC),
        (HANDLE, {"group": Resource()}, Code.ILLEGAL_CONSUMER_GROUP),
        (HANDLE, {"group": Resource(name="CID_RMQ_SYS_x")}, Code.ILLEGAL_CONSUMER_GROUP),
    ],
)
def test_requests_that_cannot_be_done(handle: str, fields: dict[str, Any], code: int) -> None:
    proxy = Proxy()
    assert proxy.forward(handle, **fields) == code
    assert proxy.brokers.asked == []


@pytest.mark.parametrize(
    "remark", ["no message starts at the offset 5", "look message by offset failed, 5"]
)
def test_a_handle_of_nothing_is_the_clients_mistake(remark: str) -> None:
    proxy = Proxy()
    proxy.brokers.answer(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        lambda request: request.response(ResponseCode.SYSTEM_ERROR, remark),
    )
    assert proxy.forward() == Code.INVALID_RECEIPT_HANDLE
    assert proxy.codes == [RequestCode.CONSUMER_SEND_MSG_BACK]
