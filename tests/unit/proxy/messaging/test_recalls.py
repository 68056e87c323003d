from typing import Any

import pytest
from twisted.internet.task import Clock

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.ids import RecallHandle
from rocketmq_tw.net.errors import RequestTimeout
from rocketmq_tw.proxy.messaging.checks import TopicTypes
from rocketmq_tw.proxy.messaging.recalls import Recalls
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.proto.messages import (
    Code,
    RecallMessageRequest,
    RecallMessageResponse,
    Resource,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from tests.support.proxy import FakeCall, PlayedBrokers, answer_of

HANDLE = RecallHandle("T", "a", "1790000000001", "ID").encode()


class Proxy:
    """The service beside a broker that recalls what it is asked to."""

    def __init__(self, message_type: str = "DELAY", **config: Any) -> None:
        self.clock = Clock()
        self.brokers = PlayedBrokers()
        self.brokers.add_topic("T", {"a": 4}, message_type=message_type)
        self.brokers.answer(
            RequestCode.RECALL_MESSAGE,
            lambda request: request.response(header=RecallMessageResponseHeader(msg_id="ID")),
        )
        types = TopicTypes(Metadata(self.clock, self.brokers), ProxyConfig(**config))
        self.service = Recalls(self.clock, self.brokers, types)

    def recall(self, handle: str = HANDLE, topic: str = "T") -> RecallMessageResponse:
        ((_, method),) = self.service.methods().items()
        request = RecallMessageRequest(topic=Resource(name=topic), recall_handle=handle)
        return answer_of(method.handler(request, FakeCall()), self.clock)


def test_a_recall_goes_to_the_broker_of_the_handle() -> None:
    proxy = Proxy()
    response = proxy.recall()
    assert (response.status.code, response.message_id) == (Code.OK, "ID")
    (asked,) = proxy.brokers.asked
    assert (asked.broker_name, asked.timeout) == ("a", 2.0)
    header = asked.request.header(RecallMessageRequestHeader)
    assert (header.topic, header.recall_handle, header.bname) == ("T", HANDLE, "a")


@pytest.mark.parametrize(
    ("handle", "topic", "code"),
    [
        ("", "T", Code.BAD_REQUEST),
        ("nonsense", "T", Code.BAD_REQUEST),
        ("\u00e4\u00f6", "T", Code.BAD_REQUEST),
        ("A" * 5000, "T", Code.BAD_REQUEST),
        (RecallHandle("Other", "a", "1", "ID").encode(), "T", Code.BAD_REQUEST),
        (RecallHandle("T", "gone", "1", "ID").encode(), "T", Code.BAD_REQUEST),
        (HANDLE, "", Code.ILLEGAL_TOPIC),
        (HANDLE, "TBW102", Code.ILLEGAL_TOPIC),
    ],
)
def test_handles_of_nothing(handle: str, topic: str, code: int) -> None:
    proxy = Proxy()
    assert proxy.recall(handle, topic).status.code == code
    assert proxy.brokers.asked == []


def test_only_topics_with_timed_messages_have_them_recalled() -> None:
    assert Proxy("MIXED").recall().status.code == Code.OK
    refused = Proxy("NORMAL").recall().status
    assert refused.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert Proxy("NORMAL", enable_topic_message_type_check=False).recall().status.code == Code.OK


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (ResponseCode.ILLEGAL_OPERATION, Code.BAD_REQUEST),
        (ResponseCode.NO_PERMISSION, Code.FORBIDDEN),
        (ResponseCode.SYSTEM_ERROR, Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_what_the_broker_says_is_told(code: int, shown: int) -> None:
    proxy = Proxy()
    proxy.brokers.answer(RequestCode.RECALL_MESSAGE, lambda request: request.response(code, "why"))
    status = proxy.recall().status
    assert (status.code, status.message) == (shown, f"{Code.Name(shown)}: why")


def test_a_broker_that_does_not_answer() -> None:
    proxy = Proxy()
    proxy.brokers.answer(RequestCode.RECALL_MESSAGE, RequestTimeout("a:1", 370, 2))
    assert proxy.recall().status.code == Code.PROXY_TIMEOUT
