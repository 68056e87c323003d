"""Messages that stand in further queues: `enableMultiDispatch`, and light queues (`enableLmq`);
docs/formats/multi-dispatch.md.

The sender names the queues in INNER_MULTI_DISPATCH; at the append the store writes the message's
offset in each of them into INNER_MULTI_QUEUE_OFFSET. There is one record, in the message's own
queue; the units of the further queues point to it. A name that begins with %LMQ% is a light queue,
with queue id 0 only; any other name is a topic, in which the message keeps its queue id.

A message that waits for its topic (delayed, timed, half) enters its further queues together with
its topic. Their names are checked when the message is first taken, since afterwards the producer
cannot be told.
"""

from __future__ import annotations

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import (
    DLQ_PREFIX,
    HALF_TOPIC,
    LMQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    is_storable,
)
from rocketmq_tw.message.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    MAX_PROPERTIES_LENGTH,
    REAL_QID,
    REAL_TOPIC,
    WAIT,
    join_properties,
    number,
    parse_properties,
)
from rocketmq_tw.store.errors import IllegalMessageError

_SEPARATOR = ","
#: Queues of one message; stock has no limit but the properties' length.
_MAX_QUEUES = 1_000
_NAMES = INNER_MULTI_DISPATCH.encode() + b"\x01"
_OFFSETS = INNER_MULTI_QUEUE_OFFSET.encode() + b"\x01"
#: Characters of an offset and what parts it from the next one, at most.
_OFFSET_LENGTH = 20
#: What a broker may add to the properties of one that waits.
_GROWTH = 500
#: Topics in which messages wait for their own.
_WAITING = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC})
_NOT_DECIDED = frozenset({HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC})

#: A unit beside the record's own: topic, queue id, queue offset.
FurtherUnit = tuple[str, int, int]


class MultiDispatch:
    """`lmq`: names that begin with %LMQ% are light queues (`enableLmq`)."""

    def __init__(self, *, lmq: bool) -> None:
        self._lmq = lmq

    def named(self, message: StoredMessage) -> list[tuple[str, int]]:
        """Returns the queues that a message to be appended gets into, as often as it names them;
        none where its topic allows none. Raises `IllegalMessageError` for a name that is no topic
        for messages; what was taken before that was looked at is not lost, but names none then."""
        topic, properties = message.topic, message.properties
        if _NAMES not in properties or not _allows(topic) or _keeps_copies(topic):
            return []
        try:
            return self._checked(parse_properties(properties), topic, message.queue_id)
        except IllegalMessageError:
            if message.was_stored:
                return []
            raise

    def named_later(self, message: StoredMessage) -> list[tuple[str, int]]:
        """Returns the queues that one names which is new and waits for its topic; raises as
        `named`."""
        properties = message.properties
        if _NAMES not in properties or message.topic not in _WAITING or message.was_stored:
            return []
        parsed = parse_properties(properties)
        topic, queue_id = parsed.get(REAL_TOPIC, ""), number(parsed.get(REAL_QID))
        if not _allows(topic) or queue_id is None or queue_id < 0:
            return []
        queues = self._checked(parsed, topic, queue_id)
        if len(properties) + _GROWTH + len(queues) * _OFFSET_LENGTH > MAX_PROPERTIES_LENGTH:
            raise IllegalMessageError(
                f"the offsets in {len(queues)} queues find no room in the message's properties:"
                f" name fewer in {INNER_MULTI_DISPATCH}"
            )
        return queues

    def _checked(
        self, properties: dict[str, str], topic: str, queue_id: int
    ) -> list[tuple[str, int]]:
        names = properties.get(INNER_MULTI_DISPATCH, "").strip()
        if not names:
            return []
        queues = names.split(_SEPARATOR)
        if len(queues) > _MAX_QUEUES:
            raise IllegalMessageError(
                f"{INNER_MULTI_DISPATCH} names {len(queues)} queues: name at most {_MAX_QUEUES}"
            )
        for name in queues:
            if not _may_be_named(name):
                raise IllegalMessageError(
                    f"{INNER_MULTI_DISPATCH} names {name!r}, which is no topic for messages"
                )
        named = [self._queue(name, queue_id) for name in queues]
        if (topic, queue_id) in named:
            raise IllegalMessageError("a message names its own queue among the further ones")
        return named

    @staticmethod
    def with_offsets(properties: bytes, offsets: list[int]) -> bytes:
        """Returns the properties of a message that gets these offsets in the queues that it
        names."""
        parsed = parse_properties(properties)
        parsed.pop(WAIT, None)
        parsed[INNER_MULTI_QUEUE_OFFSET] = _SEPARATOR.join(map(str, offsets))
        return join_properties(parsed)

    @staticmethod
    def without_offsets(properties: bytes) -> bytes:
        """Returns the properties of a message that stands in no further queue, whatever it says."""
        parsed = parse_properties(properties)
        parsed.pop(INNER_MULTI_QUEUE_OFFSET, None)
        return join_properties(parsed)

    def further(self, topic: str, queue_id: int, properties: bytes) -> tuple[FurtherUnit, ...]:
        """Returns the units beside its own of a record in the log. What no append can have written
        counts for nothing."""
        if not _allows(topic):
            return ()
        units = {
            (*self._queue(name, queue_id), offset): None
            for name, offset in _stated(properties)
            if _may_be_named(name)
        }
        return tuple(units)

    def _queue(self, name: str, queue_id: int) -> tuple[str, int]:
        return name, 0 if self._lmq and name.startswith(LMQ_PREFIX) else queue_id


def multi_dispatch_of(config: MessageStoreConfig) -> MultiDispatch | None:
    """Makes the `MultiDispatch` that the configuration asks for; None where messages name no
    further queues."""
    return MultiDispatch(lmq=config.enable_lmq) if config.enable_multi_dispatch else None


def has_offsets(properties: bytes) -> bool:
    """Returns whether a message says already where it stands in further queues."""
    return _OFFSETS in properties


def offset_in(topic: str, message: StoredMessage) -> int:
    """Returns where a record that was read from a queue of `topic` stands in it: its own queue, or
    one of its further ones."""
    if message.topic == topic:
        return message.queue_offset
    return dict(_stated(message.properties)).get(topic, message.queue_offset)


def _stated(properties: bytes) -> list[tuple[str, int]]:
    """Returns names of further queues with the offsets that a record says to have there."""
    if _NAMES not in properties or _OFFSETS not in properties:
        return []
    parsed = parse_properties(properties)
    names = parsed.get(INNER_MULTI_DISPATCH, "").strip().split(_SEPARATOR)
    offsets = parsed.get(INNER_MULTI_QUEUE_OFFSET, "").split(_SEPARATOR)
    if len(names) != len(offsets) or len(names) > _MAX_QUEUES:
        return []
    stated = zip(names, map(number, offsets), strict=True)
    return [(name, offset) for name, offset in stated if offset is not None and offset >= 0]


def _keeps_copies(topic: str) -> bool:
    """Returns whether the topic holds copies of other topics' messages: undecided half messages or
    given-up ones. Stock lets these into further queues, where rolled-back messages are consumed and
    the others appear twice."""
    return topic in _NOT_DECIDED or topic.startswith(DLQ_PREFIX)


def _allows(topic: str) -> bool:
    """Returns whether messages of the topic may stand in further queues, by stock's rule."""
    return topic != SCHEDULE_TOPIC and not topic.startswith((RETRY_PREFIX, SYSTEM_TOPIC_PREFIX))


def _may_be_named(name: str) -> bool:
    return is_storable(name) and len(name) <= 255 and name not in SYSTEM_TOPICS and _allows(name)
