"""Each call of MessagingService over the wire, with what clients should not ask: the answer is a
status that says what to change, and the connection goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.message import Message

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.ids import RecallHandle
from rocketmq_tw.message.types import MESSAGE_TYPE
from rocketmq_tw.proxy.grpc.interfaces import GrpcStatus
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proxy import Proxy
from rocketmq_tw.runtime.threads import at_once
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from tests.support.broker import BrokerInMemory
from tests.support.http2 import GrpcInMemory, Response, framed
from tests.support.receiving import SERVICE, RealBroker

TYPES = {"Topic": "NORMAL", "Delay": "DELAY", "Transactions": "TRANSACTION"}
LONG = "n" * 300
Fields = dict[str, Any]


def queue(**fields: Any) -> pb.MessageQueue:
    values = {"topic": {"name": "Topic"}, "broker": {"name": "broker-a"}}
    return pb.MessageQueue(**values | fields)


class Served:
    """A whole proxy on a port in memory before a real broker. One connection has a consumer of
    group `G` and a producer, each with its stream."""

    def __init__(self) -> None:
        self.broker = BrokerInMemory(broker={"recall_message_enable": True})
        self.clock = self.broker.clock
        self.brokers = RealBroker(self.broker)
        for topic, kind in TYPES.items():
            self.brokers.add_topic(topic, {"broker-a": 1})
            self.broker.add_topic(
                topic, read_queue_nums=1, write_queue_nums=1, attributes={f"+{MESSAGE_TYPE}": kind}
            )
        self.broker.groups.update(SubscriptionGroupConfig(group_name="G"))
        self.broker.offsets.commit("G", "Topic", 0, 0, "test")
        config = ProxyConfig(use_endpoint_port_from_request=True)
        self.proxy = Proxy(self.clock, config, self.brokers, at_once, now_ms=self.broker.now_ms)
        self.server = GrpcInMemory(self.proxy.methods, clock=self.clock)
        self.connection = self.server.connect()
        consumer = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
        consumer.subscription.group.name = "G"
        producer = pb.Settings(client_type=pb.PRODUCER)
        producer.publishing.topics.add(name="Topic")
        self.streams = [
            self._tell("consumer", pb.TelemetryCommand(settings=consumer)),
            self._tell("producer", pb.TelemetryCommand(settings=producer)),
        ]

    def _tell(self, client_id: str, command: pb.TelemetryCommand) -> Response:
        headers = {"x-mq-client-id": client_id}
        stream_id, response = self.connection.open(SERVICE + "Telemetry", headers)
        self.connection.send(stream_id, framed(command.SerializeToString()))
        self.server.settle()
        (answer,) = response.messages
        assert pb.TelemetryCommand.FromString(answer).status.code == pb.OK
        assert isinstance(response, Response)
        return response

    def begin(self, method: str, request: Message | bytes, client_id: str) -> Response:
        data = request if isinstance(request, bytes) else request.SerializeToString()
        named = {"x_mq_client_id": client_id} if client_id else {}
        response = self.connection.call(SERVICE + method, data, **named)
        assert isinstance(response, Response)
        self.server.settle()
        for _ in range(80):
            if response.ended:
                break
            self.clock.advance(0.25)
        return response

    def ask(self, method: str, client_id: str = "consumer", **fields: Any) -> list[Any]:
        """The messages that answer a call."""
        request = getattr(pb, method + "Request")(**fields)
        response = self.begin(method, request, client_id)
        assert (response.ended, response.status, response.reset) == (True, GrpcStatus.OK, None)
        answer = getattr(pb, method + "Response")
        return [answer.FromString(message) for message in response.messages]

    def send(self, topic: str, **properties: Any) -> Any:
        """The result of a send."""
        message = pb.Message(topic={"name": topic}, body=b"body")
        message.system_properties.MergeFrom(pb.SystemProperties(message_id="ID", **properties))
        (answer,) = self.ask("SendMessage", "producer", messages=[message])
        assert answer.status.code == pb.OK, answer
        return answer.entries[0]

    def handle(self) -> str:
        """The receipt handle of a message that the consumer has received."""
        self.send("Topic")
        answers = self.ask("ReceiveMessage", **GOOD["ReceiveMessage"](self))
        (handle,) = [
            each.message.system_properties.receipt_handle
            for each in answers
            if each.HasField("message")
        ]
        assert isinstance(handle, str)
        return handle

    def recall_handle(self) -> str:
        time = self.broker.now_ms() // 1000 + 3600
        sent = self.send("Delay", message_type=pb.DELAY, delivery_timestamp={"seconds": time})
        assert isinstance(sent.recall_handle, str)
        return sent.recall_handle

    def transaction_id(self) -> str:
        sent = self.send("Transactions", message_type=pb.TRANSACTION)
        assert isinstance(sent.transaction_id, str)
        return sent.transaction_id

    def check_goes_on(self) -> None:
        """The connection serves, and neither client lost its stream."""
        (answer,) = self.ask("QueryRoute", topic={"name": "Topic"})
        assert answer.status.code == pb.OK
        assert not any(stream.ended for stream in self.streams)
        assert self.connection.goaway is None and not self.connection.lost


@pytest.fixture
def served() -> Served:
    return Served()


TOPIC, GROUP = {"topic": {"name": "Topic"}}, {"group": {"name": "G"}}
ENDPOINTS = {"addresses": [{"host": "proxy", "port": 8081}]}

#: Method -> what its request has where all is well.
GOOD: dict[str, Callable[[Served], Fields]] = {
    "QueryRoute": lambda served: TOPIC,
    "Heartbeat": lambda served: GROUP | {"client_type": pb.SIMPLE_CONSUMER},
    "SendMessage": lambda served: {
        "messages": [TOPIC | {"body": b"body", "system_properties": {"message_id": "ID"}}]
    },
    "QueryAssignment": lambda served: TOPIC | GROUP | {"endpoints": ENDPOINTS},
    "ReceiveMessage": lambda served: (
        GROUP
        | {
            "message_queue": queue(),
            "filter_expression": {"type": pb.TAG, "expression": "*"},
            "batch_size": 1,
            "invisible_duration": {"seconds": 30},
            "long_polling_timeout": {"seconds": 5},
        }
    ),
    "AckMessage": lambda served: (
        TOPIC | GROUP | {"entries": [{"message_id": "ID", "receipt_handle": served.handle()}]}
    ),
    "ForwardMessageToDeadLetterQueue": lambda served: (
        TOPIC
        | GROUP
        | {
            "receipt_handle": served.handle(),
            "message_id": "ID",
            "delivery_attempt": 1,
            "max_delivery_attempts": 1,
        }
    ),
    "PullMessage": lambda served: (
        GROUP
        | {
            "message_queue": queue(),
            "batch_size": 1,
            "filter_expression": {"type": pb.TAG, "expression": "*"},
        }
    ),
    "UpdateOffset": lambda served: GROUP | {"message_queue": queue(), "offset": 0},
    "GetOffset": lambda served: GROUP | {"message_queue": queue()},
    "QueryOffset": lambda served: {
        "message_queue": queue(),
        "query_offset_policy": pb.TIMESTAMP,
        "timestamp": {"seconds": 1},
    },
    "EndTransaction": lambda served: {
        "topic": {"name": "Transactions"},
        "message_id": "ID",
        "transaction_id": served.transaction_id(),
        "resolution": pb.COMMIT,
        "source": pb.SOURCE_CLIENT,
    },
    "NotifyClientTermination": lambda served: GROUP,
    "ChangeInvisibleDuration": lambda served: (
        TOPIC
        | GROUP
        | {
            "receipt_handle": served.handle(),
            "invisible_duration": {"seconds": 60},
            "message_id": "ID",
        }
    ),
    "RecallMessage": lambda served: {
        "topic": {"name": "Delay"},
        "recall_handle": served.recall_handle(),
    },
}


def status_of(answers: list[Any]) -> Any:
    """The one status of an answer."""
    (found,) = [each.status for each in answers if each.HasField("status")]
    return found


@pytest.mark.parametrize("method", GOOD)
def test_what_is_right_is_served(served: Served, method: str) -> None:
    fields = GOOD[method](served)
    if method in ("ReceiveMessage", "PullMessage"):
        served.send("Topic")
    answers = served.ask(method, **fields)
    assert status_of(answers).code == pb.OK, answers
    if method in ("ReceiveMessage", "PullMessage"):
        assert [each.message.body for each in answers if each.HasField("message")] == [b"body"]
    served.check_goes_on()


#: The parts of a receipt handle.
START, POPPED_AT, HIDDEN_FOR, REVIVE_QUEUE, KIND, BROKER, QUEUE, OFFSET, PLACE = range(9)


def changed(index: int, value: object) -> Callable[[str], str]:
    """What gives a receipt handle another part."""

    def change(handle: str) -> str:
        parts = handle.split(" ")
        parts[index] = str(value)
        return " ".join(parts)

    return change


def unreadable_handles() -> Iterator[tuple[Any, pb.Code]]:
    """Receipt handles, or what makes one of that of a message, and the code of the refusal."""
    invalid = pb.INVALID_RECEIPT_HANDLE
    for text in ("", "nonsense", LONG, "h" * 5000, " " * 8, "1 2 3 4 5 6 7 8", "a b c d e f g h i"):
        yield text, invalid
    for index, value in (
        (START, -1),
        (POPPED_AT, 1 << 70),
        (REVIVE_QUEUE, -1),
        (REVIVE_QUEUE, 1 << 40),
        (KIND, 7),
        (KIND, "x"),
        (QUEUE, -1),
        (QUEUE, 1 << 40),
        (OFFSET, -1),
        (OFFSET, 1 << 70),
        (PLACE, "x"),
    ):
        yield changed(index, value), invalid
    for name in ("nobody", "", LONG):
        yield changed(BROKER, name), pb.BAD_REQUEST


def handles_of_nothing() -> Iterator[tuple[Any, pb.Code]]:
    """The same, of messages that nobody has popped."""
    for index, value in (
        (POPPED_AT, 0),
        (POPPED_AT, -1),
        (HIDDEN_FOR, 0),
        (HIDDEN_FOR, -5),
        (REVIVE_QUEUE, 99),
        (QUEUE, 99),
        (OFFSET, 12_345),
        (OFFSET, (1 << 63) - 1),
    ):
        yield changed(index, value), pb.INVALID_RECEIPT_HANDLE


def handles_of_no_record() -> Iterator[tuple[Any, pb.Code]]:
    """The same, with places where the log has no message."""
    for value in (-1, 7, 1 << 40, (1 << 63) - 1, ""):
        yield changed(PLACE, value), pb.INVALID_RECEIPT_HANDLE


def wrong_recall_handles() -> Iterator[tuple[str, pb.Code]]:
    for text in ("", "nonsense", LONG, "%%%", "h" * 5000, "ü"):
        yield text, pb.BAD_REQUEST
    for topic, broker, time, message_id in (
        ("Topic", "broker-a", 1_900_000_000_000, "ID"),
        ("Delay", "nobody", 1_900_000_000_000, "ID"),
        ("Delay", "broker-a", 0, "ID"),
        ("Delay", "broker-a", -1, "ID"),
        ("Delay", "broker-a", 1 << 62, "ID"),
    ):
        yield RecallHandle(topic, broker, str(time), message_id).encode(), pb.BAD_REQUEST


def wrong_names(field: str, code: pb.Code) -> Iterator[tuple[Fields, pb.Code]]:
    for name in ("", LONG, " ", "a b", "n\x00", "ü"):
        yield {field: {"name": name}}, code
    yield {field: None}, code
    yield {field: {"name": "Topic", "resource_namespace": LONG}}, code


def wrong_queues() -> Iterator[tuple[Fields, pb.Code]]:
    yield {"message_queue": None}, pb.ILLEGAL_TOPIC
    for fields, code in wrong_names("topic", pb.ILLEGAL_TOPIC):
        yield {"message_queue": queue(**(fields if fields["topic"] else {"topic": {}}))}, code
    for fields in (
        {"id": -1},
        {"id": 99},
        {"id": (1 << 31) - 1},
        {"broker": {}},
        {"broker": {"name": "nobody"}},
        {"broker": {"name": LONG}},
        {"broker": {"name": " "}},
    ):
        yield {"message_queue": queue(**fields)}, pb.BAD_REQUEST
    yield {"message_queue": queue(topic={"name": "Nobody"})}, pb.TOPIC_NOT_FOUND


#: Methods by what their requests name.
WITH_TOPIC = (
    "EndTransaction",
    "RecallMessage",
    "ChangeInvisibleDuration",
    "ForwardMessageToDeadLetterQueue",
    "QueryAssignment",
)
WITH_GROUP = (
    "ChangeInvisibleDuration",
    "ForwardMessageToDeadLetterQueue",
    "GetOffset",
    "UpdateOffset",
    "PullMessage",
    "QueryAssignment",
)
WITH_QUEUE = ("GetOffset", "QueryOffset", "UpdateOffset", "PullMessage")
#: Methods that ask nothing for their client.
WITHOUT_ID = ("QueryRoute", "SendMessage", "QueryAssignment", "EndTransaction", "RecallMessage")
WITH_HANDLE = ("ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue")
#: Others that name a broker.
OF_A_BROKER = ("AckMessage", "EndTransaction", "RecallMessage")

#: Method, the fields in which its request differs from a good one (None: it has none), and the code
#: of the refusal.
WRONG: list[tuple[str, Fields, pb.Code]] = [
    *((method, *row) for method in WITH_TOPIC for row in wrong_names("topic", pb.ILLEGAL_TOPIC)),
    *(
        (method, *row)
        for method in WITH_GROUP
        for row in wrong_names("group", pb.ILLEGAL_CONSUMER_GROUP)
    ),
    *((method, *row) for method in WITH_QUEUE for row in wrong_queues()),
    *(
        (method, {"receipt_handle": handle}, code)
        for method in WITH_HANDLE
        for handle, code in unreadable_handles()
    ),
    *(
        ("ChangeInvisibleDuration", {"receipt_handle": handle}, code)
        for handle, code in handles_of_nothing()
    ),
    # What the broker popped does not count here: the place in its log says which message it is.
    *(
        ("ForwardMessageToDeadLetterQueue", {"receipt_handle": handle}, code)
        for handle, code in handles_of_no_record()
    ),
    *(("RecallMessage", {"recall_handle": text}, code) for text, code in wrong_recall_handles()),
    *(
        (method, {"topic": {"name": "Nobody"}}, code)
        for method, code in (
            ("EndTransaction", pb.INVALID_TRANSACTION_ID),
            ("RecallMessage", pb.BAD_REQUEST),
            ("ChangeInvisibleDuration", pb.INVALID_RECEIPT_HANDLE),
            ("QueryAssignment", pb.TOPIC_NOT_FOUND),
        )
    ),
    *(
        ("EndTransaction", {"transaction_id": text}, pb.INVALID_TRANSACTION_ID)
        for text in (
            "",
            " ",
            "nonsense",
            LONG,
            "i" * 5000,
            "ID/broker-a/-1/0",
            "ID/broker-a/0/-1",
            "ID/broker-a/99/99",
            f"ID/broker-a/{1 << 62}/{1 << 62}",
            f"ID/broker-a/{1 << 70}/0",
            "///",
        )
    ),
    ("EndTransaction", {"transaction_id": "ID/nobody/0/0"}, pb.BAD_REQUEST),
    ("EndTransaction", {"resolution": 99}, pb.BAD_REQUEST),
    *(
        ("ChangeInvisibleDuration", {"invisible_duration": duration}, pb.ILLEGAL_INVISIBLE_TIME)
        for duration in (
            {"seconds": -1},
            {"nanos": -1},
            {"seconds": 13 * 3600},
            {"seconds": (1 << 63) - 1},
            {"seconds": -(1 << 63)},
        )
    ),
    ("GetOffset", {"group": {"name": "nobody"}}, pb.OFFSET_NOT_FOUND),
    ("QueryOffset", {"query_offset_policy": 99}, pb.BAD_REQUEST),
    ("QueryOffset", {"timestamp": None}, pb.BAD_REQUEST),
    *(
        ("QueryOffset", {"timestamp": time}, pb.BAD_REQUEST)
        for time in ({"seconds": (1 << 63) - 1}, {"seconds": -(1 << 63)}, {"nanos": -1})
    ),
    *(("UpdateOffset", {"offset": each}, pb.ILLEGAL_OFFSET) for each in (-1, -(1 << 63))),
    *(("PullMessage", {"offset": each}, pb.ILLEGAL_OFFSET) for each in (-1, -(1 << 63), 1 << 62)),
    *(
        ("PullMessage", {"batch_size": size}, pb.BAD_REQUEST)
        for size in (0, -1, 257, (1 << 31) - 1, -(1 << 31))
    ),
    *(
        ("PullMessage", {"filter_expression": each}, pb.ILLEGAL_FILTER_EXPRESSION)
        for each in (
            {"type": 99, "expression": "*"},
            {"type": pb.TAG, "expression": "||"},
            {"type": pb.SQL, "expression": "a >"},
            {"type": pb.SQL, "expression": "a = 1 AND " * 30_000},
            {"type": pb.SQL},
        )
    ),
    *(
        ("QueryAssignment", {"endpoints": {"addresses": addresses}}, pb.ILLEGAL_ACCESS_POINT)
        for addresses in (
            [{}],
            [{"host": "proxy"}],
            [{"host": "proxy", "port": -1}],
            [{"host": "proxy", "port": 70_000}],
            [{"host": LONG, "port": 1}],
            [{"host": "proxy", "port": 1}] * 4000,
        )
    ),
    *(
        (method, {"group": {"name": name}}, pb.ILLEGAL_CONSUMER_GROUP)
        for method in ("Heartbeat", "NotifyClientTermination")
        for name in ("other", LONG, "a b")
    ),
    ("AckMessage", {"entries": []}, pb.BAD_REQUEST),
    ("AckMessage", {"entries": [{}]}, pb.INVALID_RECEIPT_HANDLE),
    ("AckMessage", {"entries": [{}] * 1025}, pb.BAD_REQUEST),
]


def named(fields: object) -> str | None:
    """What a row is called beside its method and code."""
    if not isinstance(fields, dict):
        return None
    return "-".join(
        name if callable(value) else f"{name}={value!r:.40}" for name, value in fields.items()
    )


@pytest.mark.parametrize(("method", "fields", "code"), WRONG, ids=named)
def test_what_is_wrong_is_refused_with_what_to_change(
    served: Served, method: str, fields: Fields, code: pb.Code
) -> None:
    wanted = dict(GOOD[method](served))
    for name, value in fields.items():
        wanted[name] = value(wanted[name]) if callable(value) else value
    status = status_of(served.ask(method, **wanted))
    assert pb.Code.Name(status.code) == pb.Code.Name(code), status
    assert status.message not in ("", pb.Code.Name(status.code))
    served.check_goes_on()


@pytest.mark.parametrize("method", [*WITH_QUEUE, *WITH_HANDLE, *OF_A_BROKER])
def test_while_no_broker_is_known_clients_are_to_try_again(served: Served, method: str) -> None:
    """As at a proxy that has just started: what is asked may well be right."""
    fields = GOOD[method](served)
    served.brokers.told = False
    status = status_of(served.ask(method, **fields))
    assert pb.Code.Name(status.code) == "INTERNAL_SERVER_ERROR", status
    assert "name server" in status.message
    served.brokers.told = True
    assert status_of(served.ask(method, **fields)).code in (pb.OK, pb.MESSAGE_NOT_FOUND)


@pytest.mark.parametrize("method", GOOD)
def test_what_is_no_request_ends_its_call_alone(served: Served, method: str) -> None:
    response = served.begin(method, b"\xff\xff", "consumer")
    assert (response.status, response.messages) == (GrpcStatus.INVALID_ARGUMENT, [])
    # It says how long it is, and need not send all that before it is refused.
    stream_id, response = served.connection.open(SERVICE + method)
    served.connection.send(stream_id, framed(bytes(20 << 20))[:1000])
    served.server.settle()
    assert (response.status, response.messages) == (GrpcStatus.RESOURCE_EXHAUSTED, [])
    assert "bytes" in response.headers["grpc-message"]
    served.check_goes_on()


#: What an empty request is answered, where it lacks more than a topic or may be empty.
OF_EMPTY_REQUESTS = {
    "SendMessage": "MESSAGE_CORRUPTED",
    "Heartbeat": "OK",
    "NotifyClientTermination": "OK",
}


@pytest.mark.parametrize("method", GOOD)
def test_an_empty_request_is_told_what_it_lacks(served: Served, method: str) -> None:
    wanted = OF_EMPTY_REQUESTS.get(method, "ILLEGAL_TOPIC")
    assert pb.Code.Name(status_of(served.ask(method)).code) == wanted
    served.check_goes_on()


@pytest.mark.parametrize("method", GOOD)
def test_who_asks(served: Served, method: str) -> None:
    """A client that has told no settings, one of another kind, one without an id, and one whose id
    is too long."""
    needs_settings = method in ("Heartbeat", "NotifyClientTermination")
    needs_id = method not in WITHOUT_ID
    nothing = "MESSAGE_NOT_FOUND" if method in ("ReceiveMessage", "PullMessage") else "OK"
    for client_id, wanted in (
        ("stranger", "UNRECOGNIZED_CLIENT_TYPE" if needs_settings else nothing),
        ("", "CLIENT_ID_REQUIRED" if needs_id else nothing),
        (LONG, "BAD_REQUEST" if needs_id else nothing),
        ("producer", nothing),
    ):
        found = status_of(served.ask(method, client_id, **GOOD[method](served)))
        assert pb.Code.Name(found.code) == wanted, (client_id, found)
    if method != "NotifyClientTermination":
        served.check_goes_on()


#: What is passed over, as stock's proxies do, cut to what is possible, or the broker's to judge.
ODD: list[tuple[str, Fields]] = [
    ("UpdateOffset", {"offset": (1 << 63) - 1}),
    *(
        ("PullMessage", {"long_polling_timeout": each})
        for each in ({"seconds": -1}, {"seconds": (1 << 63) - 1}, {"nanos": -5})
    ),
    ("QueryAssignment", {"endpoints": ENDPOINTS | {"scheme": 99}}),
    ("QueryOffset", {"timestamp": {"seconds": -5}}),
    ("QueryOffset", {"message_queue": queue(accept_message_types=[pb.NORMAL] * 15_000)}),
    ("Heartbeat", {"client_type": 99}),
    ("Heartbeat", {"client_type": pb.PRODUCER}),
    ("ChangeInvisibleDuration", {"invisible_duration": None, "message_id": LONG}),
    ("ChangeInvisibleDuration", {"invisible_duration": {"nanos": (1 << 31) - 1}}),
    ("ForwardMessageToDeadLetterQueue", {"message_id": "a\x02DELAY\x013"}),
    ("ForwardMessageToDeadLetterQueue", {"delivery_attempt": -1, "max_delivery_attempts": -1}),
    ("EndTransaction", {"message_id": LONG, "source": 99, "trace_context": "x" * 50_000}),
]


@pytest.mark.parametrize(("method", "fields"), ODD, ids=named)
def test_what_is_odd_is_taken(served: Served, method: str, fields: Fields) -> None:
    found = status_of(served.ask(method, **GOOD[method](served) | fields))
    wanted = "MESSAGE_NOT_FOUND" if method == "PullMessage" else "OK"
    assert pb.Code.Name(found.code) == wanted, found
    served.check_goes_on()
