"""Checks what a client may ask: its id, names of topics, groups and brokers, the limits of a
message that it sends, and what its topic takes.

Limits and codes are those of stock's proxies; a refusal is a `StatusError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.names import (
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    check_group,
    check_topic,
)
from rocketmq_tw.message.properties import RESERVED
from rocketmq_tw.message.types import MESSAGE_TYPE, MIXED_TYPE, has_type, topic_type
from rocketmq_tw.net.errors import ConnectError
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.grpc.interfaces import ICall
from rocketmq_tw.proxy.messaging.messages import milliseconds
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.proto.messages import (
    Code,
    Encoding,
    Message,
    MessageType,
    Resource,
    SystemProperties,
    Timestamp,
)
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.errors import RequestError

#: Types of messages that newer clients have. They have fields that this protocol does not know.
_NOT_SERVED = {5: "lite topics", 6: "priorities"}
#: Characters of a client's id.
MAX_CLIENT_ID = 255
#: Characters of a namespace.
_MAX_NAMESPACE = 255
#: Characters of a wrong text that a refusal repeats.
_SHOWN = 100

# Looked up once, since each look into an enumeration is a call, and these are for each message.
_BAD_REQUEST = Code.BAD_REQUEST
_ILLEGAL_CONSUMER_GROUP = Code.ILLEGAL_CONSUMER_GROUP
_ILLEGAL_GROUP = Code.ILLEGAL_MESSAGE_GROUP
_ILLEGAL_ID = Code.ILLEGAL_MESSAGE_ID
#: Characters of a message id: clients make 34 to 36. A transaction's id has it, and where it is.
_LONGEST_ID = 255
_ILLEGAL_KEY = Code.ILLEGAL_MESSAGE_KEY
_ILLEGAL_PROPERTY = Code.ILLEGAL_MESSAGE_PROPERTY_KEY
_ILLEGAL_TAG = Code.ILLEGAL_MESSAGE_TAG
_ILLEGAL_TOPIC = Code.ILLEGAL_TOPIC
_ENCODINGS = frozenset(Encoding.values())
_TYPES = frozenset(MessageType.values())

_find_control_character = re.compile("[\x00-\x1f\x7f-\x9f]").search


def _control_character(text: str) -> bool:
    """Returns whether a text has one."""
    # Most are printable, which is told much sooner.
    return not text.isprintable() and _find_control_character(text) is not None


def client_id_of(call: ICall) -> str:
    """Returns the id that the client of a call gave itself; raises `StatusError` where it gave
    none."""
    client_id = call.metadata.get("x-mq-client-id", "").strip()
    if not client_id:
        raise StatusError(
            Code.CLIENT_ID_REQUIRED, "the call has no metadata x-mq-client-id: give the client's id"
        )
    if len(client_id) > MAX_CLIENT_ID:
        raise StatusError(
            Code.BAD_REQUEST,
            f"a client id of {len(client_id)} characters: use at most {MAX_CLIENT_ID}",
        )
    return client_id


def check_broker(brokers: IBrokers, name: str) -> None:
    """Checks the name of a broker, in a queue or a receipt handle; raises `StatusError`
    (BAD_REQUEST, as of stock's proxies) where there is no such broker, and `ConnectError`, after
    which clients try again, where that is not known yet."""
    if name in brokers.names():
        return
    if not brokers.are_told():
        raise ConnectError(
            name[:_SHOWN], "no name server has told yet which brokers there are: try again"
        )
    raise StatusError(
        Code.BAD_REQUEST,
        f"no broker {name[:_SHOWN]!r} is known here: try again later, unless it is one of another"
        " cluster",
    )


def no_route(brokers: IBrokers, topic: str) -> StatusError:
    """Returns what a call fails with where name servers have no route of its topic:
    TOPIC_NOT_FOUND, and what clients try again after (INTERNAL_SERVER_ERROR) while it is not known
    which brokers there are."""
    if brokers.are_told():
        # The words of stock's proxies, which programs may look for.
        missing = f"CODE: 17  DESC: No topic route info in name server for the topic: {topic}"
        return StatusError(Code.TOPIC_NOT_FOUND, f"{missing}; no broker has it: create it")
    return StatusError(
        Code.INTERNAL_SERVER_ERROR,
        f"no name server has told yet which brokers there are, nor who has {topic}: try again",
    )


def client_topic(resource: Resource) -> str:
    """Returns the name of a client's topic, without its namespace; raises `StatusError`
    (ILLEGAL_TOPIC)."""
    name = _name(resource, _ILLEGAL_TOPIC)
    try:
        check_topic(name)
    except RequestError as error:
        raise StatusError(_ILLEGAL_TOPIC, error.remark) from None
    if name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX):
        raise StatusError(_ILLEGAL_TOPIC, f"{name} is a topic of the servers: use your own")
    return name


def client_group(resource: Resource) -> str:
    """Returns the name of a client's consumer group, without its namespace; raises `StatusError`
    (ILLEGAL_CONSUMER_GROUP)."""
    name = _name(resource, _ILLEGAL_CONSUMER_GROUP)
    try:
        check_group(name)
    except RequestError as error:
        raise StatusError(_ILLEGAL_CONSUMER_GROUP, error.remark) from None
    if name.startswith(SYSTEM_GROUP_PREFIX):
        raise StatusError(
            _ILLEGAL_CONSUMER_GROUP, f"{name} is a group of the servers: use your own"
        )
    return name


def _name(resource: Resource, code: Code) -> str:
    # Stock's proxies pass over the namespace; routes repeat it for each queue.
    length = len(resource.resource_namespace)
    if length > _MAX_NAMESPACE:
        raise StatusError(code, f"a namespace of {length} characters: use at most {_MAX_NAMESPACE}")
    return resource.name


class MessageChecks:
    """Checks messages that are sent against the limits of the configuration."""

    def __init__(self, config: ProxyConfig, now_ms: Callable[[], int]) -> None:
        self._config = config
        self._now_ms = now_ms

    def topic(self, resource: Resource) -> str:
        """Returns the topic's name as `client_topic` does; raises `StatusError` (ILLEGAL_TOPIC) for
        the one as well by which proxies tell each other of consumers, and believe what it has."""
        name = client_topic(resource)
        if name == self._config.heartbeat_syncer_topic_name:
            raise StatusError(_ILLEGAL_TOPIC, f"{name} is the topic of the proxies: use your own")
        return name

    def check(self, message: Message, own: Mapping[str, str]) -> None:
        """Raises `StatusError` for a message that may not be sent, whatever its topic. `own` are
        its user's properties."""
        system = message.system_properties
        _check_type(system.message_type)
        self._check_body(message.body)
        if system.body_encoding not in _ENCODINGS:
            raise StatusError(
                Code.NOT_IMPLEMENTED,
                f"the body encoding {system.body_encoding} is not known: send IDENTITY or GZIP",
            )
        self._check_properties(own, system)
        _check_id(system.message_id)
        self._check_recovery(system)
        self._check_delivery(system)
        self._check_group(system.message_group)
        _check_text("trace context", system.trace_context, _BAD_REQUEST)
        _check_text("born host", system.born_host, _BAD_REQUEST)
        if system.HasField("born_timestamp"):
            _time(system.born_timestamp, "born", _BAD_REQUEST)

    def _check_body(self, body: bytes) -> None:
        if not body and self._config.enable_message_body_empty_check:
            raise StatusError(
                Code.MESSAGE_BODY_EMPTY, "the message has no body: send at least one byte"
            )
        most = self._config.max_message_size
        if 0 < most < len(body):
            raise StatusError(
                Code.MESSAGE_BODY_TOO_LARGE,
                f"a body of {len(body)} bytes: at most {most} are taken",
            )

    def _check_properties(self, properties: Mapping[str, str], system: SystemProperties) -> None:
        keys = system.keys
        most = self._config.max_user_property_size
        if 0 < most < len(keys):
            raise StatusError(
                Code.MESSAGE_PROPERTIES_TOO_LARGE,
                f"{len(keys)} keys, of which {most} bytes are taken: give fewer",
            )
        most = self._config.user_property_max_num
        if 0 < most < len(properties):
            raise StatusError(
                Code.MESSAGE_PROPERTIES_TOO_LARGE,
                f"{len(properties)} user properties: at most {most} are taken",
            )
        text = "".join([*properties, *properties.values()])
        if _control_character(text) or "" in properties or not RESERVED.isdisjoint(properties):
            # One of them is wrong.
            for name, value in properties.items():
                _check_property(name, value)
        _check_tag(system.tag)
        for key in keys:
            _check_text("key", key, _ILLEGAL_KEY)
        size = len("".join([text, system.tag, *keys]).encode())
        most = self._config.max_user_property_size
        if 0 < most < size:
            raise StatusError(
                Code.MESSAGE_PROPERTIES_TOO_LARGE,
                f"user properties, tag and keys of {size} bytes together: at most {most} are taken",
            )

    def _check_recovery(self, system: SystemProperties) -> None:
        if not system.HasField("orphaned_transaction_recovery_duration"):
            return
        if system.message_type != MessageType.TRANSACTION:
            return
        seconds = system.orphaned_transaction_recovery_duration.seconds
        most = self._config.max_transaction_recovery_second
        if seconds < 0 or 0 < most < seconds:
            raise StatusError(
                Code.BAD_REQUEST,
                f"orphaned_transaction_recovery_duration is {seconds} s: give 0 to {most or 'any'}",
            )

    def _check_delivery(self, system: SystemProperties) -> None:
        if not system.HasField("delivery_timestamp"):
            return
        time_ms = _time(system.delivery_timestamp, "delivery", Code.ILLEGAL_DELIVERY_TIME)
        most = self._config.max_delay_time_mills
        delay = time_ms - self._now_ms()
        if 0 < most < delay:
            raise StatusError(
                Code.ILLEGAL_DELIVERY_TIME,
                f"a delivery in {delay} ms: at most {most} ms ahead are taken",
            )

    def _check_group(self, group: str) -> None:
        _check_text("message group", group, _ILLEGAL_GROUP)
        most = self._config.max_message_group_size
        if 0 < most <= len(group.encode()):
            raise StatusError(
                Code.ILLEGAL_MESSAGE_GROUP,
                f"a message group of {len(group.encode())} bytes: give less than {most}",
            )


class TopicTypes:
    """Checks what a topic takes, where the configuration wants that."""

    def __init__(self, metadata: Metadata, config: ProxyConfig) -> None:
        self._metadata = metadata
        self._config = config

    def check_known(self, topic: str, types: frozenset[str]) -> bool:
        """Raises `StatusError` where messages of these types may not be in a topic; returns False
        where a broker has to be asked, as `check` does."""
        if not self._config.enable_topic_message_type_check or not has_type(topic):
            return True
        found = self._metadata.known_topic(topic)
        if found is None:
            return False
        _check_types(topic, found, types)
        return True

    async def check(self, topic: str, types: frozenset[str], seconds: float) -> None:
        """Raises `StatusError` as `check_known` does; messages of all types may be in a topic where
        no broker says within `seconds` what it takes."""
        if not self.check_known(topic, types):
            found = await self._metadata.topic_within(topic, seconds)
            if found is not None:
                _check_types(topic, found, types)


def _check_types(topic: str, found: TopicConfig, types: frozenset[str]) -> None:
    wanted = topic_type(found.attributes)
    if wanted != MIXED_TYPE and types != {wanted}:
        (other, *_) = sorted(types - {wanted})
        raise StatusError(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"the topic {topic} takes {wanted} messages, this one is {other}: send it to a"
            f" topic of its type, or change the topic's attribute {MESSAGE_TYPE}",
        )


def _check_type(kind: int) -> None:
    if kind in _TYPES:
        return
    if kind in _NOT_SERVED:
        raise StatusError(
            Code.NOT_IMPLEMENTED,
            f"messages with {_NOT_SERVED[kind]} are not served: send NORMAL, FIFO, DELAY or"
            " TRANSACTION messages",
        )
    raise StatusError(Code.NOT_IMPLEMENTED, f"the message type {kind} is not known")


def _check_id(message_id: str) -> None:
    if not message_id.strip():
        raise StatusError(Code.ILLEGAL_MESSAGE_ID, "the message has no id: give it one")
    if len(message_id) > _LONGEST_ID:
        raise StatusError(
            Code.ILLEGAL_MESSAGE_ID,
            f"a message id of {len(message_id)} characters: give at most {_LONGEST_ID}",
        )
    _check_text("message id", message_id, _ILLEGAL_ID)


def _check_property(name: str, value: str) -> None:
    code = _ILLEGAL_PROPERTY
    if not name:
        raise StatusError(code, f"the property with the value {value[:_SHOWN]!r} has no name")
    if name in RESERVED:
        raise StatusError(code, f"the property {name} is the servers' own: take another name")
    if _control_character(name):
        raise StatusError(code, f"the property name {name[:_SHOWN]!r} has a control character")
    if _control_character(value):
        raise StatusError(
            code, f"the value of the property {name[:_SHOWN]} has a control character"
        )


def _check_tag(tag: str) -> None:
    _check_text("tag", tag, _ILLEGAL_TAG)
    if "|" in tag:
        raise StatusError(
            Code.ILLEGAL_MESSAGE_TAG,
            f"the tag {tag[:_SHOWN]!r} has a |, which divides tags of subscriptions: leave it out",
        )


def _check_text(what: str, text: str, code: Code) -> None:
    """Raises `StatusError` for blanks and for a control character; an empty text is none."""
    if not text:
        return
    if not text.strip():
        raise StatusError(code, f"the {what} has blanks only: leave it out or name it")
    if _control_character(text):
        raise StatusError(code, f"the {what} {text[:_SHOWN]!r} has a control character")


def _time(timestamp: Timestamp, what: str, code: Code) -> int:
    try:
        return milliseconds(timestamp)
    except ValueError as error:
        raise StatusError(code, f"the {what} timestamp is no time: {error}") from None
