"""A message of the topic: a consumer came, is still there, or went.

Format: docs/formats/proxy-heartbeats.md.
"""

from __future__ import annotations

from typing import NamedTuple

from rocketmq_tw.structs import field, msgspec
from rocketmq_tw.wire.bodies.base import Body, decode_body, encode_body
from rocketmq_tw.wire.bodies.clients import ConsumerData, SubscriptionData
from rocketmq_tw.wire.command import LanguageCode
from rocketmq_tw.wire.errors import BodyError

REGISTER, UNREGISTER = "REGISTER", "UNREGISTER"
GRPC, REMOTING = "GRPC_V2", "REMOTING"
#: Bytes of one message: some hundred subscriptions. What is longer is neither told nor read.
MAX_RECORD_BYTES = 128 * 1024
#: Characters of a name in it.
MAX_NAME = 255
_MAX_LONG = (1 << 63) - 1

_LANGUAGES = frozenset(language.name for language in LanguageCode)


class ConsumerHeartbeat(Body):
    """Stock's HeartbeatSyncerData; `channel_data` is a `ClientChannel` as text. Subscriptions are
    not read before somebody asks for them: `heartbeat_subscriptions`."""

    heartbeat_type: str = ""
    client_id: str = ""
    language: str | None = None
    version: int = 0
    #: ms since 1970 at the proxy that tells it.
    last_update_timestamp: int = 0
    subscription_data_set: msgspec.Raw = msgspec.Raw(b"")
    group: str = ""
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    local_proxy_id: str = ""
    channel_data: str | None = None
    #: Ours: brokers know this client, so that other proxies of ours learn of it there. Not so where
    #: its proxy has more of its group than connections.
    is_known_to_brokers: bool = field(default=False, name="knownToBrokers")


class ClientChannel(Body):
    """Where a client is connected; `extend_attribute` are a gRPC client's settings, a classic
    client's subscriptions, as JSON."""

    remote_proxy_ip: str = ""
    remote_address: str | None = None
    local_address: str | None = None
    type: str = REMOTING
    extend_attribute: str | None = None


class Origin(NamedTuple):
    """A client of this proxy: its id, its connection, and what it says of itself."""

    client_id: str
    protocol: str
    address: str
    local_address: str
    language: str
    version: int


class ProxyIdentity(NamedTuple):
    """How a proxy names itself; one that shares its ports names its process too."""

    host: str
    classic_port: int
    grpc_port: int
    process: int | None = None

    def __str__(self) -> str:
        place = f"{self.host}%{self.classic_port}%{self.grpc_port}"
        return place if self.process is None else f"{place}%{self.process}"


def encode_consumer(
    kind: str,
    identity: ProxyIdentity,
    origin: Origin,
    consumer: ConsumerData,
    now_ms: int,
    *,
    attribute: str | None = None,
    is_known_to_brokers: bool = True,
) -> bytes:
    """Returns the message that tells of a consumer in one group."""
    channel = ClientChannel(
        remote_proxy_ip=identity.host,
        remote_address=origin.address,
        local_address=origin.local_address,
        type=origin.protocol,
        extend_attribute=attribute,
    )
    record = ConsumerHeartbeat(
        heartbeat_type=kind,
        client_id=origin.client_id,
        language=origin.language if origin.language in _LANGUAGES else LanguageCode.OTHER.name,
        version=origin.version,
        last_update_timestamp=now_ms,
        subscription_data_set=msgspec.Raw(encode_body(consumer.subscription_data_set)),
        group=consumer.group_name,
        consume_type=consumer.consume_type,
        message_model=consumer.message_model,
        consume_from_where=consumer.consume_from_where,
        local_proxy_id=str(identity),
        channel_data=encode_body(channel).decode(),
        is_known_to_brokers=is_known_to_brokers,
    )
    return encode_body(record)


def decode_consumer(body: bytes) -> tuple[ConsumerHeartbeat, ClientChannel]:
    """Reads a message, which anybody may have sent; raises `BodyError`."""
    if len(body) > MAX_RECORD_BYTES:
        raise BodyError(f"a heartbeat of {len(body)} bytes, {MAX_RECORD_BYTES} are the limit")
    record = decode_body(ConsumerHeartbeat, body, tolerant_bytes=0)
    channel = decode_body(ClientChannel, (record.channel_data or "{}").encode(), tolerant_bytes=0)
    record.channel_data = channel.extend_attribute = None
    if record.heartbeat_type not in (REGISTER, UNREGISTER):
        raise BodyError(f"a heartbeat of the type {record.heartbeat_type[:MAX_NAME]!r}")
    names = (
        record.group,
        record.client_id,
        record.local_proxy_id,
        record.language,
        record.consume_type,
        record.message_model,
        record.consume_from_where,
        channel.remote_proxy_ip,
        channel.remote_address,
        channel.local_address,
        channel.type,
    )
    if not record.group or not record.client_id or not record.local_proxy_id:
        raise BodyError("a heartbeat without a group, a client or a proxy")
    if max(abs(record.version), abs(record.last_update_timestamp)) > _MAX_LONG:
        raise BodyError("a heartbeat with a number that is no long")
    if any(len(name or "") > MAX_NAME for name in names):
        raise BodyError(f"a heartbeat with a name of more than {MAX_NAME} characters")
    return record, channel


def heartbeat_subscriptions(record: ConsumerHeartbeat) -> list[SubscriptionData]:
    """Returns what the members of the group subscribe to; nothing where that cannot be read."""
    text = bytes(record.subscription_data_set)
    if not text:
        return []
    try:
        return decode_body(list[SubscriptionData], text, tolerant_bytes=0)
    except BodyError:
        return []
