"""Messages as an application sends and receives them, and the results of both."""

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from rocketmq_tw.message.ids import offset_message_id
from rocketmq_tw.message.properties import (
    KEY_SEPARATOR,
    KEYS,
    RETRY_TOPIC,
    TAGS,
    UNIQ_KEY,
    parse_properties,
)
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.queues import MessageQueue


class Message(msgspec.Struct):
    """A message to send.

    `keys` find it again (no blanks within one), `tags` is what subscriptions filter by,
    `delay_level` 1-18 delivers it later (0: now), `sharding_key` goes along for ordered topics.
    With `wait_store` it is acknowledged only once it is on disk and at slaves as the broker has it.
    `properties` are the application's own; names of `message.properties` mean what stock means,
    and a field that is set goes over its property.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | Sequence[str] = ()
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    delay_level: int = 0
    sharding_key: str | None = None
    flag: int = 0
    wait_store: bool = True


class ReceivedMessage(msgspec.Struct, gc=False):
    """A message of a queue. Times are milliseconds since 1970; hosts `(ip, port)`.

    `topic` is the topic that it was sent to first, also where it came through a retry topic;
    `queue` is the queue that it stands in.
    """

    topic: str
    body: bytes
    queue: MessageQueue
    queue_offset: int
    physical_offset: int
    born_timestamp: int
    born_host: tuple[str, int]
    store_timestamp: int
    store_host: tuple[str, int]
    reconsume_times: int
    flag: int
    sys_flag: int
    store_size: int
    raw_properties: bytes
    _properties: dict[str, str] | None = None

    @property
    def properties(self) -> dict[str, str]:
        """All properties; parsed when first asked for."""
        if self._properties is None:
            self._properties = parse_properties(self.raw_properties)
        return self._properties

    @property
    def tags(self) -> str | None:
        """The tags that its producer gave it; None without."""
        return self.properties.get(TAGS)

    @property
    def keys(self) -> list[str]:
        """The keys that its producer gave it."""
        return self.properties.get(KEYS, "").split(KEY_SEPARATOR) if KEYS in self.properties else []

    @property
    def message_id(self) -> str:
        """The unique id that its producer gave it; the offset id where it has none."""
        return self.properties.get(UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id that says where it is stored."""
        return offset_message_id(*self.store_host, self.physical_offset)

    def restore_topic(self) -> None:
        """Sets `topic` back to what it was before the message went through a retry topic."""
        self.topic = self.properties.get(RETRY_TOPIC, self.topic)


class SendStatus(Enum):
    """A send is stored in all cases; the others say what could not be waited for."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(NamedTuple):
    """Where a message went. Of a batch the ids are joined by commas. By `recall_handle` a message
    that waits for its time can be taken back."""

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None


class PullStatus(Enum):
    """What a pull found."""

    FOUND = "found"
    NO_NEW_MESSAGE = "no_new_message"
    NO_MATCHED_MESSAGE = "no_matched_message"
    OFFSET_ILLEGAL = "offset_illegal"


class PulledBytes(NamedTuple):
    """What a pull brought, its records as they stand in the log; go on at `next_offset`.

    Where the queue is a logic one, of a static topic, `offset_delta` is what its offsets are above
    those that stand in the records; None otherwise.
    """

    status: PullStatus
    records: bytes
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int = 0
    offset_delta: int | None = None

    @property
    def begins_item(self) -> bool:
        """Whether a logic queue goes on at the beginning of a physical queue: offsets in front of
        it that had no message are those that a move left out."""
        return self.next_offset == self.offset_delta


class PullResult(NamedTuple):
    """What a pull brought; go on at `next_offset` in all cases.

    Where damaged bodies were asked for, `problems` says by queue offset what is wrong with them.
    """

    status: PullStatus
    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int = 0
    problems: Mapping[int, str] = MappingProxyType({})
