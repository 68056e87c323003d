"""The options of `format("rocketmq")`: names in both spellings, types, checks.

A name is read without regard to case. What stands in `_SPELLINGS` are the names that
rocketmq-spark's users know.
"""

import difflib
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rocketmq_tw.client.blocking import BlockingClient
from rocketmq_tw.client.commands import Credentials
from rocketmq_tw.config.net import CIPHERS
from rocketmq_tw.message.names import check_group, is_legal
from rocketmq_tw.message.tags import SUBSCRIBE_ALL, TAG_TYPE, parse_tag_expression
from rocketmq_tw.net.address import split_address
from rocketmq_tw.spark.errors import OptionError
from rocketmq_tw.wire.errors import RequestError

SQL92 = "SQL92"
DEFAULT_GROUP = "spark-rocketmq"
DEFAULT_PRODUCER_GROUP = "spark-rocketmq-writers"

#: Name of an option to its other spellings.
_SPELLINGS: dict[str, tuple[str, ...]] = {
    "nameServers": ("nameServer", "nameserver.addr", "namesrvAddr", "rocket.mq.name.server"),
    "topic": ("topics", "subscribe", "consumer.topic", "producer.topic"),
    "topicPattern": ("subscribePattern",),
    "group": ("consumer.group", "groupId"),
    "producerGroup": ("producer.group",),
    "expression": ("subExpression", "tags", "consumer.tag"),
    "expressionType": (),
    "startingOffsets": ("consumer.offset.reset.to",),
    "endingOffsets": (),
    "startingTimestamp": (),
    "endingTimestamp": (),
    "maxOffsetsPerTrigger": (),
    "minPartitions": (),
    "failOnDataLoss": (),
    "damagedMessages": (),
    "includeSystem": (),
    "commitOffsets": (),
    "pushFilters": (),
    "pullBatchSize": ("pull.max.batch.size",),
    "pullTimeoutMs": ("pull.timeout.ms",),
    "brokerDownTimeoutMs": (),
    "connectTimeoutMs": (),
    "accessKey": ("acl.accessKey",),
    "secretKey": ("acl.secretKey",),
    "securityToken": ("acl.securityToken",),
    "useTls": ("tls.enable",),
    "tlsCaFile": ("tls.client.trustCertPath",),
    "tlsCertFile": ("tls.client.certPath",),
    "tlsKeyFile": ("tls.client.keyPath",),
    "tlsVerify": ("tls.client.authServer",),
    "sendTimeoutMs": ("producer.timeout",),
    "sendRetries": ("producer.retry.times",),
    "sendBatchSize": (),
    "maxMessagesPerSecond": (),
}
_NAMES = {
    spelling.lower(): name for name, others in _SPELLINGS.items() for spelling in (name, *others)
}
#: Spark's own, which it hands on to every source.
_OF_SPARK = frozenset({"path", "checkpointlocation", "queryname", "outputmode"})
#: How Python shows what has no text of its own.
_OBJECT = re.compile(r"<.* at 0x[0-9a-fA-F]+>", re.DOTALL)


class Damaged(StrEnum):
    """What to do with a message whose CRC is wrong, or whose body cannot be unpacked."""

    FAIL = "fail"
    KEEP = "keep"
    ONLY = "only"


@dataclass(frozen=True)
class ConnectionOptions:
    """How to reach the cluster. Travels to the workers, so it holds texts and numbers only."""

    name_servers: tuple[str, ...]
    connect_timeout: float = 3.0
    credentials: Credentials | None = None
    tls: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_verify: bool = False

    def client(self, group: str, timeout: float, send_retries: int = 2) -> BlockingClient:
        """Returns a new client; the caller closes it."""
        return BlockingClient(
            self.name_servers,
            group=group,
            connect_timeout=self.connect_timeout,
            timeout=timeout,
            send_retries=send_retries,
            credentials=self.credentials,
            tls=self._context() if self.tls else None,
        )

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.tls_ca_file)
            # Servers are known by addresses that seldom stand in their certificates.
            context.check_hostname = False
            context.set_ciphers(CIPHERS)
            if not self.tls_verify:
                context.verify_mode = ssl.CERT_NONE
            if self.tls_cert_file is not None:
                context.load_cert_chain(self.tls_cert_file, self.tls_key_file)
        except OSError as error:
            raise OptionError(
                f"tlsCaFile, tlsCertFile or tlsKeyFile cannot be used on this machine: {error}"
            ) from error
        return context


