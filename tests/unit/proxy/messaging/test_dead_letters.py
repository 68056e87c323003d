from typing import Any

import pytest
from twisted.internet.task import Clock

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import RequestTimeout
from rocketmq_tw.proxy.messaging.dead_letters import DeadLetters
from rocketmq_tw.proxy.messaging.popped import PopClient
from rocketmq_tw.proxy.messaging.receipt_handles import parse_receipt_handle
from rocketmq_tw.proxy.messaging.renewal import Renewal
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.proto.messaging_pb2 import (
    Code,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
    Resource,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.headers.pop import AckMessageRequestHeader, ChangeInvisibleTimeResponseHeader
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader
from tests.support.proxy import FakeCall, FakeClient, FakeClients, PlayedBrokers, answer_of

POPPED = 1_700_000_000_000
#: Of a message at 4096 of the log of broker `a`, which came from the group's retry topic.
HANDLE = f"7 {POPPED} 60000 3 1 a 0 7 4096"


class Proxy:
    """The service beside a broker that does what it is asked."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.brokers = PlayedBrokers()
        self.brokers.add_topic("T", {"a": 1})
        for code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.ACK_MESSAGE):
            self.brokers.answer(code, lambda request: request.response())
        clients = FakeClients()
        self.client = clients.join(FakeClient())
        popped = PopClient(self.brokers)
        metadata = Metadata(self.clock, self.brokers)
        self.renewal = Renewal(self.clock, popped, clients, metadata, ProxyConfig())
        self.service = DeadLetters(self.clock, clients, popped, self.renewal)

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

    @property
    def codes(self) -> list[int]:
        """Of the requests that the broker was asked."""
        return [each.request.code for each in self.brokers.asked]


@pytest.mark.parametrize("field", ["group", "topic"])
def test_what_another_group_received_is_no_dead_letter(field: str) -> None:
    proxy = Proxy()
    proxy.renewal.add("client", "G", "T", parse_receipt_handle(HANDLE), 0)
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
    proxy.renewal.add("client", "G", "T", parse_receipt_handle(HANDLE), 0)
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
    proxy.renewal.add("client", "G", "T", parse_receipt_handle(HANDLE), 0)
    proxy.brokers.answer(
        RequestCode.CONSUMER_SEND_MSG_BACK, lambda request: request.response(code, "why")
    )
    assert proxy.forward() == shown
    assert proxy.codes == [RequestCode.CONSUMER_SEND_MSG_BACK]
    # Its consumer works on it further.
    assert len(proxy.renewal) == 1


def test_a_call_without_time_leaves_the_message_renewed() -> None:
    proxy = Proxy()
    proxy.renewal.add("client", "G", "T", parse_receipt_handle(HANDLE), 0)
    assert proxy.forward(call=FakeCall(deadline=0.01)) == Code.REQUEST_TIMEOUT
    assert proxy.brokers.asked == []
    proxy.brokers.answer(
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        lambda request: request.response(ResponseCode.SYSTEM_ERROR),
    )
    proxy.clock.advance(51)
    assert proxy.codes == [RequestCode.CHANGE_MESSAGE_INVISIBLETIME]


def test_a_failed_acknowledgement_costs_a_delivery_only() -> None:
    proxy = Proxy()
    proxy.brokers.answer(RequestCode.ACK_MESSAGE, RequestTimeout("a:1", 200051, 3))
    assert proxy.forward() == Code.OK
    assert proxy.codes == [RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.ACK_MESSAGE]


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
