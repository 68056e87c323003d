"""Requests of classic clients that one broker answers."""

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.net.errors import RequestTimeout
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.pop import BatchAckMessageRequestBody
from rocketmq_tw.wire.bodies.queues import LockBatchRequestBody, MessageQueue
from rocketmq_tw.wire.bodies.topics import TopicQueueMappingInfo
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import LanguageCode, RemotingCommand, SerializeType
from rocketmq_tw.wire.errors import RequestError
from tests.support.asked import refused
from tests.support.classic import ClassicPort, classic_request, echo

#: Requests whose headers have topic and queue under their long names.
QUEUE_REQUESTS = [
    RequestCode.SEND_MESSAGE,
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
]
SHORT_SENDS = [
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
]

#: Those whose answers are the proxy's own work, and the other forms of a send.
OTHER_REQUESTS = [
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.RECALL_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.CHECK_CLIENT_CONFIG,
    RequestCode.QUERY_ASSIGNMENT,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
]


@pytest.fixture
def port() -> ClassicPort:
    port = ClassicPort()
    port.brokers.add_topic("T", {"broker-a": 4, "broker-b": 4})
    port.brokers.add_topic("Single", {"broker-b": 4})
    for code in port.requests.handlers():
        port.brokers.answer(code, echo)
    return port


def test_no_request_of_administrators_passes(port: ClassicPort) -> None:
    """A broker would log and judge it as one of the proxy: who asked would not be known."""
    of_clients = {*QUEUE_REQUESTS, *SHORT_SENDS, *OTHER_REQUESTS}
    assert set(port.requests.handlers()) == of_clients


def test_a_request_passes_with_all_that_it_has_and_so_does_its_answer(port: ClassicPort) -> None:
    request = classic_request(RequestCode.SEND_MESSAGE_V2, b"\x00body\xff", n="broker-b", i="a\1b")
    request.language, request.version = LanguageCode.GO, 300
    request.serialization = SerializeType.ROCKETMQ
    answer = port.ask(request)
    (asked,) = port.brokers.asked
    passed = asked.request
    assert (asked.broker_name, passed.code, passed.body) == ("broker-b", 310, b"\x00body\xff")
    assert passed.ext_fields == request.ext_fields
    assert (passed.language, passed.version) == (LanguageCode.GO, 300)
    assert passed.serialization is SerializeType.ROCKETMQ
    # Many clients' opaques meet on the connection to a broker.
    assert passed.opaque != request.opaque
    assert answer.is_response
    assert (answer.opaque, answer.code, answer.remark) == (request.opaque, 0, "echoed")
    assert (answer.ext_fields, answer.body) == (request.ext_fields, request.body)
    assert answer.serialization is SerializeType.ROCKETMQ


@pytest.mark.parametrize("code", QUEUE_REQUESTS)
def test_a_5x_client_names_the_broker(port: ClassicPort, code: int) -> None:
    port.ask(classic_request(code, topic="T", queueId=1, bname="broker-b"))
    assert port.asked_names() == ["broker-b"]


@pytest.mark.parametrize("code", QUEUE_REQUESTS)
def test_the_only_broker_that_has_the_queue_is_asked(port: ClassicPort, code: int) -> None:
    port.ask(classic_request(code, topic="Single", queueId=1, old=True))
    assert port.asked_names() == ["broker-b"]


@pytest.mark.parametrize("code", SHORT_SENDS)
def test_sends_with_short_names(port: ClassicPort, code: int) -> None:
    port.ask(classic_request(code, b="T", e=0, n="broker-a"))
    port.ask(classic_request(code, b="Single", e=0, old=True))
    assert port.asked_names() == ["broker-a", "broker-b"]


@pytest.mark.parametrize(
    "request_",
    [
        classic_request(RequestCode.SEND_MESSAGE_V2, b="T", e=0, old=True),
        classic_request(RequestCode.PULL_MESSAGE, topic="T", queueId=3, old=True),
        classic_request(RequestCode.POP_MESSAGE, topic="T", queueId=-1, old=True),
        classic_request(RequestCode.CONSUMER_SEND_MSG_BACK, originTopic="T", old=True),
    ],
)
def test_a_queue_that_several_brokers_have_is_refused_with_what_to_change(
    port: ClassicPort, request_: RemotingCommand
) -> None:
    with refused(ResponseCode.VERSION_NOT_SUPPORTED) as caught:
        port.ask(request_)
    assert "use a client of 5.0 or later" in caught.value.remark
    assert not port.brokers.asked


