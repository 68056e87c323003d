import gzip
import zlib
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.message.batch import decode_batch
from rocketmq_tw.message.compression import CompressionType, compression_flag, decompress
from rocketmq_tw.message.ids import offset_message_id
from rocketmq_tw.message.model import TRANSACTION_PREPARED
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.net.errors import ConnectError, ConnectionLost, RequestTimeout
from rocketmq_tw.net.protocol import as_deferred
from rocketmq_tw.proxy.broker_lines import SAY_BROKER_AGAIN_SECONDS
from rocketmq_tw.proxy.messaging.messages import duration_of, timestamp_of
from rocketmq_tw.proxy.messaging.methods import path
from rocketmq_tw.proxy.messaging.transaction_ids import parse_transaction_id
from rocketmq_tw.proxy.proto.messages import (
    Code,
    Encoding,
    Message,
    MessageType,
    Resource,
    SendMessageRequest,
    SystemProperties,
)
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from tests.support.proxy import FakeCall, PlayedBrokers, answer_of
from tests.support.sending import NOW, SendingProxy


def message(
    body: bytes = b"hello",
    topic: str = "T",
    properties: dict[str, str] | None = None,
    **system: Any,
) -> Message:
    return Message(
        topic=Resource(name=topic),
        body=body,
        user_properties=properties or {},
        system_properties=SystemProperties(**({"message_id": "ID"} | system)),
    )


def stored(request: RemotingCommand, code: int = ResponseCode.SUCCESS) -> RemotingCommand:
    """What a broker answers that stored a message."""
    header = request.header(SendMessageRequestHeaderV2)
    return request.response(
        code,
        header=SendMessageResponseHeader(
            msg_id=offset_message_id("10.0.0.8", 10911, 4096),
            queue_id=header.queue_id,
            queue_offset=7,
            transaction_id=parse_properties(header.properties).get("UNIQ_KEY"),
            recall_handle="HANDLE" if "TIMER_DELIVER_MS" in (header.properties or "") else None,
        ),
    )


class Proxy(SendingProxy):
    """The service beside two brokers, which store what they are sent."""

    def __init__(self, message_type: str = "MIXED", **config: Any) -> None:
        brokers = PlayedBrokers()
        brokers.add_topic("T", {"a": 4, "b": 4}, message_type=message_type)
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            brokers.answer(code, stored)
        super().__init__(brokers, Clock(), **config)

    @property
    def headers(self) -> list[SendMessageRequestHeaderV2]:
        """Of the requests that brokers were asked."""
        return [each.request.header(SendMessageRequestHeaderV2) for each in self.brokers.asked]

    @property
    def names(self) -> list[str]:
        """Of the brokers that were asked."""
        return [each.broker_name for each in self.brokers.asked]


def test_a_message_is_sent_and_its_place_is_told() -> None:
    proxy = Proxy()
    response = proxy.send(
        message(
            properties={"colour": "red"},
            tag="a",
            born_timestamp=timestamp_of(NOW - 5),
            message_type=MessageType.NORMAL,
        )
    )
    (entry,) = response.entries
    assert response.status.code == entry.status.code == Code.OK
    assert (entry.message_id, entry.transaction_id, entry.offset) == ("ID", "ID", 7)
    assert entry.recall_handle == ""
    (asked,), (header,) = proxy.brokers.asked, proxy.headers
    assert asked.request.code == RequestCode.SEND_MESSAGE_V2
    assert asked.request.body == b"hello"
    assert (header.topic, header.producer_group) == ("T", "T")
    assert (header.sys_flag, header.born_timestamp, header.batch) == (0, NOW - 5, False)
    assert header.broker_name == asked.broker_name
    assert parse_properties(header.properties) == {
        "colour": "red",
        "UNIQ_KEY": "ID",
        "TAGS": "a",
        "RECONSUME_TIME": "0",
        "PGROUP": "T",
        "__BORNHOST": "10.0.0.9",
        "BORN_TIMESTAMP": str(NOW - 5),
    }


