"""Whom a proxy without sockets has to do with: the broker behind it, which answers at once, and
clients of gRPC, which write what stock's Java client 5.2.0 does."""

from __future__ import annotations

import time
import uuid
from typing import Any

from hpack import Decoder, Encoder
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import implementer

from rocketmq_tw.message.extra_info import OffsetInfos
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import encode_record
from rocketmq_tw.message.types import MESSAGE_TYPE, MIXED_TYPE
from rocketmq_tw.proxy.grpc.framing import encode_message
from rocketmq_tw.proxy.http2.frames import (
    END_HEADERS,
    END_STREAM,
    HEADER_LENGTH,
    PREFACE,
    FrameType,
    make_frame,
)
from rocketmq_tw.proxy.messaging.methods import path
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proto.messages import Duration, Timestamp
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand, decode_command, encode_command
from rocketmq_tw.wire.frame import FrameDecoder
from rocketmq_tw.wire.headers.pop import PopMessageRequestHeader
from tools.bench.inprocess import MemoryTransport

TOPIC, GROUP, BROKER = "bench-topic", "bench-group", "bench"
BROKER_ADDRESS = "127.0.0.1:10911"
QUEUES = 8
BODY = b"x" * 300
#: Messages of a receive.
BATCH = 32
_INVISIBLE_MS = 60_000


class BenchBroker:
    """A broker that is its own name server, and answers at once. Connections to it are made in
    memory."""

    def __init__(self) -> None:
        self._stored = 0
        self._links: list[tuple[Any, MemoryTransport, FrameDecoder]] = []
        broker = BrokerData(cluster="bench", broker_name=BROKER, broker_addrs={0: BROKER_ADDRESS})
        queues = QueueData(
            broker_name=BROKER, read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6
        )
        route = TopicRouteData(queue_datas=[queues], broker_datas=[broker])
        cluster = ClusterInfo({BROKER: broker}, {"bench": [BROKER]})
        self._bodies: dict[int, bytes] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: encode_body(route),
            RequestCode.GET_BROKER_CLUSTER_INFO: encode_body(cluster),
            RequestCode.GET_TOPIC_CONFIG: encode_body(
                TopicConfig(topic_name=TOPIC, attributes={MESSAGE_TYPE: MIXED_TYPE})
            ),
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: encode_body(
                SubscriptionGroupConfig(group_name=GROUP)
            ),
        }

    def endpoint(self, _address: str) -> IStreamClientEndpoint:
        """Where the proxy connects to it."""
        return _Endpoint(self)

    def connected(self, protocol: Any, transport: MemoryTransport) -> None:
        """Takes a connection of the proxy."""
        self._links.append((protocol, transport, FrameDecoder()))

    def answers(self) -> list[tuple[Any, bytes]]:
        """Returns what the proxy's protocols get for what they have written."""
        result = []
        for protocol, transport, decoder in self._links:
            frames = decoder.feed(b"".join(transport.written))
            transport.written.clear()
            requests = map(decode_command, frames)
            data = b"".join(encode_command(self._answer(r)) for r in requests if not r.is_oneway)
            if data:
                result.append((protocol, data))
        return result

    def _answer(self, request: RemotingCommand) -> RemotingCommand:
        response = request.response(body=self._bodies.get(request.code, b""))
        if request.code == RequestCode.SEND_MESSAGE_V2:
            self._stored += 1
            response.ext_fields = {
                "msgId": f"7F00000100002A9F{self._stored * 512:016X}",
                "queueId": request.ext_fields["e"],
                "queueOffset": str(self._stored),
                "MSG_REGION": "DefaultRegion",
                "TRACE_ON": "true",
            }
        elif request.code == RequestCode.POP_MESSAGE:
            self._pop(request.header(PopMessageRequestHeader), response)
        return response

    def _pop(self, header: PopMessageRequestHeader, response: RemotingCommand) -> None:
        now = int(time.time() * 1000)
        first, self._stored = self._stored, self._stored + header.max_msg_nums
        offsets = range(first, self._stored)
        infos = OffsetInfos()
        infos.add(TOPIC, 0, first, offsets)
        response.ext_fields = {
            "popTime": str(now),
            "invisibleTime": str(header.invisible_time),
            "reviveQid": "3",
            "restNum": "1000",
            "startOffsetInfo": infos.starts,
            "msgOffsetInfo": infos.offsets,
        }
        response.body = b"".join(
            encode_record(
                StoredMessage(
                    topic=TOPIC,
                    queue_id=0,
                    body=BODY,
                    properties=_properties(offset),
                    born_timestamp=now,
                    born_host=("127.0.0.1", 40000),
                    store_timestamp=now,
                    store_host=("127.0.0.1", 10911),
                    queue_offset=offset,
                    physical_offset=offset * 512,
                )
            )
            for offset in offsets
        )