class TestStaticTopics:
    """Stock's clients name no broker of a logic queue, but one for all of them."""

    LOGIC = "__syslo__global__"

    @pytest.fixture(autouse=True)
    def led(self, port: ClassicPort) -> None:
        """Queue 0 has moved to broker-b, which the mapping of broker-a does not show yet."""
        port.brokers.routes["T"].topic_queue_mapping_by_broker = {
            name: TopicQueueMappingInfo(total_queues=2, bname=name, epoch=epoch, curr_id_map=ids)
            for name, epoch, ids in (("broker-a", 1, {0: 0, 1: 1}), ("broker-b", 2, {0: 0}))
        }

    @pytest.mark.parametrize("code", QUEUE_REQUESTS)
    def test_the_leader_is_asked(self, port: ClassicPort, code: int) -> None:
        for queue_id in (0, 1):
            port.ask(classic_request(code, topic="T", queueId=queue_id, bname=self.LOGIC))
        assert port.asked_names() == ["broker-b", "broker-a"]

    @pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
    def test_locks(self, port: ClassicPort, code: int) -> None:
        for queue_id in (0, 1):
            queue = MessageQueue(topic="T", broker_name=self.LOGIC, queue_id=queue_id)
            body = LockBatchRequestBody(consumer_group="G", client_id="c", mq_set=[queue])
            port.ask(classic_request(code, encode_body(body)))
        assert port.asked_names() == ["broker-b", "broker-a"]

    def test_a_queue_that_nobody_leads(self, port: ClassicPort) -> None:
        with refused(ResponseCode.SYSTEM_ERROR) as caught:
            port.ask(
                classic_request(RequestCode.PULL_MESSAGE, topic="T", queueId=7, bname=self.LOGIC)
            )
        assert "topic T has no queue 7" in caught.value.remark


def test_queues_that_one_broker_has_more_of(port: ClassicPort) -> None:
    port.brokers.add_topic("Uneven", {"broker-a": 2, "broker-b": 8})
    port.ask(classic_request(RequestCode.GET_MAX_OFFSET, topic="Uneven", queueId=5, old=True))
    assert port.asked_names() == ["broker-b"]


@pytest.mark.parametrize(
    ("fields", "code", "word"),
    [
        ({"topic": "Nowhere", "queueId": 0}, ResponseCode.TOPIC_NOT_EXIST, "create it"),
        ({"topic": "Single", "queueId": 4}, ResponseCode.SYSTEM_ERROR, "no queue 4"),
        ({"topic": "Single", "queueId": "x"}, ResponseCode.SYSTEM_ERROR, "give its number"),
        ({"queueId": 0}, ResponseCode.SYSTEM_ERROR, "neither broker"),
    ],
)
def test_what_names_no_queue_is_refused(
    port: ClassicPort, fields: dict[str, object], code: ResponseCode, word: str
) -> None:
    with refused(code) as caught:
        port.ask(classic_request(RequestCode.GET_MAX_OFFSET, **fields))
    assert word in caught.value.remark
    assert not port.brokers.asked


def test_a_send_may_create_its_topic_on_the_broker_of_the_default_topic(port: ClassicPort) -> None:
    port.brokers.add_topic("TBW102", {"broker-a": 8})
    port.ask(classic_request(RequestCode.SEND_MESSAGE_V2, b="New", c="TBW102", e=3, old=True))
    port.ask(
        classic_request(
            RequestCode.SEND_MESSAGE, topic="New", defaultTopic="TBW102", queueId=3, old=True
        )
    )
    assert port.asked_names() == ["broker-a", "broker-a"]


def test_bodies_and_handles_name_brokers_too(port: ClassicPort) -> None:
    lock = LockBatchRequestBody(
        consumer_group="G",
        client_id="c",
        mq_set=[MessageQueue(topic="T", broker_name="broker-b", queue_id=1)],
    )
    port.ask(classic_request(RequestCode.LOCK_BATCH_MQ, encode_body(lock), old=True))
    port.ask(classic_request(RequestCode.UNLOCK_BATCH_MQ, encode_body(lock), old=True))
    acks = encode_body(BatchAckMessageRequestBody(broker_name="broker-a"))
    port.ask(classic_request(RequestCode.BATCH_ACK_MESSAGE, acks))
    info = "0 1700000000000 60000 0 0 broker-b 1 7"
    port.ask(classic_request(RequestCode.ACK_MESSAGE, topic="T", queueId=1, extraInfo=info))
    # `v1 T broker-a 1700000000000 ID`
    handle = "djEgVCBicm9rZXItYSAxNzAwMDAwMDAwMDAwIElE"
    port.ask(classic_request(RequestCode.RECALL_MESSAGE, topic="T", recallHandle=handle))
    assert port.asked_names() == ["broker-b", "broker-b", "broker-a", "broker-b", "broker-a"]


def test_locks_on_queues_of_several_brokers_are_refused(port: ClassicPort) -> None:
    queues = [MessageQueue(topic="T", broker_name=name) for name in ("broker-a", "broker-b")]
    body = encode_body(LockBatchRequestBody(mq_set=queues))
    with refused(ResponseCode.SYSTEM_ERROR) as caught:
        port.ask(classic_request(RequestCode.LOCK_BATCH_MQ, body))
    assert "of each broker by themselves" in caught.value.remark
    with refused(ResponseCode.SYSTEM_ERROR) as caught:
        port.ask(classic_request(RequestCode.LOCK_BATCH_MQ, encode_body(LockBatchRequestBody())))
    assert "name one" in caught.value.remark