@pytest.mark.parametrize("seconds", [2.0, None])
def test_a_send_does_not_wait_long_for_what_its_topic_takes(seconds: float | None) -> None:
    """All is taken where no broker says it, and there is time left for the send."""
    proxy = Proxy("FIFO")
    proxy.brokers.silent.add(RequestCode.GET_TOPIC_CONFIG)
    deadline = None if seconds is None else proxy.clock.seconds() + seconds
    request = SendMessageRequest(messages=[message()])
    sent = as_deferred(proxy.begin("SendMessage", request, FakeCall(deadline=deadline)))
    proxy.clock.pump([0.25] * 4 if seconds else [0.25] * 10)
    assert sent.result.status.code == Code.OK
    (asked,) = proxy.brokers.asked
    assert asked.timeout is not None
    assert 0.9 < asked.timeout <= (1.05 if seconds else 2.5)


@pytest.mark.parametrize(
    ("key", "topic", "code"),
    [
        ("DefaultHeartBeatSyncerTopic", "DefaultHeartBeatSyncerTopic", Code.ILLEGAL_TOPIC),
        ("Proxies", "Proxies", Code.ILLEGAL_TOPIC),
        ("Proxies", "DefaultHeartBeatSyncerTopic", Code.OK),
        ("", "DefaultHeartBeatSyncerTopic", Code.OK),
    ],
)
def test_what_proxies_tell_each_other_is_none_of_a_client(key: str, topic: str, code: int) -> None:
    proxy = Proxy(heartbeat_syncer_topic_name=key)
    proxy.brokers.add_topic(topic, {"a": 1})
    response = proxy.send(message(topic=topic))
    assert response.status.code == code, response
    assert len(proxy.headers) == (code == Code.OK)


def test_a_namespace_is_passed_over() -> None:
    proxy = Proxy()
    sent = message()
    sent.topic.resource_namespace = "ns"
    assert proxy.send(sent).status.code == Code.OK
    assert (proxy.headers[0].topic, proxy.headers[0].producer_group) == ("T", "T")


def test_queues_take_turns() -> None:
    proxy = Proxy()
    for _ in range(8):
        proxy.send(message())
    places = [(header.broker_name, header.queue_id) for header in proxy.headers]
    assert sorted(places) == [(name, queue_id) for name in "ab" for queue_id in range(4)]


def test_queues_of_each_topic_take_turns_whatever_is_sent_to_others() -> None:
    proxy = Proxy()
    proxy.brokers.add_topic("U", {"a": 4, "b": 4}, message_type="MIXED")
    for number in range(16):
        proxy.send(message(topic="TU"[number % 2]))
    for topic in "TU":
        places = [
            (header.broker_name, header.queue_id)
            for header in proxy.headers
            if header.topic == topic
        ]
        assert sorted(places) == [(name, queue_id) for name in "ab" for queue_id in range(4)]


@pytest.mark.parametrize(
    ("group", "place"), [("b", ("b", 1)), ("order-1", ("a", 3)), ("order-2", ("a", 2))]
)
def test_messages_of_a_group_have_one_queue(group: str, place: tuple[str, int]) -> None:
    proxy = Proxy("FIFO")
    for _ in range(3):
        assert proxy.send(message(message_group=group)).status.code == Code.OK
    assert {(header.broker_name, header.queue_id) for header in proxy.headers} == {place}
    assert parse_properties(proxy.headers[0].properties)["__SHARDINGKEY"] == group


def test_a_group_in_a_property_is_one() -> None:
    proxy = Proxy("FIFO")
    for _ in range(3):
        assert proxy.send(message(properties={"__SHARDINGKEY": "b"})).status.code == Code.OK
    assert {(header.broker_name, header.queue_id) for header in proxy.headers} == {("b", 1)}
    refused = Proxy("NORMAL").send(message(properties={"__SHARDINGKEY": "b"}))
    assert refused.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def test_a_timed_message_can_be_recalled() -> None:
    proxy = Proxy("DELAY")
    response = proxy.send(message(delivery_timestamp=timestamp_of(NOW + 5000)))
    assert response.entries[0].recall_handle == "HANDLE"
    properties = parse_properties(proxy.headers[0].properties)
    assert properties["TIMER_DELIVER_MS"] == str(NOW + 5000)
    assert "DELAY" not in properties