@dataclass(frozen=True)
class Subscription:
    """Which messages: topics by name or by pattern, and what the broker leaves out."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    include_system: bool = False
    expression: str = SUBSCRIBE_ALL
    expression_type: str = TAG_TYPE

    @property
    def is_filtered(self) -> bool:
        return self.expression != SUBSCRIBE_ALL or self.expression_type != TAG_TYPE


@dataclass(frozen=True)
class SourceOptions:
    """The options of a read; times in seconds, timestamps in ms since 1970."""

    connection: ConnectionOptions
    subscription: Subscription
    group: str = DEFAULT_GROUP
    starting_offsets: str = "earliest"
    ending_offsets: str = "latest"
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    damaged: Damaged = Damaged.FAIL
    commit_offsets: bool = False
    push_filters: bool = False
    pull_batch_size: int = 4096
    pull_timeout: float = 10.0
    broker_down_timeout: float = 60.0


@dataclass(frozen=True)
class SinkOptions:
    """The options of a write."""

    connection: ConnectionOptions
    topic: str | None = None
    group: str = DEFAULT_PRODUCER_GROUP
    timeout: float = 10.0
    retries: int = 2
    batch_size: int = 64
    broker_down_timeout: float = 60.0
    max_messages_per_second: float | None = None


@dataclass
class _Reader:
    """Values by canonical name, taken out one by one with their types."""

    values: dict[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        return self.values.get(name)

    def flag(self, name: str, default: bool) -> bool:
        value = self.values.get(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise OptionError(f"the option {name} is {value!r}: give true or false")
        return value.lower() == "true"

    def number(self, name: str, default: int | None, least: int = 1) -> int | None:
        value = self.values.get(name)
        if value is None:
            return default
        if not re.fullmatch(r"-?[0-9]+", value) or int(value) < least:
            raise OptionError(
                f"the option {name} is {value!r}: give a whole number of at least {least}"
            )
        return int(value)

    def seconds(self, name: str, default: float) -> float:
        milliseconds = self.number(name, None)
        return default if milliseconds is None else milliseconds / 1000


def source_options(
    options: Mapping[str, object], *, streaming: bool | None = None
) -> SourceOptions:
    """Returns the options of a read; raises `OptionError` for the first mistake.

    With `streaming` None only what holds for both kinds of read is checked.
    """
    read = _Reader(canonical(options))
    subscription = _subscription(read)
    start = read.text("startingOffsets")
    if start is not None and read.text("startingTimestamp") is not None:
        raise OptionError("startingOffsets and startingTimestamp contradict each other: give one")
    end = read.text("endingOffsets")
    if end is not None and read.text("endingTimestamp") is not None:
        raise OptionError("endingOffsets and endingTimestamp contradict each other: give one")
    if streaming and (end is not None or read.text("endingTimestamp") is not None):
        raise OptionError("a stream has no end: leave out endingOffsets and endingTimestamp")
    if streaming is False and start == "latest":
        raise OptionError("a batch read from the latest offsets has no rows: give earliest or JSON")
    if end == "earliest":
        raise OptionError("endingOffsets is earliest, before every row: give latest or JSON")
    return SourceOptions(
        connection=_connection(read),
        subscription=subscription,
        group=_group(read, "group", DEFAULT_GROUP),
        starting_offsets=start or ("latest" if streaming else "earliest"),
        ending_offsets=end or "latest",
        starting_timestamp=read.number("startingTimestamp", None, 0),
        ending_timestamp=read.number("endingTimestamp", None, 0),
        max_offsets_per_trigger=read.number("maxOffsetsPerTrigger", None),
        min_partitions=read.number("minPartitions", None),
        fail_on_data_loss=read.flag("failOnDataLoss", True),
        damaged=_damaged(read),
        commit_offsets=read.flag("commitOffsets", read.text("group") is not None),
        push_filters=read.flag("pushFilters", False),
        pull_batch_size=read.number("pullBatchSize", 4096) or 4096,
        pull_timeout=read.seconds("pullTimeoutMs", 10.0),
        broker_down_timeout=read.seconds("brokerDownTimeoutMs", 60.0),
    )


def _group(read: "_Reader", option: str, default: str) -> str:
    group = read.text(option) or default
    try:
        check_group(group)
    except RequestError as error:
        raise OptionError(f"the option {option}: {error.remark}") from error
    return group


def sink_options(options: Mapping[str, object]) -> SinkOptions:
    """Returns the options of a write; raises `OptionError` for the first mistake."""
    read = _Reader(canonical(options))
    topic = read.text("topic")
    if topic is not None and not is_legal(topic):
        raise OptionError(
            f"the option topic is {topic!r}: a write has one topic, or a column topic"
        )
    return SinkOptions(
        connection=_connection(read),
        topic=topic,
        group=_group(read, "producerGroup", DEFAULT_PRODUCER_GROUP),
        timeout=read.seconds("sendTimeoutMs", 10.0),
        retries=read.number("sendRetries", 2, 0) or 0,
        batch_size=read.number("sendBatchSize", 64) or 64,
        broker_down_timeout=read.seconds("brokerDownTimeoutMs", 60.0),
        max_messages_per_second=read.number("maxMessagesPerSecond", None),
    )


def canonical(options: Mapping[str, object]) -> dict[str, str]:
    """Returns the options under their own names, as texts."""
    values: dict[str, str] = {}
    for given, value in options.items():
        name = _NAMES.get(given.lower())
        if name is None:
            if given.lower() in _OF_SPARK:
                continue
            near = difflib.get_close_matches(given.lower(), _NAMES, 1)
            hint = f"did you mean {_NAMES[near[0]]}?" if near else "see docs/spark.md for all"
            raise OptionError(f"there is no option {given}: {hint}")
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, str | int | float):
            text = str(value).strip()
        else:
            raise OptionError(
                f"the option {given} is a {type(value).__name__}, which cannot travel to Spark's"
                " workers: give text, a number or a boolean"
            )
        if _OBJECT.fullmatch(text):
            raise OptionError(
                f"the option {given} is {text}, an object that cannot travel to Spark's workers:"
                " give text, a number or a boolean"
            )
        if name in values and values[name] != text:
            raise OptionError(f"the option {name} is given twice, as {values[name]!r} and {text!r}")
        values[name] = text
    return values


def _subscription(read: _Reader) -> Subscription:
    topics, pattern = read.text("topic"), read.text("topicPattern")
    if topics is not None and pattern is not None:
        raise OptionError("topic and topicPattern contradict each other: give one")
    names: tuple[str, ...] = ()
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"topicPattern is no regular expression: {error}") from error
    else:
        names = tuple(part.strip() for part in (topics or "").split(",") if part.strip())
        if not names:
            raise OptionError("no topic is given: give topic, or topicPattern")
        for name in names:
            if not is_legal(name):
                raise OptionError(f"the topic {name!r} has a character that no topic has")
    expression = read.text("expression") or SUBSCRIBE_ALL
    kind = (read.text("expressionType") or TAG_TYPE).upper()
    if kind not in (TAG_TYPE, SQL92):
        raise OptionError(f"expressionType is {kind!r}: give TAG or SQL92")
    if kind == TAG_TYPE:
        try:
            parse_tag_expression(expression)
        except ValueError as error:
            raise OptionError(f"the option expression: {error}") from error
    return Subscription(names, pattern, read.flag("includeSystem", False), expression, kind)


def _damaged(read: _Reader) -> Damaged:
    value = read.text("damagedMessages") or Damaged.FAIL
    if value not in list(Damaged):
        raise OptionError(f"damagedMessages is {value!r}: give {', '.join(Damaged)}")
    return Damaged(value)


def _connection(read: _Reader) -> ConnectionOptions:
    text = read.text("nameServers")
    if not text:
        raise OptionError("no name server is given: give nameServers as host:port;host:port")
    addresses = tuple(part.strip() for part in re.split("[;,]", text) if part.strip())
    for address in addresses:
        try:
            split_address(address)
        except ValueError as error:
            raise OptionError(f"nameServers has {address!r}: give host:port") from error
    access, secret = read.text("accessKey"), read.text("secretKey")
    if (access is None) != (secret is None):
        raise OptionError("accessKey and secretKey belong together: give both or none")
    credentials = None
    if access is not None and secret is not None:
        credentials = Credentials(access, secret, read.text("securityToken"))
    return ConnectionOptions(
        name_servers=addresses,
        connect_timeout=read.seconds("connectTimeoutMs", 3.0),
        credentials=credentials,
        tls=read.flag("useTls", False),
        tls_ca_file=read.text("tlsCaFile"),
        tls_cert_file=read.text("tlsCertFile"),
        tls_key_file=read.text("tlsKeyFile"),
        tls_verify=read.flag("tlsVerify", read.text("tlsCaFile") is not None),
    )