def test_a_oneway_request_is_passed_on_as_one(port: ClassicPort) -> None:
    fields = {"topic": "T", "queueId": 1, "bname": "broker-a"}
    answer = port.ask(classic_request(RequestCode.UPDATE_CONSUMER_OFFSET, oneway=True, **fields))
    (asked,) = port.brokers.asked
    assert asked.request.is_oneway
    assert asked.timeout is None
    # By this the server knows that the request is over; it is not sent.
    assert answer.is_oneway


@pytest.mark.parametrize(
    ("code", "field", "held_ms", "seconds"),
    [
        (RequestCode.PULL_MESSAGE, "suspendTimeoutMillis", 20_000, 30),
        (RequestCode.LITE_PULL_MESSAGE, "suspendTimeoutMillis", 0, 10),
        (RequestCode.POP_MESSAGE, "pollTime", 15_000, 25),
        (RequestCode.NOTIFICATION, "pollTime", -5, 10),
    ],
)
def test_a_broker_may_hold_what_waits_for_messages(
    port: ClassicPort, code: int, field: str, held_ms: int, seconds: int
) -> None:
    port.ask(classic_request(code, topic="Single", queueId=0, **{field: held_ms}))
    (asked,) = port.brokers.asked
    assert (asked.timeout, asked.request.ext_fields[field]) == (seconds, str(held_ms))


@pytest.mark.parametrize("held_ms", [120_001, 3_600_000, 2**62])
def test_nothing_is_held_for_long(port: ClassicPort, held_ms: int) -> None:
    """What is held for a client that is gone takes room until the broker answers."""
    for code, field in (
        (RequestCode.PULL_MESSAGE, "suspendTimeoutMillis"),
        (RequestCode.POP_MESSAGE, "pollTime"),
    ):
        port.ask(classic_request(code, topic="Single", queueId=0, **{field: held_ms}))
        asked = port.brokers.asked[-1]
        assert (asked.timeout, asked.request.ext_fields[field]) == (130, "120000")


def test_a_held_pull_is_answered_when_the_broker_answers(port: ClassicPort) -> None:
    held: Deferred[RemotingCommand] = Deferred()
    port.brokers.answer(RequestCode.PULL_MESSAGE, lambda _: held)
    request = classic_request(RequestCode.PULL_MESSAGE, bname="broker-a")
    answer = port.begin(request)
    assert not answer.called
    held.callback(port.brokers.asked[0].request.response(ResponseCode.PULL_NOT_FOUND))
    assert answer.result.code == ResponseCode.PULL_NOT_FOUND
    assert answer.result.opaque == request.opaque


def test_a_time_to_hold_that_is_no_number_is_refused(port: ClassicPort) -> None:
    with refused(ResponseCode.SYSTEM_ERROR) as caught:
        port.ask(
            classic_request(RequestCode.PULL_MESSAGE, bname="broker-a", suspendTimeoutMillis="x")
        )
    assert "give milliseconds" in caught.value.remark


def test_an_answer_with_an_error_passes_as_it_is(port: ClassicPort) -> None:
    port.brokers.answer(
        RequestCode.PULL_MESSAGE,
        lambda request: request.response(ResponseCode.PULL_OFFSET_MOVED, "moved"),
    )
    answer = port.ask(classic_request(RequestCode.PULL_MESSAGE, bname="broker-a"))
    assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "moved")


def test_a_broker_that_is_gone_gives_the_code_to_try_another_one(port: ClassicPort) -> None:
    port.brokers.gone.add("broker-a")
    with refused(ResponseCode.SERVICE_NOT_AVAILABLE) as caught:
        port.ask(classic_request(RequestCode.SEND_MESSAGE_V2, n="broker-a"))
    assert "broker broker-a does not answer: try another broker" in caught.value.remark
    port.brokers.answer(RequestCode.SEND_MESSAGE_V2, RequestTimeout("b:1", 310, 15.0))
    with refused(ResponseCode.SERVICE_NOT_AVAILABLE):
        port.ask(classic_request(RequestCode.SEND_MESSAGE_V2, n="broker-b"))


def test_what_administrators_ask_is_not_passed_on(port: ClassicPort) -> None:
    handlers = port.requests.handlers()
    for code in (
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
    ):
        assert code not in handlers


def test_without_name_servers_a_route_is_refused(port: ClassicPort) -> None:
    port.brokers.route_error = RequestError(ResponseCode.SYSTEM_ERROR, "no name server answers")
    with refused(ResponseCode.SYSTEM_ERROR):
        port.ask(classic_request(RequestCode.GET_MAX_OFFSET, topic="Single", queueId=0))