@pytest.mark.parametrize(
    ("delay", "level"), [(-1, 1), (999, 1), (1000, 2), (3_600_000, 18), (9_000_000, 18)]
)
def test_a_time_may_become_a_delay_level(delay: int, level: int) -> None:
    proxy = Proxy(use_delay_level=True)
    proxy.send(message(delivery_timestamp=timestamp_of(NOW + delay)))
    assert parse_properties(proxy.headers[0].properties)["DELAY"] == str(level)


@pytest.mark.parametrize(("delay", "level"), [(1_999, 1), (2_000, 2), (3_600_000, 2)])
def test_delay_levels_are_those_of_the_key(delay: int, level: int) -> None:
    proxy = Proxy(use_delay_level=True, message_delay_level="2s 1m")
    proxy.send(message(delivery_timestamp=timestamp_of(NOW + delay)))
    assert parse_properties(proxy.headers[0].properties)["DELAY"] == str(level)


def test_the_id_of_a_transaction_names_the_place_of_its_half_message() -> None:
    proxy = Proxy("TRANSACTION")
    sent = message(message_type=MessageType.TRANSACTION)
    sent.system_properties.orphaned_transaction_recovery_duration.CopyFrom(duration_of(45_000))
    (entry,) = proxy.send(sent).entries
    (header,) = proxy.headers
    assert header.sys_flag == TRANSACTION_PREPARED
    properties = parse_properties(header.properties)
    assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "T")
    assert properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "45"
    # Every proxy learns from the id where it stands.
    told = parse_transaction_id(entry.transaction_id)
    assert told == ("ID", header.broker_name, 7, 4096)


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, Code.MASTER_PERSISTENCE_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_PERSISTENCE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, Code.HA_NOT_AVAILABLE),
    ],
)
def test_what_is_not_safe_is_told_with_its_code(code: int, shown: int) -> None:
    proxy = Proxy()
    proxy.brokers.answer(RequestCode.SEND_MESSAGE_V2, lambda request: stored(request, code))
    response = proxy.send(message())
    assert response.status.code == response.entries[0].status.code == shown
    assert "stored" in response.status.message
    assert len(proxy.brokers.asked) == 1


@pytest.mark.parametrize(
    ("code", "shown", "tries"),
    [
        (ResponseCode.MESSAGE_ILLEGAL, Code.BAD_REQUEST, 1),
        (ResponseCode.SYSTEM_ERROR, Code.INTERNAL_SERVER_ERROR, 3),
        (ResponseCode.SYSTEM_BUSY, Code.TOO_MANY_REQUESTS, 3),
        (ResponseCode.NO_PERMISSION, Code.FORBIDDEN, 3),
        (ResponseCode.TOPIC_NOT_EXIST, Code.TOPIC_NOT_FOUND, 3),
    ],
)
def test_a_refusal_is_tried_elsewhere_and_told(code: int, shown: int, tries: int) -> None:
    proxy = Proxy()
    proxy.brokers.answer(
        RequestCode.SEND_MESSAGE_V2, lambda request: request.response(code, "the broker's words")
    )
    response = proxy.send(message())
    assert (response.status.code, response.status.message) == (shown, "the broker's words")
    assert len(response.entries) == 0
    assert len(proxy.names) == tries
    assert all(one != other for one, other in zip(proxy.names, proxy.names[1:], strict=False))


def test_the_log_says_of_each_broker_now_and_then_that_messages_are_sent_again() -> None:
    proxy = Proxy()
    proxy.brokers.answer(
        RequestCode.SEND_MESSAGE_V2, lambda request: request.response(ResponseCode.SYSTEM_BUSY)
    )
    for _ in range(2):
        with capturedLogs() as events:
            for _ in range(20):
                proxy.send(message())
        lines = sorted(str(formatEvent(event)) for event in events)
        assert len(lines) == 2
        assert "a message to T is sent again, as a did not take it: " in lines[0]
        assert "as b did not take it" in lines[1]
        proxy.clock.advance(SAY_BROKER_AGAIN_SECONDS)


def test_a_broker_that_is_gone_costs_one_try() -> None:
    proxy = Proxy()
    proxy.brokers.gone = {"a"}
    for _ in range(8):
        assert proxy.send(message()).status.code == Code.OK
    assert proxy.names.count("a") == 1
    assert proxy.names.count("b") == 8
    assert proxy.brokers.refreshed == 1


