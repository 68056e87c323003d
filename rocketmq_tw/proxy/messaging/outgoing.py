"""From the messages of a request to what a broker is sent: one message, or a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from twisted.internet.defer import Deferred

from rocketmq_tw.client.preparing import Prepared, properties_text
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.config.values import delay_levels_ms
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.batch import BatchedMessage, encode_batch
from rocketmq_tw.message.compression import (
    CompressionType,
    check_zlib,
    compression_flag,
    gzip_to_zlib,
)
from rocketmq_tw.message.model import TRANSACTION_PREPARED
from rocketmq_tw.message.types import (
    DELAY_TYPE,
    FIFO_TYPE,
    MESSAGE_TYPES,
    NORMAL_TYPE,
    TRANSACTION_TYPE,
    message_type,
)
from rocketmq_tw.net.networks import host_of
from rocketmq_tw.proxy.brokers import Outgoing
from rocketmq_tw.proxy.grpc.interfaces import LARGEST_UNPACKED, RequestLimits
from rocketmq_tw.proxy.messaging.checks import MessageChecks, client_topic
from rocketmq_tw.proxy.messaging.messages import milliseconds, sent_properties, user_properties
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto.messages import (
    Code,
    Encoding,
    Message,
    SendMessageRequest,
    SystemProperties,
)
from rocketmq_tw.runtime.fairness import SerialRoundRobin
from rocketmq_tw.runtime.threads import InThread

_GZIP = Encoding.GZIP
#: Up to here a message that is too large is told so by the status of its entry.
_LEAST_LARGEST = 16 * 1024 * 1024
#: Where bodies stand in a request, and bytes of all else in it: some KiB for each of the messages
#: of a batch. More would be parsed for long.
_BODIES = (SendMessageRequest.MESSAGES_FIELD_NUMBER, Message.BODY_FIELD_NUMBER)
_MOST_BESIDE = 1024 * 1024
#: What bodies begin with that clients call GZIP: some of them mean zlib.
_GZIP_MAGIC = b"\x1f\x8b"
_ZLIB_MAGIC = b"\x78"


#: Types of messages that brokers store as they are.
_PLAIN = frozenset({NORMAL_TYPE, FIFO_TYPE})
#: By the type of one message, the types of all.
_ONLY = {kind: frozenset([kind]) for kind in MESSAGE_TYPES}


class OutgoingMessages:
    """Checks and prepares messages. Packed bodies are read in a thread, one at a time, one of
    each host after the other: they may unpack to much."""

    def __init__(self, config: ProxyConfig, now_ms: Callable[[], int], in_thread: InThread) -> None:
        self._config = config
        self._now_ms = now_ms
        self._in_thread = in_thread
        self._checks = MessageChecks(config, now_ms)
        self._delays = delay_levels_ms(config.message_delay_level)
        self._unpacking = SerialRoundRobin[str]()
        most = config.max_message_size
        largest = max(_LEAST_LARGEST, 2 * most) if most else config.grpc_max_inbound_message_size
        #: Of a request: brokers take a batch as one message, so that twice its size is too much.
        self.limits = RequestLimits(
            largest=largest,
            unpacked=min(most + _MOST_BESIDE, LARGEST_UNPACKED) if most else LARGEST_UNPACKED,
            bulk=_BODIES,
            beside=_MOST_BESIDE,
        )

    def prepare(self, messages: Sequence[Message], client: str) -> Outgoing | None:
        """Returns what is sent for the messages of one request of the client at the address
        `client`; None where bodies are packed, which `unpack` reads. Raises `StatusError` that
        says what is wrong with one of them."""
        for message in messages:
            if message.system_properties.body_encoding == _GZIP:
                return None
        topic, properties = self._checked(messages, client)
        return self._outgoing(topic, properties, [message.body for message in messages], 0)

    async def unpack(self, messages: Sequence[Message], client: str) -> Outgoing:
        """Returns what `prepare` does for messages whose bodies are packed."""
        topic, properties = self._checked(messages, client)
        packed = [message.system_properties.body_encoding == _GZIP for message in messages]
        if False in packed:
            raise StatusError(
                Code.MESSAGE_CORRUPTED,
                "the messages of a request have one body encoding: pack all of them or none",
            )
        bodies = [await self._zlib(message.body, client) for message in messages]
        flag = compression_flag(CompressionType.ZLIB)
        return self._outgoing(topic, properties, bodies, flag)

    def _checked(
        self, messages: Sequence[Message], client: str
    ) -> tuple[str, list[dict[str, str]]]:
        """Returns the topic of messages, and the properties that each is sent with; raises
        `StatusError`."""
        if not messages:
            raise StatusError(Code.MESSAGE_CORRUPTED, "no message to send: give one at least")
        resource = messages[0].topic
        topic = self._checks.topic(resource)
        born_host = host_of(client)
        properties = []
        for message in messages:
            if message.topic != resource and client_topic(message.topic) != topic:
                raise StatusError(
                    Code.MESSAGE_CORRUPTED,
                    "the messages of a request have one topic: send those of others by themselves",
                )
            own = user_properties(message)
            self._checks.check(message, own)
            properties.append(self._properties(message.system_properties, own, topic, born_host))
        return topic, properties

    def _outgoing(
        self,
        topic: str,
        properties: Sequence[dict[str, str]],
        bodies: Sequence[bytes],
        sys_flag: int,
    ) -> Outgoing:
        """Returns what is sent of messages that are checked; raises `StatusError`."""
        own = properties[0]
        message_id = own[props.UNIQ_KEY]
        if len(properties) == 1:
            kind = message_type(own)
            if kind == TRANSACTION_TYPE:
                sys_flag |= TRANSACTION_PREPARED
            ids: Sequence[str] = (message_id,)
            types, one = _ONLY[kind], own if kind in _PLAIN else None
            prepared = Prepared(topic, bodies[0], _text(own), sys_flag, 0, message_id, False)
        else:
            ids = tuple([each[props.UNIQ_KEY] for each in properties])
            types, one = frozenset(map(message_type, properties)), None
            prepared = _batch(topic, properties, bodies, sys_flag, types)
            most = self._config.max_message_size
            if 0 < most < len(prepared.body):
                raise StatusError(
                    Code.MESSAGE_BODY_TOO_LARGE,
                    f"the messages of the request have {len(prepared.body)} bytes together, with"
                    f" their properties: at most {most} are taken, send fewer at a time",
                )
        born = props.number(own.get(props.BORN_TIMESTAMP))
        return Outgoing(
            prepared,
            ids,
            types,
            own.get(props.SHARDING_KEY, ""),
            self._now_ms() if born is None else born,
            one,
        )

    def _properties(
        self, system: SystemProperties, own: Mapping[str, str], topic: str, born_host: str
    ) -> dict[str, str]:
        # Its topic stands for the group of a producer, which has none in this protocol.
        properties = sent_properties(system, own, topic, born_host)
        if system.HasField("delivery_timestamp"):
            time_ms = milliseconds(system.delivery_timestamp)
            properties[props.TIMER_DELIVER_MS] = str(time_ms)
            if self._config.use_delay_level:
                properties[props.DELAY] = str(self._level(time_ms - self._now_ms()))
        return properties

    def _level(self, delay_ms: int) -> int:
        """Returns the first delay level that is longer than a delay; the last one where none is."""
        for level, each in enumerate(self._delays, 1):
            if each > delay_ms:
                return level
        return len(self._delays)

    async def _zlib(self, body: bytes, client: str) -> bytes:
        """Returns a packed body as consumers of all protocols read it."""
        if not body:
            return body
        if not body.startswith((_GZIP_MAGIC, _ZLIB_MAGIC)):
            raise StatusError(
                Code.MESSAGE_CORRUPTED,
                "the body's encoding is GZIP, but it is not packed so: send IDENTITY",
            )
        try:
            read: Deferred[bytes] = self._unpacking.run(
                host_of(client), lambda: self._in_thread(lambda: _read(body))
            )
            return await read
        except ValueError as error:
            raise StatusError(Code.MESSAGE_CORRUPTED, str(error)) from None


def _batch(
    topic: str,
    properties: Sequence[dict[str, str]],
    bodies: Sequence[bytes],
    sys_flag: int,
    types: frozenset[str],
) -> Prepared:
    """Returns several messages as one that is sent; raises `StatusError`."""
    if types & {TRANSACTION_TYPE, DELAY_TYPE}:
        raise StatusError(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "several messages of one request may not be delayed, nor of transactions: send them"
            " one by one",
        )
    if len({own.get(props.SHARDING_KEY) for own in properties}) > 1:
        raise StatusError(
            Code.ILLEGAL_MESSAGE_GROUP,
            "the messages of a request have one message group: send those of others by themselves",
        )
    body = encode_batch(
        BatchedMessage(0, body, _text(own).encode())
        for body, own in zip(bodies, properties, strict=True)
    )
    ids = ",".join(own[props.UNIQ_KEY] for own in properties)
    # Brokers append these to each message's own.
    return Prepared(topic, body, _text({props.WAIT: "true"}), sys_flag, 0, ids, True)


def _read(body: bytes) -> bytes:
    """Returns a body of gzip or zlib as one of zlib; raises `ValueError` where it is damaged."""
    if body.startswith(_GZIP_MAGIC):
        return gzip_to_zlib(body)
    check_zlib(body)
    return body


def _text(properties: dict[str, str]) -> str:
    try:
        return properties_text(properties)
    except ValueError as error:
        raise StatusError(Code.MESSAGE_PROPERTIES_TOO_LARGE, str(error)) from None