@implementer(IStreamClientEndpoint)
class _Endpoint:
    def __init__(self, broker: BenchBroker) -> None:
        self._broker = broker

    def connect(self, factory: Any) -> Deferred[Any]:
        transport = MemoryTransport()
        protocol = factory.buildProtocol(transport.getPeer())
        self._broker.connected(protocol, transport)
        protocol.makeConnection(transport)
        return succeed(protocol)


def _properties(number: int) -> bytes:
    """Returns those of a message that was sent by the case."""
    return (
        f"KEYS\x01order-{number}\x02TAGS\x01tag\x02region\x01north\x02kind\x01paid\x02"
        f"source\x01bench\x02UNIQ_KEY\x01{_message_id(number)}\x02RECONSUME_TIME\x010\x02"
        f"PGROUP\x01{TOPIC}\x02__BORNHOST\x01bench-host\x02BORN_TIMESTAMP\x01{1_700_000_000_000}\x02"
    ).encode()


def _message_id(number: int) -> str:
    return f"01C2B9A5E0F1D30A2B0{number:015X}"


class BenchClient:
    """A connection of a gRPC client in Java: no Huffman codes, all headers in the table, a ping for
    what it reads."""

    def __init__(self, protocol: Any, transport: MemoryTransport, number: int) -> None:
        self.protocol = protocol
        self._transport = transport
        self._id = f"bench-host@4711@{number}@2abc9d"
        self._encoder, self._decoder = Encoder(), Decoder()
        self._stream = 1
        self._held = b""
        self._calls: dict[int, bytearray] = {}
        #: Messages of responses that are complete.
        self.answers: list[list[bytes]] = []

    def greeting(self) -> bytes:
        """Returns what it sends first: a producer's, or a consumer's, settings."""
        settings = pb.TelemetryCommand(
            settings=pb.Settings(
                client_type=pb.SIMPLE_CONSUMER,
                request_timeout=Duration(seconds=30),
                subscription=pb.Subscription(
                    group=pb.Resource(name=GROUP),
                    subscriptions=[
                        pb.SubscriptionEntry(
                            topic=pb.Resource(name=TOPIC),
                            expression=pb.FilterExpression(type=pb.TAG, expression="*"),
                        )
                    ],
                ),
            )
        )
        return (
            PREFACE
            + make_frame(FrameType.SETTINGS, 0, 0, b"\x00\x04\x00\x10\x00\x00")
            + make_frame(FrameType.WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4))
            + self._call("Telemetry", settings, ends=False)
        )

    def send(self, number: int, *, in_order: bool) -> bytes:
        system = pb.SystemProperties(
            tag="tag",
            keys=[f"order-{number}"],
            message_id=_message_id(number),
            body_encoding=pb.IDENTITY,
            message_type=pb.FIFO if in_order else pb.NORMAL,
            born_timestamp=Timestamp(seconds=1_700_000_000, nanos=123_000_000),
            born_host="bench-host",
        )
        if in_order:
            system.message_group = f"group-{number % 16}"
        message = pb.Message(
            topic=pb.Resource(name=TOPIC),
            user_properties={"region": "north", "kind": "paid", "source": "bench"},
            system_properties=system,
            body=BODY,
        )
        return self._call("SendMessage", pb.SendMessageRequest(messages=[message]))

    def receive(self) -> bytes:
        request = pb.ReceiveMessageRequest(
            group=pb.Resource(name=GROUP),
            message_queue=pb.MessageQueue(
                topic=pb.Resource(name=TOPIC),
                id=1,
                permission=pb.READ_WRITE,
                broker=pb.Broker(name=BROKER),
                accept_message_types=[pb.NORMAL],
            ),
            filter_expression=pb.FilterExpression(type=pb.TAG, expression="*"),
            batch_size=BATCH,
            invisible_duration=Duration(seconds=_INVISIBLE_MS // 1000),
            long_polling_timeout=Duration(seconds=2),
            auto_renew=False,
        )
        return self._call("ReceiveMessage", request)

    def ack(self, message: pb.Message) -> bytes:
        system = message.system_properties
        entry = pb.AckMessageEntry(
            message_id=system.message_id, receipt_handle=system.receipt_handle
        )
        return self._call(
            "AckMessage",
            pb.AckMessageRequest(
                group=pb.Resource(name=GROUP), topic=pb.Resource(name=TOPIC), entries=[entry]
            ),
        )

    def ping(self) -> bytes:
        return make_frame(FrameType.PING, 0, 0, b"\x00\x00\x00\x00\x00\x00\x04\xd2")

    def _call(self, method: str, message: Any, *, ends: bool = True) -> bytes:
        stream, self._stream = self._stream, self._stream + 2
        self._calls[stream] = bytearray()
        headers = [
            (":authority", "127.0.0.1:8081"),
            (":path", path(method)),
            (":method", "POST"),
            (":scheme", "http"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("user-agent", "grpc-java-netty/1.50.0"),
            ("x-mq-language", "JAVA"),
            ("x-mq-protocol", "v2"),
            ("x-mq-client-version", "5.2.0"),
            ("x-mq-namespace", ""),
            ("x-mq-date-time", time.strftime("%Y%m%dT%H%M%SZ")),
            ("x-mq-request-id", str(uuid.uuid4())),
            ("x-mq-client-id", self._id),
            ("grpc-accept-encoding", "gzip"),
        ]
        if ends:
            headers.append(("grpc-timeout", f"{29_999_999 - stream % 997}u"))
        block = self._encoder.encode(headers, huffman=False)
        data = encode_message(message.SerializeToString())
        return make_frame(FrameType.HEADERS, END_HEADERS, stream, block) + make_frame(
            FrameType.DATA, END_STREAM if ends else 0, stream, data
        )

    def take(self) -> None:
        """Reads what the proxy has written."""
        data = self._held + b"".join(self._transport.written)
        self._transport.written.clear()
        at = 0
        while len(data) >= at + HEADER_LENGTH:
            after = at + HEADER_LENGTH + int.from_bytes(data[at : at + 3])
            if after > len(data):
                break
            kind, flags = data[at + 3], data[at + 4]
            stream = int.from_bytes(data[at + 5 : at + 9])
            payload = data[at + HEADER_LENGTH : after]
            at = after
            if kind == FrameType.DATA:
                self._calls[stream] += payload
            elif kind == FrameType.HEADERS:
                self._decoder.decode(payload)
            if flags & END_STREAM and kind in (FrameType.DATA, FrameType.HEADERS):
                self.answers.append(_messages(self._calls.pop(stream)))
        self._held = data[at:]


def _messages(data: bytearray) -> list[bytes]:
    result, at = [], 0
    while at < len(data):
        after = at + 5 + int.from_bytes(data[at + 1 : at + 5])
        result.append(bytes(data[at + 5 : after]))
        at = after
    return result