def test_a_connection_that_is_lost_is_tried_elsewhere() -> None:
    proxy = Proxy()
    proxy.brokers.answer(RequestCode.SEND_MESSAGE_V2, ConnectionLost("a:1", "reset"))
    assert proxy.send(message()).status.code == Code.INTERNAL_SERVER_ERROR
    assert len(proxy.names) == 3


def test_a_half_message_that_may_be_stored_is_not_sent_again() -> None:
    """Each copy would be asked about, and committed."""
    proxy = Proxy()
    proxy.brokers.answer(RequestCode.SEND_MESSAGE_V2, ConnectionLost("a:1", "reset"))
    half = message(message_type=MessageType.TRANSACTION)
    assert proxy.send(half).status.code == Code.INTERNAL_SERVER_ERROR
    assert len(proxy.names) == 1


def test_no_answer_in_time_is_the_clients_to_try_again() -> None:
    proxy = Proxy()
    proxy.brokers.answer(RequestCode.SEND_MESSAGE_V2, RequestTimeout("a:1", 310, 3))
    assert proxy.send(message()).status.code == Code.PROXY_TIMEOUT
    assert len(proxy.names) == 1


@pytest.mark.parametrize(("patience", "avoided"), [(0.01, False), (1.0, True)])
def test_a_client_without_patience_steers_no_sends_of_others(
    patience: float, avoided: bool
) -> None:
    proxy = Proxy()
    error = RequestTimeout("a:1", RequestCode.SEND_MESSAGE_V2, patience)
    proxy.brokers.answer(RequestCode.SEND_MESSAGE_V2, error)
    proxy.send(message())
    (failed,) = proxy.names
    proxy.brokers.answer(RequestCode.SEND_MESSAGE_V2, stored)
    for _ in range(8):
        assert proxy.send(message()).status.code == Code.OK
    assert (failed not in proxy.names[1:]) is avoided


def test_messages_of_a_group_go_nowhere_else() -> None:
    proxy = Proxy()
    proxy.brokers.answer(RequestCode.SEND_MESSAGE_V2, ConnectionLost("b:1", "reset"))
    assert proxy.send(message(message_group="b")).status.code == Code.INTERNAL_SERVER_ERROR
    assert proxy.names == ["b"]
    busy = ResponseCode.SYSTEM_BUSY
    proxy.brokers.answer(RequestCode.SEND_MESSAGE_V2, lambda request: request.response(busy))
    assert proxy.send(message(message_group="b")).status.code == Code.TOO_MANY_REQUESTS
    assert proxy.names == ["b", "b"]


def test_what_was_not_sent_is_sent_to_the_groups_queue_of_the_new_route() -> None:
    proxy = Proxy()
    answers: list[Any] = [ConnectError("b:1", "refused")]

    def answer(request: RemotingCommand) -> RemotingCommand:
        if answers:
            raise answers.pop()
        return stored(request)

    proxy.brokers.answer(RequestCode.SEND_MESSAGE_V2, answer)
    assert proxy.send(message(message_group="b")).status.code == Code.OK
    assert proxy.names == ["b", "b"]
    assert proxy.brokers.refreshed == 1


def test_the_deadline_of_the_call_bounds_all_tries() -> None:
    proxy = Proxy()
    proxy.send(message(), call=FakeCall(deadline=2.0))
    proxy.send(message(), call=FakeCall(deadline=100.0))
    proxy.send(message())
    # Brokers may answer within a short time too.
    proxy.send(message(), call=FakeCall(deadline=0.04))
    assert [each.timeout for each in proxy.brokers.asked] == [1.95, 5.0, 5.0, 0.02]
    late = proxy.send(message(), call=FakeCall(deadline=0.0))
    assert late.status.code == Code.REQUEST_TIMEOUT
    slow: Deferred[RemotingCommand] = Deferred()
    proxy.brokers.answer(RequestCode.SEND_MESSAGE_V2, lambda _: slow)
    waiting = proxy.begin(
        "SendMessage", SendMessageRequest(messages=[message()]), FakeCall(deadline=2.0)
    )
    proxy.clock.advance(2)
    slow.errback(ConnectionLost("a:1", "reset"))
    assert answer_of(waiting, proxy.clock).status.code == Code.INTERNAL_SERVER_ERROR
    assert len(proxy.names) == 5


