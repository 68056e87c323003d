"""Messages that stand in further queues: `enableMultiDispatch`, and light ones (`enableLmq`).

The sender names the queues in INNER_MULTI_DISPATCH; at the append the store writes the message's
offset in each of them into INNER_MULTI_QUEUE_OFFSET. The record stays one, in its own queue; the
units of the others point to it. A name that begins with %LMQ% has one queue, 0; any other name is a
topic, whose queue has the message's own queue id.
"""

from __future__ import annotations

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.message.names import (
    LMQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    is_storable,
)
from rocketmq_tw.message.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    WAIT,
    join_properties,
    parse_properties,
)
from rocketmq_tw.store.errors import IllegalMessageError

SEPARATOR = ","
#: Queues of one message; stock has no limit but the properties' length.
MAX_QUEUES = 1_000
_NAMES = INNER_MULTI_DISPATCH.encode() + b"\x01"
_OFFSETS = INNER_MULTI_QUEUE_OFFSET.encode() + b"\x01"

#: A unit beside the record's own: topic, queue id, queue offset.
FurtherUnit = tuple[str, int, int]


class MultiDispatch:
    """`lmq`: names that begin with %LMQ% are light queues (`enableLmq`)."""

    def __init__(self, *, lmq: bool) -> None:
        self._lmq = lmq

    def named(self, topic: str, queue_id: int, properties: bytes) -> list[tuple[str, int]]:
        """The queues that a message to be appended names, as often as it does; none where its topic
        allows none. Raises `IllegalMessageError` for a name that is no topic for messages."""
        if _NAMES not in properties or not _allows(topic):
            return []
        names = parse_properties(properties).get(INNER_MULTI_DISPATCH, "").strip()
        if not names:
            return []
        queues = names.split(SEPARATOR)
        if len(queues) > MAX_QUEUES:
            raise IllegalMessageError(
                f"{INNER_MULTI_DISPATCH} names {len(queues)} queues: name at most {MAX_QUEUES}"
            )
        for name in queues:
            if not _may_be_named(name):
                raise IllegalMessageError(
                    f"{INNER_MULTI_DISPATCH} names {name!r}, which is no topic for messages"
                )
        return [self._queue(name, queue_id) for name in queues]

    @staticmethod
    def with_offsets(properties: bytes, offsets: list[int]) -> bytes:
        """The properties of a message that gets these offsets in the queues that it names."""
        parsed = parse_properties(properties)
        parsed.pop(WAIT, None)
        parsed[INNER_MULTI_QUEUE_OFFSET] = SEPARATOR.join(map(str, offsets))
        return join_properties(parsed)

    def further(self, topic: str, queue_id: int, properties: bytes) -> tuple[FurtherUnit, ...]:
        """The units beside its own of a record in the log. What no append can have written counts
        for nothing."""
        if _NAMES not in properties or _OFFSETS not in properties or not _allows(topic):
            return ()
        parsed = parse_properties(properties)
        names = parsed.get(INNER_MULTI_DISPATCH, "").strip().split(SEPARATOR)
        offsets = parsed.get(INNER_MULTI_QUEUE_OFFSET, "").split(SEPARATOR)
        if len(names) != len(offsets) or len(names) > MAX_QUEUES:
            return ()
        units = {
            (*self._queue(name, queue_id), int(offset)): None
            for name, offset in zip(names, offsets, strict=True)
            if offset.isascii() and offset.isdigit() and _may_be_named(name)
        }
        return tuple(units)

    def _queue(self, name: str, queue_id: int) -> tuple[str, int]:
        return name, 0 if self._lmq and name.startswith(LMQ_PREFIX) else queue_id


def multi_dispatch_of(config: MessageStoreConfig) -> MultiDispatch | None:
    """As the configuration wants it; None where messages name no further queues."""
    return MultiDispatch(lmq=config.enable_lmq) if config.enable_multi_dispatch else None


def has_offsets(properties: bytes) -> bool:
    """Whether a message says already where it stands in further queues."""
    return _OFFSETS in properties


def _allows(topic: str) -> bool:
    """Whether messages of the topic may stand in further queues, by stock's rule."""
    return topic != SCHEDULE_TOPIC and not topic.startswith((RETRY_PREFIX, SYSTEM_TOPIC_PREFIX))


def _may_be_named(name: str) -> bool:
    return is_storable(name) and len(name) <= 255 and name not in SYSTEM_TOPICS and _allows(name)