def test_topics_without_queues() -> None:
    proxy = Proxy()
    assert proxy.send(message(topic="Nowhere")).status.code == Code.TOPIC_NOT_FOUND
    proxy.brokers.told = False
    status = proxy.send(message(topic="Nowhere")).status
    assert status.code == Code.INTERNAL_SERVER_ERROR and "try again" in status.message
    proxy.brokers.told = True
    proxy.brokers.add_topic("ReadOnly", {"a": 4}, perm=4)
    assert proxy.send(message(topic="ReadOnly")).status.code == Code.FORBIDDEN
    proxy.brokers.route_error = RequestError(ResponseCode.SYSTEM_ERROR, "no name server answers")
    response = proxy.send(message())
    assert response.status.code == Code.INTERNAL_SERVER_ERROR
    assert response.status.message == "no name server answers"
    assert proxy.brokers.asked == []


def test_brokers_that_may_be_written_again_are_found_at_once() -> None:
    """The route that is in memory says that no broker takes messages; name servers know better.
    They are asked once a second at most."""
    proxy = Proxy()
    writable = proxy.brokers.routes["T"]
    proxy.brokers.add_topic("T", {"a": 4}, perm=4)
    for _ in range(3):
        refused = proxy.send(message())
        assert refused.status.code == Code.FORBIDDEN
        assert "no permission to write" in refused.status.message
    assert proxy.brokers.refreshed == 1
    proxy.clock.advance(1)
    refresh = proxy.brokers.refresh_route

    def changed(topic: str) -> Any:
        proxy.brokers.routes["T"] = writable
        return refresh(topic)

    with patch.object(proxy.brokers, "refresh_route", changed):
        assert proxy.send(message()).status.code == Code.OK
    assert proxy.brokers.refreshed == 2


def test_messages_that_are_too_large_together() -> None:
    proxy = Proxy(max_message_size=1000)
    two = [message(message_id=name, body=bytes(600)) for name in ("one", "two")]
    status = proxy.send(*two).status
    assert status.code == Code.MESSAGE_BODY_TOO_LARGE
    assert "together" in status.message and "fewer" in status.message
    assert proxy.names == []
    assert proxy.send(two[0]).status.code == Code.OK


def without_master(proxy: Proxy, after: float = 10.0) -> None:
    """The topic's brokers have only slaves, until so many seconds are over; name servers tell."""
    elected = proxy.brokers.routes["T"]
    slaves = [
        msgspec.structs.replace(data, broker_addrs={1: "slave:10911"})
        for data in elected.broker_datas
    ]
    proxy.brokers.routes["T"] = msgspec.structs.replace(elected, broker_datas=slaves)
    began = proxy.clock.seconds()

    def refreshed(topic: str) -> Any:
        proxy.brokers.refreshed += 1
        if proxy.clock.seconds() - began >= after:
            proxy.brokers.routes["T"] = elected
        return proxy.brokers.route(topic)

    proxy.brokers.refresh_route = refreshed  # type: ignore[method-assign]


@pytest.mark.parametrize("after", [0.0, 1.0])
def test_a_send_waits_for_the_master_that_takes_over(after: float) -> None:
    """Otherwise clients, which try three times at once, would give up before it is elected; what is
    known of the route is half a minute old."""
    proxy = Proxy()
    without_master(proxy, after)
    assert proxy.send(message()).status.code == Code.OK
    assert proxy.clock.seconds() < after + 0.5
    # They share the question, and none asks more often than that.
    assert proxy.brokers.refreshed <= 1 + 4 * after


def test_no_broker_is_asked_when_the_time_is_over() -> None:
    """The last broker failed late, and there was no master at once."""
    proxy = Proxy()
    slow: Deferred[RemotingCommand] = Deferred()
    proxy.brokers.answer(RequestCode.SEND_MESSAGE_V2, lambda _: slow)
    waiting = proxy.begin("SendMessage", SendMessageRequest(messages=[message()]), FakeCall())
    proxy.clock.advance(4.5)
    without_master(proxy, after=1.0)
    slow.errback(ConnectionLost("a:1", "reset"))
    response = answer_of(waiting, proxy.clock)
    assert "reset" in response.status.message
    assert [each.timeout for each in proxy.brokers.asked] == [5.0]


def test_a_refusal_has_the_route_be_asked_for() -> None:
    """It may be that of a former master, which is a slave now; brokers that are busy do not have
    name servers be asked for each send."""
    proxy = Proxy()
    proxy.brokers.add_topic("T", {"a": 4})
    proxy.brokers.answer(
        RequestCode.SEND_MESSAGE_V2, lambda request: request.response(ResponseCode.SYSTEM_BUSY)
    )
    for _ in range(5):
        assert proxy.send(message()).status.code != Code.OK
    assert proxy.brokers.refreshed == 1
    proxy.clock.advance(1)
    proxy.send(message())
    assert proxy.brokers.refreshed == 2


def test_a_send_does_not_wait_for_long() -> None:
    proxy = Proxy()
    without_master(proxy)
    began = proxy.clock.seconds()
    response = proxy.send(message())
    assert response.status.code == Code.FORBIDDEN and "no master" in response.status.message
    assert 1.5 < proxy.clock.seconds() - began <= 2.5
    began = proxy.clock.seconds()
    call = FakeCall(deadline=began + 0.5)
    assert proxy.send(message(), call=call).status.code == Code.FORBIDDEN
    assert proxy.clock.seconds() - began < 1


@pytest.mark.parametrize("topic_type", ["", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"])
def test_a_topic_takes_its_type(topic_type: str) -> None:
    kinds = {
        "NORMAL": message(),
        "FIFO": message(message_group="g"),
        "DELAY": message(delivery_timestamp=timestamp_of(NOW + 5000), message_group="g"),
        "TRANSACTION": message(message_type=MessageType.TRANSACTION),
    }
    for kind, sent in kinds.items():
        proxy = Proxy(topic_type)
        response = proxy.send(sent)
        taken = kind == (topic_type or "NORMAL") or topic_type == "MIXED"
        if taken:
            assert response.status.code == Code.OK
        else:
            assert response.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
            assert kind in response.status.message
            assert proxy.brokers.asked == []
        unchecked = Proxy(topic_type, enable_topic_message_type_check=False)
        assert unchecked.send(sent).status.code == Code.OK


def test_retry_topics_take_all_types() -> None:
    proxy = Proxy()
    proxy.brokers.add_topic("%RETRY%G", {"a": 1}, message_type="NORMAL")
    sent = message(topic="%RETRY%G", message_group="g")
    assert proxy.send(sent).status.code == Code.OK


def test_a_batch_is_one_request_with_an_entry_for_each_message() -> None:
    proxy = Proxy()
    response = proxy.send(
        message(b"one", message_id="A", properties={"n": "1"}), message(b"two", message_id="B")
    )
    assert response.status.code == Code.OK
    assert [(each.message_id, each.offset) for each in response.entries] == [("A", 7), ("B", 8)]
    (asked,), (header,) = proxy.brokers.asked, proxy.headers
    assert asked.request.code == RequestCode.SEND_BATCH_MESSAGE
    assert header.batch
    assert parse_properties(header.properties) == {"WAIT": "true"}
    first, second = decode_batch(asked.request.body)
    assert (first.body, second.body) == (b"one", b"two")
    assert parse_properties(first.properties)["UNIQ_KEY"] == "A"
    assert parse_properties(first.properties)["n"] == "1"
    assert parse_properties(second.properties)["UNIQ_KEY"] == "B"


def test_a_batch_of_one_group_has_its_queue() -> None:
    proxy = Proxy()
    for _ in range(3):
        proxy.send(message(message_group="b"), message(message_group="b"))
    assert {(header.broker_name, header.queue_id) for header in proxy.headers} == {("b", 1)}


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([], Code.MESSAGE_CORRUPTED),
        ([message(), message(topic="Other")], Code.MESSAGE_CORRUPTED),
        ([message(), message(message_group="g")], Code.ILLEGAL_MESSAGE_GROUP),
        ([message(message_group="f"), message(message_group="g")], Code.ILLEGAL_MESSAGE_GROUP),
        ([message(), message(b"")], Code.MESSAGE_BODY_EMPTY),
        ([message(topic="")], Code.ILLEGAL_TOPIC),
        ([message(topic="TBW102")], Code.ILLEGAL_TOPIC),
        ([message(), message(body_encoding=Encoding.GZIP)], Code.MESSAGE_CORRUPTED),
        (
            [message(), message(message_type=MessageType.TRANSACTION)],
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        ),
        (
            [message(), message(delivery_timestamp=timestamp_of(NOW + 5000))],
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        ),
        ([message(trace_context="i" * 32767)], Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ],
)
def test_requests_that_cannot_be_sent(messages: list[Message], code: int) -> None:
    proxy = Proxy()
    response = proxy.send(*messages)
    assert response.status.code == code
    assert len(response.entries) == 0
    assert proxy.brokers.asked == []


def test_a_gzip_body_is_stored_as_all_consumers_read_it() -> None:
    body = b"hello " * 10_000
    two_members = gzip.compress(body[:30_000]) + gzip.compress(body[30_000:])
    for packed in (gzip.compress(body), two_members, zlib.compress(body)):
        proxy = Proxy()
        sent = message(packed, body_encoding=Encoding.GZIP)
        assert proxy.send(sent).status.code == Code.OK
        assert proxy.headers[0].sys_flag == compression_flag(CompressionType.ZLIB)
        stored_body = proxy.brokers.asked[0].request.body
        assert decompress(stored_body, CompressionType.ZLIB) == body


def test_packed_bodies_of_one_host_do_not_hold_up_those_of_others() -> None:
    unpacked: list[tuple[Callable[[], Any], Deferred[Any]]] = []

    def in_thread(job: Callable[[], Any]) -> Deferred[Any]:
        unpacked.append((job, Deferred()))
        return unpacked[-1][1]

    proxy = Proxy(in_thread=in_thread)
    ended = []

    def send(client: str, body: bytes) -> None:
        call = FakeCall()
        call.address = client
        sent = message(gzip.compress(body), body_encoding=Encoding.GZIP)
        answer = as_deferred(proxy.begin("SendMessage", SendMessageRequest(messages=[sent]), call))
        answer.addCallback(lambda _: ended.append(body))

    for number in range(3):
        send(f"10.0.0.1:{number + 1}", b"greedy %d" % number)
    send("10.0.0.2:1", b"other")
    while len(ended) < 4:
        job, done = unpacked[-1]
        assert not done.called
        done.callback(job())
    assert ended == [b"greedy 0", b"greedy 1", b"other", b"greedy 2"]


@pytest.mark.parametrize(
    ("packed", "word"),
    [
        (b"hello", "not packed so"),
        (gzip.compress(b"hello")[:-3], "cut off"),
        (b"\x1f\x8bnonsense", "cannot be read"),
        (gzip.compress(bytes(41 << 20)), "unpacks to more than"),
        (b"xyz plain text", "cannot be read"),
        (zlib.compress(b"hello")[:-3], "cut off"),
        (zlib.compress(b"hello")[:-1] + b"!", "cannot be read"),
        (zlib.compress(bytes(41 << 20)), "unpacks to more than"),
    ],
)
def test_a_damaged_gzip_body_is_refused(packed: bytes, word: str) -> None:
    proxy = Proxy()
    response = proxy.send(message(packed, body_encoding=Encoding.GZIP))
    assert response.status.code == Code.MESSAGE_CORRUPTED
    assert word in response.status.message
    assert proxy.brokers.asked == []


def test_a_large_body_goes_as_it_is() -> None:
    proxy = Proxy()
    assert proxy.send(message(bytes(4 << 20))).status.code == Code.OK
    assert len(proxy.brokers.asked[0].request.body) == 4 << 20


@pytest.mark.parametrize(
    ("largest", "unpacked"), [(4 << 20, 5 << 20), (1 << 30, 16 << 20), (0, 16 << 20)]
)
def test_a_compressed_request_unpacks_to_what_may_be_sent(largest: int, unpacked: int) -> None:
    limits = Proxy(max_message_size=largest).methods[path("SendMessage")].limits
    assert limits.unpacked == unpacked
